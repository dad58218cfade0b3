"""The client of the control socket: reads and controls a run of another process."""

import os
import socket
import stat
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from orchestrator.agents import raising_one_error
from orchestrator.kernel.control import wire
from orchestrator.kernel.control.peer import Peer
from orchestrator.kernel.control.server import REQUEST_TYPES, ControlRequest
from orchestrator.kernel.errors import OrchestratorError

HELLO_SECONDS: Final = 2
"""How long a process may take for its first line: a suspended one never sends it."""


class RefusedError(OrchestratorError):
    """The other process refused a request, or has closed the connection."""


class ForeignSocketError(OrchestratorError):
    """Another user owns the socket of a journal's writer, so no request is sent to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the control socket {path} is not yours: another user could read what you say; remove"
            " it, or its folder"
        )
        self.path = path


class ControlClient:
    """A connection to a process that runs agents. `connect_control` makes it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._send_lock = trio.Lock()
        self._response_events: dict[int, trio.Event] = {}
        self._responses: dict[int, dict[str, Any]] = {}
        self._last_id = 0
        self._grown = trio.Event()
        self.seq = 0
        self.waits: dict[str, str] = {}
        """The places of tasks that wait for a provider, for people."""
        """How many entries the journal has, as far as the other process has sent it."""
        self.is_closed = False

    async def request(self, request: ControlRequest) -> dict[str, Any]:
        """Send a request, and return its response; raise `RefusedError` with the reason."""
        await trio.lowlevel.checkpoint()
        self._last_id += 1
        id_ = self._last_id
        arrived = self._response_events[id_] = trio.Event()
        verb = next(name for name, kind in REQUEST_TYPES.items() if isinstance(request, kind))
        try:
            async with self._send_lock:
                line = wire.encode_line({"id": id_, "do": verb, **attrs.asdict(request)})
                await self._stream.send_all(line)
            if not self.is_closed:
                await arrived.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            del self._response_events[id_]
        response = self._responses.pop(id_, {"error": "the process has left"})
        if "error" in response:
            raise RefusedError(str(response["error"]))
        return response

    async def wait_grown(self, *, after: int) -> bool:
        """Wait until the journal has more entries than this; return False if the process left."""
        await trio.lowlevel.checkpoint()
        while self.seq <= after and not self.is_closed:
            await self._grown.wait()
        return self.seq > after

    async def receive_all(self, lines: wire.LineReader) -> None:
        """Receive lines until the other end closes the connection."""
        while (line := await _next_line(lines)) is not None:
            message = _decode_line(line)
            id_ = message.get("id")
            if isinstance(seq := message.get("seq"), int):
                self.seq = seq
                waits = message.get("waits")
                self.waits = waits if isinstance(waits, dict) else {}
                self._notify_waiters()
            elif isinstance(id_, int) and id_ in self._response_events:
                self._responses[id_] = message
                self._response_events[id_].set()
        self.is_closed = True
        for arrived in self._response_events.values():
            arrived.set()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._grown.set()
        self._grown = trio.Event()


@asynccontextmanager
async def connect_control(journal: Path) -> AsyncGenerator[ControlClient | None]:
    """Connect to the process that writes a journal, as long as the block lasts.

    Yields None if no process answers there.

    Raises:
        ForeignSocketError: it is a process of another user.
    """
    path = wire.socket_path(journal)
    try:
        _require_ours(path)
        connected = await trio.to_thread.run_sync(_connect, path)
    except PermissionError as exc:
        raise ForeignSocketError(path) from exc
    except OSError:
        yield None
        return
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connected))
    async with stream:
        # Whatever the file says: this is the process that reads the requests.
        with Peer(stream.socket) as writer:
            if writer.user not in _trusted_users():
                raise ForeignSocketError(path)
        lines = wire.LineReader(stream)
        first: bytes | None = None
        with trio.move_on_after(HELLO_SECONDS):
            first = await _next_line(lines)
        if first is None or _decode_line(first).get("protocol") != wire.PROTOCOL:
            yield None
            return
        client = ControlClient(stream)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.receive_all, lines)
                yield client
                nursery.cancel_scope.cancel(reason="the client is done")


def _connect(path: Path) -> socket.socket:
    """Connect, and wait as long as many others connect. This blocks: call it in a thread."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A Unix socket that does not block is refused while others are in front of it, and never
        # told when there is room.
        seconds = struct.pack("ll", HELLO_SECONDS, 0)
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        connecting.connect(os.fspath(path))
    except BaseException:
        connecting.close()
        raise
    return connecting


def _require_ours(path: Path) -> None:
    """Raise if others have put a socket there, or may do so."""
    if wire.is_shared(path.parent.parent):
        wire.require_private(path.parent)
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid not in _trusted_users():
        raise PermissionError(path)


def _trusted_users() -> set[int]:
    """Return the users whose process may run our agents: root could read it all anyway."""
    return {os.getuid(), 0}


async def _next_line(lines: wire.LineReader) -> bytes | None:
    await trio.lowlevel.checkpoint()
    try:
        return await lines.read()
    except (wire.TooLongError, trio.BrokenResourceError):
        # Not our protocol, or the other process has died.
        return None


def _decode_line(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
