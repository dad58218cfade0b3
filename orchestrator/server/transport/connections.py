"""Connections: as many as there is room for, each on its own, and all of them gone in the end.

anycorn speaks HTTP on each of them. It does not accept them: its own loop ends for good, and every
run of the process with it, when files run out or when one connection finds a fault.
"""

import errno
import resource
import socket
from contextlib import suppress
from typing import Any, Final, cast

import anyio.abc
import trio
from anycorn.app_wrappers import ASGIWrapper
from anycorn.config import Config
from anycorn.tcp_server import TCPServer
from anycorn.worker_context import WorkerContext
from anyio.streams.tls import TLSStream
from starlette.types import ASGIApp

from agents import raising_one_error

HANDSHAKE_SECONDS: Final = 10
HANG_UP_SECONDS: Final = 1
"""How long clients have to take their answers when the server ends."""
OUT_OF_FILES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
)
PAUSE_SECONDS: Final = 0.1
SHARE: Final = 0.75
"""The part of all files that connections may take: the journal and models need some, too."""
BROKEN: Final = (
    OSError,  # which the errors of TLS are
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    trio.TooSlowError,
)


class Connections:
    """Whoever is connected."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._config = config
        self._tls = config.create_ssl_context()
        self._context = WorkerContext(None)
        self._open: set[socket.socket] = set()
        self._closed = trio.lowlevel.ParkingLot()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._room = trio.Semaphore(max(1, int(files * SHARE)))
        # Two libraries have each their own types of the same protocol.
        self._app = ASGIWrapper(cast("Any", app))

    async def serve(
        self,
        listening_socket: socket.socket,
        shutdown: trio.Event,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve whoever connects until it is over; then let everybody take their answers."""
        with raising_one_error():
            async with trio.open_nursery() as connected:
                try:
                    with raising_one_error():
                        async with trio.open_nursery() as accepting:
                            accepting.start_soon(
                                self._accept_forever, listening_socket, connected
                            )
                            task_status.started()
                            await shutdown.wait()
                            accepting.cancel_scope.cancel(reason="the server ends")
                    await self._context.terminated.set()
                    with trio.move_on_after(HANG_UP_SECONDS):
                        await self.wait_empty()
                finally:
                    self._drop_all()
                    connected.cancel_scope.cancel(reason="the server has ended")

    @property
    def count(self) -> int:
        return len(self._open)

    async def wait_empty(self) -> None:
        """Wait until nobody is connected."""
        await trio.lowlevel.checkpoint()
        while self._open:
            await self._closed.park()

    def _drop_all(self) -> None:
        """Let go of all who are still there: what is sent to them cannot be cancelled."""
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    async def _accept_forever(
        self, listening_socket: socket.socket, connected: trio.Nursery
    ) -> None:
        async with trio.SocketListener(
            trio.socket.from_stdlib_socket(listening_socket)
        ) as listener:
            while True:
                await self._room.acquire()
                accepted: socket.socket | None = None
                try:
                    stream = await listener.accept()
                    accepted = socket.socket(fileno=stream.socket.detach())
                except OSError as exc:
                    if exc.errno not in OUT_OF_FILES:
                        raise
                    await trio.sleep(PAUSE_SECONDS)
                finally:
                    if accepted is None:
                        self._room.release()
                if accepted is not None:
                    connected.start_soon(self._serve_connection, accepted)

    async def _serve_connection(self, accepted: socket.socket) -> None:
        self._open.add(accepted)
        await trio.lowlevel.cancel_shielded_checkpoint()
        try:
            with raising_one_error():
                await self._serve_http(accepted)
        except BROKEN:
            pass  # whoever was there has left
        except Exception:  # noqa: BLE001 (a bulkhead: what strangers send ends their connection only)
            await self._config.log.exception("A connection broke something")
        finally:
            self._open.remove(accepted)
            self._closed.unpark_all()
            self._room.release()
            accepted.close()

    async def _serve_http(self, accepted: socket.socket) -> None:
        accepted.getpeername()  # or whoever it was has left already
        stream: anyio.abc.ByteStream
        stream = await anyio.abc.SocketStream.from_socket(accepted)
        if self._tls is not None:
            with trio.fail_after(HANDSHAKE_SECONDS):
                stream = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=self._tls
                )
        await _Connection(
            self._app, self._config, self._context, {}, cast("Any", stream)
        ).run()


class _Connection(TCPServer):
    """One connection, which is over as soon as whoever was there has left."""

    _is_disconnected = False

    async def _read_data(self) -> None:
        await super()._read_data()
        self._is_disconnected = True
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        """Wait for the next request, as long as there may be one."""
        await trio.lowlevel.checkpoint()
        if not self._is_disconnected:
            await super()._idle_timeout()
