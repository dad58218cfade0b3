"""The process at the other end of a Unix socket.

The kernel knows the process that connected, and not the one that uses the connection now: a process
may pass it on and end. So a peer is judged for each action, and an ended one may not act.
"""

import errno
import os
import select
import socket
import struct
import sys
from types import TracebackType
from typing import Final, Self

import trio

from orchestrator.agents.tools.terminal import process_origin
from orchestrator.agents.tools.terminal.process_tags import open_pidfd

CREDENTIALS: Final = struct.Struct("3i")
"""The struct that Linux returns for a peer: process, user, group."""
SO_PEERPIDFD: Final = 77
"""The option of Linux 6.5 that Python does not name: a descriptor of the very process."""


class Peer:
    """The process that has connected, or that listens where we have connected."""

    def __init__(self, connection: trio.socket.SocketType) -> None:
        self.pid, self.user = _credentials(connection)
        """0: the process cannot be seen from here, or the system does not tell it."""
        self._pidfd: int | None = None
        self._is_gone = False
        if self.pid:
            try:
                self._pidfd = _pidfd_of(connection, self.pid)
            except ProcessLookupError:
                self._is_gone = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)

    async def origin(self) -> process_origin.Origin:
        """Return the current origin of the peer."""
        return await process_origin.judge_in_thread(self._origin)

    def _origin(self) -> process_origin.Origin:
        if not hasattr(socket, "SO_PEERCRED") or not process_origin.PROCESSES.exists():
            # The origin is unknown here: the mode of the socket keeps other users out, and only a
            # sandbox keeps commands out.
            return process_origin.Origin.ELSEWHERE
        if not self.pid or self._is_gone:
            return process_origin.Origin.UNKNOWN
        origin = process_origin.origin_of(self.pid)
        # Afterwards: until it ends, no other process has its id.
        return process_origin.Origin.UNKNOWN if self._has_ended() else origin

    def _has_ended(self) -> bool:
        if self._pidfd is None:
            return False
        ending = select.poll()
        ending.register(self._pidfd, select.POLLIN)
        return bool(ending.poll(0))


def _credentials(connection: trio.socket.SocketType) -> tuple[int, int]:
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()  # then the mode of the socket keeps others out
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(peer)
    return pid, user


def _pidfd_of(connection: trio.socket.SocketType, pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as exc:
        if exc.errno == errno.ENOPROTOOPT:
            # An older kernel. Between the connection and now the id may have been reused.
            return open_pidfd(pid)
        raise ProcessLookupError(pid) from exc
