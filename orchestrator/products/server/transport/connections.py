"""The server's connections: accepted up to a limit, isolated, and all closed at the end.

The accept loop goes on when file descriptors run out or a connection raises. If it ended, every run
of the process would end.
"""

import errno
import logging
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec
import trio
from starlette.types import ASGIApp

from orchestrator.agents import raising_one_error
from orchestrator.products.server.transport import http11
from orchestrator.products.server.transport.peers import CountedConnection, PeerConnections, peer_of
from orchestrator.products.server.transport.tls import Certificate

HANDSHAKE_SECONDS: Final = 10
DRAIN_SECONDS: Final = 1
"""The seconds that clients have to read their responses when the server shuts down."""
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
PAUSE_SECONDS: Final = 0.1
MOST_AT_ONCE: Final = 100
"""The most connections to accept in one step of the event loop."""
SHARE: Final = 0.75
"""The share of file descriptors for connections: the journal and models need some, too."""
TOO_MANY: Final = "this address has too many connections: close some, or try again in a second"
_BODY: Final = msgspec.json.encode(
    {"error": {"message": TOO_MANY, "type": "rate_limit_error", "code": "too_many_connections"}}
)
_REFUSAL: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
"""The response to a peer that has too many connections."""


class Connections:
    """The open connections of a server."""

    def __init__(
        self,
        app: ASGIApp,
        log: logging.Logger,
        *,
        certificate: Certificate | None = None,
        per_peer: int | None = None,
        keep_alive: float = http11.KEEP_ALIVE_SECONDS,
        count_refusal: Callable[[int], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to serve; without a certificate, plain HTTP. `serve` accepts connections."""
        self._app = app
        self._log = log
        self._dates = http11.Dates(now)
        self._count_refusal = count_refusal
        self._certificate = certificate
        self._keep_alive = keep_alive
        self._open: set[socket.socket] = set()
        self._answering: dict[http11.HttpConnection, CountedConnection] = {}
        """The oldest first."""
        self._is_ending = False
        self._has_refused = False
        self._closed = trio.lowlevel.ParkingLot()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        slots = max(1, int(files * SHARE))
        self._slots = trio.Semaphore(slots)
        self._peers = PeerConnections(slots, per_peer)

    async def serve(
        self,
        listening_socket: socket.socket,
        shutdown: trio.Event,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve connections until shutdown, then let clients read their responses."""
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
                            accepting.cancel_scope.cancel(reason="the server shuts down")
                    self._is_ending = True
                    for it in self._answering:
                        it.end_when_idle()
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
        """Shut down all remaining sockets: a write to them cannot be cancelled."""
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
                    if not self._slots.value:
                        self._end_idle()
                    await self._slots.acquire()
                    is_served = False
                    try:
                        stream = await listener.accept()
                        accepted = socket.socket(fileno=stream.socket.detach())
                        is_served = self._begin(accepted, connections)
                        # One for each pass of the scheduler would let new clients wait for words
                        # of all streams.
                        self._accept_waiting(listening_socket, connections, MOST_AT_ONCE)
                    except OSError as exc:
                        if exc.errno not in OUT_OF_FILES:
                            raise
                        await trio.sleep(PAUSE_SECONDS)
                    finally:
                        if not is_served:
                            self._slots.release()
            finally:
                # The kernel resets clients that are not accepted.
                self._accept_waiting(listening_socket, connections, self._slots.value)

    def _accept_waiting(
        self, listening_socket: socket.socket, connections: trio.Nursery, most: int
    ) -> None:
        """Accept clients that have connected by now."""
        with suppress(OSError, trio.WouldBlock):
            for _ in range(most):
                self._slots.acquire_nowait()
                is_served = False
                try:
                    accepted, _ = listening_socket.accept()
                    is_served = self._begin(accepted, connections)
                finally:
                    if not is_served:
                        self._slots.release()

    def _begin(self, accepted: socket.socket, connections: trio.Nursery) -> bool:
        """Start to serve a connection, and return whether its peer may have one."""
        try:
            peer = peer_of(accepted.getpeername()[0])
        except OSError:
            accepted.close()  # the client has already disconnected
            return False
        counted = self._peers.open(peer)
        if counted is None and self._end_idle(peer):
            counted = self._peers.open(peer)
        if counted is None:
            self._refuse(accepted, peer)
            return False
        self._open.add(accepted)
        connections.start_soon(self._serve_connection, accepted, counted)
        return True

    def _end_idle(self, peer: str | None = None) -> bool:
        """End an idle connection, of a peer or of any; return whether there is one."""
        for connection, counted in self._answering.items():
            if peer in {None, counted.peer} and connection.is_idle:
                connection.end_when_idle()
                counted.release()
                return True
        return False

    async def _serve_connection(self, accepted: socket.socket, counted: CountedConnection) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()
        try:
            with raising_one_error():
                await self._serve_http(accepted, counted)
        except (*http11.BROKEN, trio.TooSlowError):
            pass  # the client has disconnected
        except Exception:  # noqa: BLE001 (a bulkhead: one connection must not end the others)
            self._log.exception("a request failed")
        finally:
            self._open.remove(accepted)
            self._closed.unpark_all()
            counted.release()
            self._slots.release()
            accepted.close()

    def _refuse(self, accepted: socket.socket, peer: str) -> None:
        """Close a connection of a peer that has too many, and say so once."""
        if not self._has_refused:
            self._has_refused = True
            self._log.warning(
                "%s has %d connections, and gets 429 for more; raise the limit of open files"
                " (ulimit -n) or --connections-per-peer if it is a proxy",
                peer,
                self._peers.most_of(peer),
            )
        self._count_refusal(HTTPStatus.TOO_MANY_REQUESTS.value)
        with accepted, suppress(OSError):
            if self._certificate is None:
                accepted.send(_REFUSAL)

    async def _serve_http(self, accepted: socket.socket, counted: CountedConnection) -> None:
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]
        stream = plain = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        if self._certificate is not None:
            context = self._certificate.context()
            stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
            with trio.fail_after(HANDSHAKE_SECONDS):
                await stream.do_handshake()
        connection = http11.HttpConnection(
            self._app,
            accepted,
            stream,
            self._dates,
            {"connection": counted},
            keep_alive=self._keep_alive,
        )
        if self._is_ending:
            connection.end_when_idle()
        self._answering[connection] = counted
        try:
            await connection.run()
        finally:
            del self._answering[connection]
