"""Long strings of facts, stored once however many facts contain them.

JSON escapes control characters. So one of them can mark where a string was extracted, and no fact
contains it.
"""

import re
from collections.abc import Callable, MutableMapping
from hashlib import sha256
from typing import Final

from orchestrator.delegation import UnreadableFactError

MAX_INLINE_CHARACTERS: Final = 2_000
"""How long a string may be that stays in the body of its fact."""
MARK: Final = "\x1a"
MARK_BYTES: Final = MARK.encode()

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_REFERENCE: Final = re.compile(MARK_BYTES + rb"([0-9a-f]{64})")


def digest(payload: bytes) -> str:
    """Return the name under which a string is stored."""
    return sha256(payload).hexdigest()


def extract_long_strings(body: str, payloads: MutableMapping[str, str]) -> str:
    """Return the JSON of a fact with references for its long strings, which go to `payloads`."""
    if len(body) <= MAX_INLINE_CHARACTERS:
        return body

    def reference(found: re.Match[str]) -> str:
        string = found[0]
        if len(string) <= MAX_INLINE_CHARACTERS:
            return string
        name = digest(string.encode())
        payloads[name] = string
        return f"{MARK}{name}"

    return _STRING.sub(reference, body)


def restore_long_strings(body: bytes, find: Callable[[str], bytes], *, limit: int) -> bytes:
    """Return the JSON of a fact with its long strings back in place.

    A string costs nothing to refer to again, so a small file may ask for any number of bytes: raise
    `UnreadableFactError` if they come to more than `limit`.
    """
    found: dict[str, bytes] = {}
    left = limit

    def restore(reference: re.Match[bytes]) -> bytes:
        nonlocal left
        name = reference[1].decode()
        if name not in found:
            found[name] = find(name)
        left -= len(found[name])
        if left < 0:
            raise UnreadableFactError(
                f"damaged: its long strings come to more than {limit / 1e6:,.0f} MB"
            )
        return found[name]

    return _REFERENCE.sub(restore, body)


def references(body: bytes) -> list[str]:
    """Return the digests that the JSON of a fact refers to."""
    return [name.decode() for name in _REFERENCE.findall(body)]
