"""HTTP/1.1 on one connection: h11 reads requests, and an ASGI application answers them in order.

One task reads from the client while another runs the application. So a disconnect is seen during a
request, at no cost. An incomplete response is the last one of its connection.
"""

import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from orchestrator.agents import raising_one_error
from orchestrator.products.server.transport.listed import Listed

LONGEST_HEAD: Final = 16_384
"""The most bytes of the method, the target and the headers of a request."""
MOST_UNREAD: Final = 65_536
"""The most bytes to read ahead of the application."""
HEAD_SECONDS: Final = 5
"""The most seconds until the head of a request is complete, from its first byte on."""
KEEP_ALIVE_SECONDS: Final = 75
"""The most seconds between two requests. Many clients keep a connection for 5 or 60 seconds: a
server that closed it at the same moment would lose their request."""
LOOK_SECONDS: Final = 0.1
"""The seconds to read the bytes that are in a socket when the time of a client is over."""
LAST_SECONDS: Final = 1
"""The seconds of reading and dropping input, so that the client can read its answer."""
VERSIONS: Final = frozenset({b"1.0", b"1.1"})
WITHOUT_BODY: Final = frozenset({HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value})
BROKEN: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""The errors of a stream whose other end is gone; an error of TLS is an OSError."""
CLIENT_LEFT: Final = "the client has disconnected"
DISCONNECT: Final = "disconnect"
"""The name of the connection's `Disconnect` in the state of each request."""
WHOLE_BODY: Final = "whole_body"
"""The name of a function in the state of each request that returns a body that is there."""
FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})
"""The headers of a response that say where it ends, and whether another one may follow."""
_NAME: Final = rb"[-!#$%&'*+.^_`|~0-9a-z]++"
_NAMES: Final = re.compile(rb"%b(?: %b)*+" % (_NAME, _NAME))
_VALUE: Final = rb"(?:[^\x00\s]++(?:[ \t]++[^\x00\s]++)*+)?+"
_VALUES: Final = re.compile(rb"%b(?:\n%b)*+" % (_VALUE, _VALUE))
_WRONG_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class Disconnect:
    """The end of a connection, for work that is done for its client."""

    def __init__(self) -> None:
        self.has_come = False
        self._scopes: list[trio.CancelScope] = []
        self._waiting = trio.lowlevel.ParkingLot()

    def cancels(self, scope: trio.CancelScope) -> Listed[trio.CancelScope]:
        """Cancel a scope if the client disconnects before the block ends."""
        if self.has_come:
            scope.cancel(reason=CLIENT_LEFT)
        return Listed(self._scopes, scope)

    async def wait(self) -> None:
        """Wait until the client disconnects."""
        if self.has_come:
            await trio.lowlevel.checkpoint()
        else:
            await self._waiting.park()

    def note(self) -> None:
        """Note that the client has disconnected."""
        self.has_come = True
        self._waiting.unpark_all()
        for scope in self._scopes:
            scope.cancel(reason=CLIENT_LEFT)


class Dates:
    """The header `date`, made once a second."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second = -1
        self._header = (b"date", b"")

    def header(self) -> tuple[bytes, bytes]:
        second = int(self._now())
        if second != self._second:
            self._second = second
            self._header = (b"date", formatdate(second, usegmt=True).encode())
        return self._header


class HttpConnection:
    """One connection of a client."""

    def __init__(
        self,
        app: ASGIApp,
        accepted: socket.socket,
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
        dates: Dates,
        state: Mapping[str, Any],
        *,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        """Prepare to answer requests; `run` answers them. Each request gets a copy of `state`."""
        self._keep_alive = keep_alive
        self._patience: float = HEAD_SECONDS
        """The most seconds to wait for the next request."""
        is_plain = isinstance(stream, trio.SocketStream)
        self._app = app
        self._socket = accepted
        self._plain = accepted if is_plain else None
        self._sending = trio.Lock()
        self._stream = stream
        self.dates = dates
        self.parser = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "scheme": "http" if is_plain else "https",
            "root_path": "",
            "client": accepted.getpeername()[:2],
            "server": accepted.getsockname()[:2],
        }
        self.disconnect = Disconnect()
        self._state = {**state, DISCONNECT: self.disconnect}
        self._arrived = trio.lowlevel.ParkingLot()
        self._has_room = trio.lowlevel.ParkingLot()
        self._unread = 0
        """The number of bytes that arrived since the parser had none left."""
        self._is_used = False
        """Whether a request has been read."""
        self._is_idle = False
        """Whether it waits for the next request."""
        self._has_begun = False
        """Whether bytes have come since it began to wait."""
        self._is_ending = False
        """Whether it closes when it is idle."""
        self._is_closing = False
        """Whether input of the client is read only to be dropped."""
        self._is_broken = False
        """Whether the connection can no longer send."""
        self._waiting = trio.CancelScope()
        """The wait for a request: too long, or until the server stops waiting."""

    async def run(self) -> None:
        """Answer requests until the client disconnects, or is silent for too long."""
        with raising_one_error():
            # Owns the reading task, which ends with the last answer.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_forever)
                try:
                    may_go_on = True
                    while may_go_on:
                        with self._waiting:
                            while await self._answer_next():
                                self._patience = self._keep_alive
                        # If its time is over, the whole process may have been stopped, and bytes
                        # that came meanwhile are in the socket.
                        is_late = self._waiting.cancelled_caught and not self._is_ending
                        may_go_on = is_late and self._patience > LOOK_SECONDS
                        self._waiting, self._patience = trio.CancelScope(), LOOK_SECONDS
                finally:
                    # The client can read its answer, even if the application raised.
                    await self._close()  # noqa: ASYNC102 (if cancelled, it closes at once)
                nursery.cancel_scope.cancel(reason="the connection is closed")

    def end_when_idle(self) -> None:
        """Close when there is no request; the first one may be on its way, and is answered."""
        self._is_ending = True
        if self.is_idle:
            self._waiting.cancel(reason="the server ends idle connections")

    @property
    def is_idle(self) -> bool:
        """Whether the client has its answer, and has sent no other request."""
        return self._is_idle and self._is_used and not self._has_unread()

    def _has_unread(self) -> bool:
        """Return whether there is unread input of the client."""
        if self._unread:
            return True
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    async def _read_forever(self) -> None:  # noqa: ASYNC910 (it waits for bytes)
        received = b"x"
        while received:
            while self._unread >= MOST_UNREAD:
                await self._has_room.park()
            try:
                received = bytes(await self._stream.receive_some(MOST_UNREAD))
            except BROKEN:
                received = b""
            if not self._is_closing:
                self._unread += len(received)
                self._has_begun = True
                self.parser.receive_data(received)
            if not received:
                self.disconnect.note()
            self._arrived.unpark_all()

    async def next_event(self) -> Any:
        """Return the next event of the parser."""
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self._unread = 0
            if self._is_idle and self._has_begun:
                # The rest of the head must come soon.
                latest = trio.current_time() + HEAD_SECONDS
                self._waiting.deadline = min(self._waiting.deadline, latest)
            self._has_room.unpark_all()
            await self._arrived.park()
        return event  # noqa: ASYNC910 (an event that is there needs no wait; the application waits)

    async def _answer_next(self) -> bool:
        """Answer the next request, and return whether another may follow."""
        try:
            request = await self._next_request()
        except h11.RemoteProtocolError as exc:
            await self.refuse(exc.error_status_hint)
            return False
        if request is None:
            return False
        if not self._has_begun:
            # It came with the request before it: other clients have their turn first.
            await trio.lowlevel.checkpoint()
        if status := self._why_not(request):
            await self.refuse(status)
            return False
        path, _, query = request.target.partition(b"?")
        exchange = _Exchange(self, request)
        scope: Scope = {
            **self._scope,
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "path": unquote_to_bytes(path).decode(),
            "raw_path": path,
            "query_string": query,
            "headers": list(request.headers),
            "state": {**self._state, WHOLE_BODY: exchange.whole_body},
        }
        await self._app(scope, exchange.receive, exchange.send)
        with suppress(h11.RemoteProtocolError):
            return await exchange.start_next()
        return False

    async def _next_request(self) -> h11.Request | None:
        """Wait for the head of a request; return None if no more will come."""
        self._is_idle, self._has_begun = True, False
        if self._is_ending and self.is_idle:
            return None  # noqa: ASYNC910 (the connection closes)
        self._waiting.deadline = trio.current_time() + self._patience
        event = await self.next_event()
        self._waiting.deadline = math.inf
        self._is_idle, self._is_used = False, True
        return event if isinstance(event, h11.Request) else None

    def _why_not(self, request: h11.Request) -> int:
        """Return the status that refuses a request; 0 accepts it."""
        if request.http_version not in VERSIONS:
            return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        path, _, _ = request.target.partition(b"?")
        if b"%" in path:
            try:
                unquote_to_bytes(path).decode()
            except UnicodeDecodeError:
                return HTTPStatus.BAD_REQUEST
            if _WRONG_ESCAPE.search(path):
                return HTTPStatus.BAD_REQUEST
        for name, value in request.headers:
            if name == b"upgrade" and value.strip().lower() == b"websocket":
                return HTTPStatus.FORBIDDEN
        # A server may ignore an upgrade to HTTP/2, and answer in HTTP/1.1.
        return 0

    async def refuse(self, status: int) -> None:
        """Answer an invalid request with an error, as the last response of the connection."""
        if self.parser.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await self.write(
                self.encode(h11.Response(status_code=status, headers=headers))
                + self.encode(h11.EndOfMessage())
            )
        else:
            await trio.lowlevel.checkpoint()

    def encode(self, event: h11.Event) -> bytes:
        return self.parser.send(event) or b""

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the head of a response. h11 gets only the headers that frame it.

        It would check the others one by one, three times in a stream. Invalid ones go to h11, too,
        which refuses them.
        """
        framing = [header for header in headers if header[0] in FRAMING]
        others = [header for header in headers if header[0] not in FRAMING]
        if not _are_valid(others):
            framing, others = [*headers], []
        head = self.encode(h11.Response(status_code=status, headers=framing))
        return b"%b%b\r\n" % (head[:-2], b"".join([b"%b: %b\r\n" % it for it in others]))

    async def write(self, data: bytes) -> None:  # noqa: ASYNC910 (see below)
        """Send bytes; drop them if the client is gone."""
        if self._is_broken:
            await trio.lowlevel.checkpoint()
            return
        if self._plain is not None and not self._sending.locked():
            # Mostly the kernel takes all bytes at once, without a wait.
            with suppress(OSError):
                data = data[self._plain.send(data) :]
            if not data:
                return  # noqa: ASYNC910 (the producer of the bytes waits)
        try:
            # A partial write would break the framing. The kernel limits the time, see `bind`.
            with trio.CancelScope(shield=True):
                async with self._sending:
                    await self._stream.send_all(data)
        except BROKEN:
            self._is_broken = True
            self.disconnect.note()

    async def _close(self) -> None:  # noqa: ASYNC910 (closing a stream checkpoints)
        """Close the connection when the client has read everything."""
        self._is_closing, self._unread = True, 0
        self._has_room.unpark_all()
        with suppress(*BROKEN):
            if self._plain is not None and not self.disconnect.has_come:
                self._plain.shutdown(socket.SHUT_WR)
                # After a close now, more input would reset the connection and lose the answer.
                with trio.move_on_after(LAST_SECONDS):
                    await self.disconnect.wait()
            await self._stream.aclose()


def _are_valid(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the names, in lower case, and the values of headers may be sent."""
    if not headers:
        return True
    names, values = zip(*headers, strict=True)
    all_names, all_values = b" ".join(names), b"\n".join(values)
    between = len(headers) - 1
    return (
        all_names.count(b" ") == all_values.count(b"\n") == between
        and _NAMES.fullmatch(all_names) is not None
        and _VALUES.fullmatch(all_values) is not None
    )


class _Exchange:
    """One request and its response."""

    def __init__(self, connection: HttpConnection, request: h11.Request) -> None:
        self._connection = connection
        self._is_head = request.method == b"HEAD"
        names = [name for name, _ in request.headers]
        is_chunked = b"transfer-encoding" in names
        self._has_input = is_chunked or b"content-length" in names
        # RFC 9112, 6.1: such a request may hide a second one, so the connection ends after it.
        self._is_last = is_chunked and b"content-length" in names
        self._request = request
        self._start: Message | None = None
        """The status and headers, which are sent with the first bytes of the body."""
        self._has_body = True
        self._is_read = False
        """Whether the whole request is read."""
        self._is_refused = False
        """Whether the rest of the request was invalid, and an error has answered it."""
        self._early: list[bytes] = []
        """The pieces of the body that came with the head, if others follow."""

    def whole_body(self) -> bytes | None:
        """Return the body without a wait, if all of it has arrived."""
        parser = self._connection.parser
        if self._is_read or parser.they_are_waiting_for_100_continue:
            return None
        pieces = self._early
        # `receive` raises an error again.
        with suppress(h11.RemoteProtocolError):
            while isinstance(event := parser.next_event(), h11.Data):
                pieces.append(bytes(event.data))
            self._is_read = isinstance(event, h11.EndOfMessage)
        return b"".join(pieces) if self._is_read else None

    async def receive(self) -> Message:
        """Return the next piece of the body; after the last piece, wait for the disconnect."""
        connection = self._connection
        if self._is_read:
            await connection.disconnect.wait()
            return {"type": "http.disconnect"}
        if self._early:
            early, self._early = b"".join(self._early), []
            return {"type": "http.request", "body": early, "more_body": True}  # noqa: ASYNC910
        if connection.parser.they_are_waiting_for_100_continue:
            going_on = h11.InformationalResponse(status_code=100, headers=[])
            await connection.write(connection.encode(going_on))
        try:
            event = await connection.next_event()
        except h11.RemoteProtocolError as exc:
            self._is_refused = True
            await connection.refuse(exc.error_status_hint)
            connection.disconnect.note()
            return {"type": "http.disconnect"}
        pieces: list[bytes] = []
        # Mostly the rest has arrived, too. The next call raises an error again.
        with suppress(h11.RemoteProtocolError):
            while isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
                event = connection.parser.next_event()
        self._is_read = isinstance(event, h11.EndOfMessage)
        return {
            "type": "http.request",
            "body": pieces[0] if len(pieces) == 1 else b"".join(pieces),
            "more_body": not self._is_read,
        }

    async def send(self, message: Message) -> None:
        """Send a part of the response. The head is sent with the body, as ASGI demands."""
        if self._is_refused:
            await trio.lowlevel.checkpoint()
            return
        if message["type"] == "http.response.start":
            self._start = message
            return  # noqa: ASYNC910 (it is sent with the body)
        connection = self._connection
        data, start = b"", self._start
        if start is not None:
            self._start = None
            status: int = start["status"]
            self._has_body = not self._is_head and status not in WITHOUT_BODY
            headers = [*start["headers"], connection.dates.header()]
            if self._is_last or (self._has_input and not self._is_read and self._leaves_rest()):
                headers.append((b"connection", b"close"))
            data = connection.encode_head(status, headers)
        if self._has_body and (body := message.get("body")):
            data += connection.encode(h11.Data(data=body))
        if not message.get("more_body"):
            data += connection.encode(h11.EndOfMessage())
        await connection.write(data)

    def _leaves_rest(self) -> bool:
        """Return whether the rest of the body is large, or may never come: it is not waited for."""
        headers = dict(self._request.headers)
        return (
            b"transfer-encoding" in headers
            or b"expect" in headers
            or int(headers[b"content-length"]) > MOST_UNREAD
        )

    async def start_next(self) -> bool:
        """Return whether another request may follow, and prepare the parser for it."""
        parser = self._connection.parser
        # Drop the rest of the body that the application has not read.
        while parser.their_state is h11.SEND_BODY:
            if parser.next_event() is h11.NEED_DATA:
                if parser.our_state is h11.DONE:
                    await self._drop_rest()
                break
        if parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
            return False  # noqa: ASYNC910 (the application waits)
        parser.start_next_cycle()
        return True  # noqa: ASYNC910 (the application waits)

    async def _drop_rest(self) -> None:
        """Wait for the rest of the body: the next request of the client comes after it."""
        with trio.move_on_after(HEAD_SECONDS):
            await self._connection.next_event()
            while self._connection.parser.their_state is h11.SEND_BODY:
                await self._connection.next_event()
