"""Standard input, line by line, in a wait that can be cancelled."""

import os
import termios
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

STDIN: Final = 0
CHUNK: Final = 65536


class StdinLines:
    """The lines of standard input: a terminal, a pipe or a file."""

    def __init__(self) -> None:
        self._unread = b""
        self._ended = False
        self._deferred: deque[str] = deque()

    async def read(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        await trio.lowlevel.checkpoint()
        if self._deferred:
            return self._deferred.popleft()
        return await self._next()

    async def read_command(self, is_command: Callable[[str], bool]) -> str | None:
        """Return the next line that is a command. `read` returns the lines before it."""
        while True:
            line = await self._next()
            if line is None or is_command(line):
                return line
            self._deferred.append(line)

    def discard_typed(self) -> None:
        """Discard the lines typed so far and not yet read."""
        self._unread = b""
        self._deferred.clear()
        with suppress(termios.error):  # stdin is no terminal
            termios.tcflush(STDIN, termios.TCIFLUSH)

    async def _next(self) -> str | None:
        await trio.lowlevel.checkpoint()
        while b"\n" not in self._unread and not self._ended:
            await _wait_readable()
            chunk = os.read(STDIN, CHUNK)
            self._ended = not chunk
            self._unread += chunk
        if not self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")


async def _wait_readable() -> None:
    try:
        await trio.lowlevel.wait_readable(STDIN)
    except PermissionError:
        # A plain file cannot be waited for, and is always readable.
        await trio.lowlevel.checkpoint()
