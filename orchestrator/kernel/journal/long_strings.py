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

# A string that is long or has a backslash, after all that comes before it, in one step.
_STRING: Final = re.compile(
    rf'(?:[^"]++|"[^"\\]{{0,{MAX_INLINE_CHARACTERS - 2}}}+")*+'
    r'("[^"\\]*+(?:\\.[^"\\]*+)*+")'
)
_REFERENCE: Final = re.compile(MARK_BYTES + rb"([0-9a-f]{64})")


def digest(payload: bytes) -> str:
    """Return the name under which a string is stored."""
    return sha256(payload).hexdigest()


def extract_long_strings(body: str, payloads: MutableMapping[str, str]) -> str:
    """Return the JSON of a fact with references for its long strings, which go to `payloads`."""
    if len(body) <= MAX_INLINE_CHARACTERS:
        return body
    parts: list[str] = []
    done = at = 0
    while (found := _STRING.match(body, at)) is not None:
        start, at = found.span(1)
        if at - start > MAX_INLINE_CHARACTERS:
            name = digest(found[1].encode())
            payloads[name] = found[1]
            parts += body[done:start], MARK, name
            done = at
    return "".join([*parts, body[done:]])


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
