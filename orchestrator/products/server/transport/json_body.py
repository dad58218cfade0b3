"""Decoding of request bodies: large ones in a thread, and only with a limited number of values.

One call of the decoder holds the interpreter until it returns, even in a thread, and takes time for
each value. So the values are counted first, a piece at a time.
"""

import re
from typing import Final, TypeVar

import msgspec
import trio

from orchestrator.products.server.transport.errors import HttpError

T = TypeVar("T")

LARGE: Final = 100_000
"""The most bytes to decode in the event loop: that takes some milliseconds."""
MOST_MARKS: Final = 200_000
"""The most strings, commas and opening brackets of a body."""
MOST_MESSAGES: Final = 5_000
"""The most messages in the conversation of a request: each takes time in the event loop."""
MOST_PIECES: Final = 1_000
"""The most tools of a request, or files of one message."""
PIECE: Final = 1_000_000
"""The number of bytes to search in one go."""

_MARK: Final = re.compile(rb'[",\[{]')
_IN_STRING: Final = re.compile(rb'(?:[^"\\]{1,64}+|\\.){0,4096}+', re.DOTALL)
_decoders: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("decoders of bodies")


async def decoded(raw: bytes, kind: type[T]) -> T:
    """Decode a body; refuse too many values, and bytes that are not UTF-8 in any field."""
    if len(raw) <= LARGE:
        return _decode_text(raw, kind)  # noqa: ASYNC910 (its caller checkpoints)
    # One at a time: each decoder takes its share of the interpreter from the event loop.
    return await trio.to_thread.run_sync(_decode, raw, kind, limiter=_limiter())


def _decode(raw: bytes, kind: type[T]) -> T:
    if has_too_many_marks(raw):
        raise HttpError(
            413,
            f"the body has more than {MOST_MARKS:,} names, values and brackets; send less of them",
            code="too_many_values",
        )
    return _decode_text(raw, kind)


def _decode_text(raw: bytes, kind: type[T]) -> T:
    if not raw.isascii():
        # The decoder does not check fields that it skips.
        raw.decode()
    return msgspec.json.decode(raw, type=kind)


def has_too_many_marks(raw: bytes, most: int = MOST_MARKS) -> bool:
    """Return whether a body would take long to decode; the length of strings does not count."""
    marks = at = 0
    while at < len(raw):
        found = _MARK.search(raw, at, at + PIECE)
        if found is None:
            at += PIECE
            continue
        at = found.end()
        marks += 1
        if marks > most:
            return True
        if found[0] == b'"':
            while (end := _end_of_piece(raw, at)) > at:
                at = end
            at += 1
    return False


def _end_of_piece(raw: bytes, at: int) -> int:
    found = _IN_STRING.match(raw, at)
    return at if found is None else found.end()


def _limiter() -> trio.CapacityLimiter:
    try:
        return _decoders.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _decoders.set(limiter)
        return limiter
