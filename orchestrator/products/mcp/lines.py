"""Lines over stdin and stdout: bytes cut into lines, on descriptors that no other code uses."""

import os
from typing import Final

import attrs

HEAD: Final = 512
"""How many bytes of a line that is too long are kept."""


@attrs.frozen
class TooLong:
    """A line that was too long to be kept: its beginning."""

    head: bytes


class LineReader:
    """Cuts bytes into lines, looking at each byte once. A line that is too long is dropped."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._length = 0
        self._is_dropped = False
        """The line was too long, and its rest is dropped."""

    def feed(self, chunk: bytes | bytearray) -> list[bytes | TooLong]:
        """Return the lines that a chunk completes."""
        *ended, rest = bytes(chunk).split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            found += self._add(piece)
            if not self._is_dropped:
                found.append(b"".join(self._pieces))
            self._pieces.clear()
            self._length, self._is_dropped = 0, False
        found += self._add(rest)
        return found

    def _add(self, piece: bytes) -> list[bytes | TooLong]:
        """Add to the line, and return it once it is too long: its end may never come."""
        if self._is_dropped:
            return []
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length <= self._longest:
            return []
        head = b"".join(self._pieces)[:HEAD]
        self._pieces.clear()
        self._is_dropped = True
        return [TooLong(head)]


@attrs.frozen
class Wire:
    """The descriptors that stdin and stdout had when the process began."""

    stdin: int
    stdout: int


def take_stdio() -> Wire:
    """Take stdin and stdout for the messages: other code reads nothing, and prints to stderr."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Wire(stdin, stdout)
