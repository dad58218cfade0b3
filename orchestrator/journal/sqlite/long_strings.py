"""Long strings of facts, which are stored once however many facts say them.

The JSON of a fact holds no control character as such: it escapes them. So one of them can mark the
place where a string was taken out, and be mistaken for nothing that a fact says.
"""

import re
from collections.abc import Callable, MutableMapping
from hashlib import sha256
from typing import Final

MAX_INLINE_CHARACTERS: Final = 2_000
"""How many characters of a string stay in the fact that says it."""
MARK: Final = "\x1a"

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_REFERENCE: Final = re.compile(f"{MARK}([0-9a-f]{{64}})")


def digest(payload: str) -> str:
    """Return the name under which a string is stored: no other string has it."""
    return sha256(payload.encode()).hexdigest()


def extract_long_strings(body: str, payloads: MutableMapping[str, str]) -> str:
    """Return the JSON of a fact without its long strings, and put these with the others.

    Args:
        body: the JSON of a fact.
        payloads: what was taken out, as JSON has it, by digest.
    """
    if len(body) <= MAX_INLINE_CHARACTERS:
        return body

    def reference(found: re.Match[str]) -> str:
        string = found[0]
        if len(string) <= MAX_INLINE_CHARACTERS:
            return string
        name = digest(string)
        payloads[name] = string
        return f"{MARK}{name}"

    return _STRING.sub(reference, body)


def restore_long_strings(body: str, find: Callable[[str], str]) -> str:
    """Return the JSON of a fact as it was before `take_out`.

    Args:
        body: what is left of it.
        find: returns what was taken out under a digest.
    """
    if MARK not in body:
        return body
    return _REFERENCE.sub(lambda found: find(found[1]), body)


def references(body: str) -> list[str]:
    """Return the digests of what was taken out."""
    return _REFERENCE.findall(body) if MARK in body else []
