"""Standard input, line by line, in a wait that can be cancelled."""

import os
from collections import deque
from typing import Final

import trio

STDIN: Final = 0
CHUNK: Final = 65536


class Lines:
    """What somebody types, or what a file says instead."""

    def __init__(self) -> None:
        self._unread = b""
        self._ended = False
        self._put_back: deque[str] = deque()

    async def read(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        await trio.lowlevel.checkpoint()
        if self._put_back:
            return self._put_back.popleft()
        return await self._next()

    async def read_command(self) -> str | None:
        """Return the next line that begins with a slash. Those before it are for `read`."""
        while True:
            line = await self._next()
            if line is None or line.startswith("/"):
                return line
            self._put_back.append(line)

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
        # A plain file cannot be waited for, and never makes anybody wait.
        await trio.lowlevel.checkpoint()
