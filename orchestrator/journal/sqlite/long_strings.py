"""Long strings of facts, stored once however many facts contain them.

JSON escapes control characters. So one of them can mark where a string was extracted, and no fact
contains it.
"""

import re
from collections.abc import Callable, MutableMapping
from hashlib import sha256
from typing import Final

MAX_INLINE_CHARACTERS: Final = 2_000
"""How long a string may be that stays in the body of its fact."""
MARK: Final = "\x1a"

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_REFERENCE: Final = re.compile(f"{MARK}([0-9a-f]{{64}})")


def digest(payload: str) -> str:
    """Return the name under which a string is stored."""
    return sha256(payload.encode()).hexdigest()


def extract_long_strings(body: str, payloads: MutableMapping[str, str]) -> str:
    """Return the JSON of a fact with references in place of its long strings.

    Args:
        body: the JSON of a fact.
        payloads: receives the extracted strings, as JSON has them, by digest.
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
    """Return the JSON of a fact with its long strings back in place.

    Args:
        body: the JSON with references.
        find: returns the string of a digest.
    """
    if MARK not in body:
        return body
    return _REFERENCE.sub(lambda found: find(found[1]), body)


def references(body: str) -> list[str]:
    """Return the digests that the JSON of a fact refers to."""
    return _REFERENCE.findall(body) if MARK in body else []
