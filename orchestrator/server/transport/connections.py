"""The server's connections: accepted up to a limit, isolated, and all closed at the end.

anycorn speaks HTTP on each connection, but does not accept them: its own loop ends for good, and
every run of the process with it, when file descriptors run out or one connection raises.
"""

import errno
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Self, cast

import anyio.abc
import h11
import trio
from anycorn.app_wrappers import ASGIWrapper
from anycorn.config import Config
from anycorn.events import Closed
from anycorn.protocol import ProtocolWrapper
from anycorn.protocol.h11 import H11Protocol
from anycorn.tcp_server import TCPServer
from anycorn.worker_context import WorkerContext
from anyio.streams.tls import TLSStream
from starlette.types import ASGIApp

from agents import raising_one_error
from orchestrator.server.transport.peers import (
    CountedConnection,
    PeerConnections,
    peer_of,
)
from orchestrator.server.transport.tls import Certificate

HANDSHAKE_SECONDS: Final = 10
DRAIN_SECONDS: Final = 1
"""How long clients may read their responses when the server shuts down."""
OUT_OF_FILES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
)
PAUSE_SECONDS: Final = 0.1
SHARE: Final = 0.75
"""The share of file descriptors for connections: the journal and models need some, too."""
TOO_MANY: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)
"""What a peer reads that has too many connections already."""
BROKEN: Final = (
    OSError,  # also the errors of TLS
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    trio.TooSlowError,
)


class Connections:
    """The open connections of a server."""

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        *,
        certificate: Certificate | None = None,
        per_peer: int | None = None,
        count_refusal: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Accept connections later: `serve` does.

        Args:
            app: answers the requests.
            config: that of anycorn.
            certificate: that of the server; None speaks plain HTTP.
            per_peer: how many connections one peer may have; None is the default.
            count_refusal: is told the status of each connection that its peer may not have.
        """
        self._config = config
        self._count_refusal = count_refusal
        self._certificate = certificate
        self._context = WorkerContext(None)
        self._open: set[socket.socket] = set()
        self._closed = trio.lowlevel.ParkingLot()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        slots = max(1, int(files * SHARE))
        self._slots = trio.Semaphore(slots)
        self._peers = PeerConnections(slots, per_peer)
        # anycorn and starlette type the same protocol differently.
        self._app = ASGIWrapper(cast("Any", app))

    async def serve(
        self,
        listening_socket: socket.socket,
        shutdown: trio.Event,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve connections until shutdown, and then let clients read their responses."""
        with raising_one_error():
            async with trio.open_nursery() as connections:
                try:
                    with raising_one_error():
                        async with trio.open_nursery() as accepting:
                            accepting.start_soon(
                                self._accept_forever, listening_socket, connections
                            )
                            task_status.started()
                            await shutdown.wait()
                            accepting.cancel_scope.cancel(
                                reason="the server shuts down"
                            )
                    await self._context.terminated.set()
                    with trio.move_on_after(DRAIN_SECONDS):
                        await self.wait_empty()
                finally:
                    self._drop_all()
                    connections.cancel_scope.cancel(reason="the server has shut down")

    @property
    def count(self) -> int:
        return len(self._open)

    async def wait_empty(self) -> None:
        """Wait until every connection is closed."""
        await trio.lowlevel.checkpoint()
        while self._open:
            await self._closed.park()

    def _drop_all(self) -> None:
        """Shut down all sockets that are left: a write to them cannot be cancelled."""
        for accepted in self._open:
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    async def _accept_forever(
        self, listening_socket: socket.socket, connections: trio.Nursery
    ) -> None:
        async with trio.SocketListener(
            trio.socket.from_stdlib_socket(listening_socket)
        ) as listener:
            try:
                while True:
                    await self._slots.acquire()
                    is_served = False
                    try:
                        stream = await listener.accept()
                        accepted = socket.socket(fileno=stream.socket.detach())
                        is_served = self._begin(accepted, connections)
                    except OSError as exc:
                        if exc.errno not in OUT_OF_FILES:
                            raise
                        await trio.sleep(PAUSE_SECONDS)
                    finally:
                        if not is_served:
                            self._slots.release()
            finally:
                self._accept_waiting(listening_socket, connections)

    def _accept_waiting(
        self, listening_socket: socket.socket, connections: trio.Nursery
    ) -> None:
        """Accept the clients that have connected by now: the kernel resets the others."""
        with suppress(OSError, trio.WouldBlock):
            while True:
                self._slots.acquire_nowait()
                is_served = False
                try:
                    accepted, _ = listening_socket.accept()
                    is_served = self._begin(accepted, connections)
                finally:
                    if not is_served:
                        self._slots.release()

    def _begin(self, accepted: socket.socket, connections: trio.Nursery) -> bool:
        """Begin to serve a connection, and return whether its peer may have it."""
        try:
            peer = peer_of(accepted.getpeername()[0])
        except OSError:
            accepted.close()  # the client has disconnected already
            return False
        counted = self._peers.open(peer)
        if counted is None:
            self._refuse(accepted)
            return False
        self._open.add(accepted)
        connections.start_soon(self._serve_connection, accepted, counted)
        return True

    async def _serve_connection(
        self, accepted: socket.socket, counted: CountedConnection
    ) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()
        try:
            with raising_one_error():
                await self._serve_http(accepted, counted)
        except BROKEN:
            pass  # the client has disconnected
        except Exception:  # noqa: BLE001 (a bulkhead: one connection must not end the others)
            await self._config.log.exception("a connection failed")
        finally:
            self._open.remove(accepted)
            self._closed.unpark_all()
            counted.release()
            self._slots.release()
            accepted.close()

    def _refuse(self, accepted: socket.socket) -> None:
        """Close a connection that its peer may not have."""
        self._count_refusal(HTTPStatus.TOO_MANY_REQUESTS.value)
        with accepted, suppress(OSError):
            if self._certificate is None:
                accepted.send(TOO_MANY)

    async def _serve_http(
        self, accepted: socket.socket, counted: CountedConnection
    ) -> None:
        stream: anyio.abc.ByteStream
        stream = await anyio.abc.SocketStream.from_socket(accepted)
        if self._certificate is not None:
            context = self._certificate.context()
            with trio.fail_after(HANDSHAKE_SECONDS):
                stream = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=context
                )
        # Each request gets a copy of the state.
        state: Any = {"connection": counted}
        await _Connection(
            self._app, self._config, self._context, state, cast("Any", stream)
        ).run()


class _Connection(TCPServer):
    """One connection, which ends as soon as its client disconnects.

    When the server shuts down, a request that has been sent is answered first: one that waits to be
    read, or the first one of a client that has just connected.
    """

    _is_disconnected = False
    _is_used = False

    async def _read_data(self) -> None:
        # anycorn has no setting for it, and has made its own protocol by now.
        self.protocol.protocol = _Http11.of(self.protocol)
        await super()._read_data()
        self._is_disconnected = True
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        """Wait for the next request, as long as there may be one."""
        await trio.lowlevel.checkpoint()
        if self._is_disconnected:
            return
        is_first, self._is_used = not self._is_used, True
        with self.context.move_on_after(self.config.keep_alive_timeout):
            await self.context.terminated.wait()
            if is_first or self._has_unread():
                # `Connections.serve` drops it in a moment if no request comes.
                await trio.sleep_forever()
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()

    def _has_unread(self) -> bool:
        """Return whether the client has sent what was not read yet."""
        raw = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 (no SQL)
        try:
            return bool(raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False


class _Http11(H11Protocol):
    """HTTP/1.1 and no other protocol, whatever a client asks for.

    anycorn speaks HTTP/2 in the clear, too. There no timer closes a connection that does nothing,
    and each of a hundred streams may hold a whole body.
    """

    @classmethod
    def of(cls, made: ProtocolWrapper) -> Self:
        return cls(
            made.app,
            made.config,
            made.context,
            made.task_group,
            made.state,
            made.client,
            made.server,
            made.send,
            made.tls,
            zero_copy_send=made.zero_copy_send,
        )

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in {b"1.0", b"1.1"}:
            raise _OtherProtocolError
        names = {name for name, _ in event.headers}
        if {b"transfer-encoding", b"content-length"} <= names:
            # RFC 9112, 6.1: such a request may be two, so it is the last one.
            self.keep_alive_requests = self.config.keep_alive_max_requests + 1
        # An upgrade to h2c is ignored, as a server may: the answer is HTTP/1.1.
        await trio.lowlevel.checkpoint()

    async def _handle_events(self) -> None:
        try:
            await super()._handle_events()
        except _OtherProtocolError:
            await self._send_error_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())


class _OtherProtocolError(Exception):
    """The client speaks a protocol that the server does not."""
