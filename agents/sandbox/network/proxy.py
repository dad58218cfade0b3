"""The HTTP proxy through which a sandboxed command reaches the hosts that are named for it.

It speaks CONNECT, and plain HTTP with an absolute target. A request is judged by the name in its
target, before the name is looked up; the name is looked up once, and the address that was judged is
the one that is connected to. A connection carries one request, so there is no second one that the
host and we could read differently.

Everything is bounded: heads, connections, and the time that each step may take. The proxy has no
life of its own: it is served in the nursery of a command, and ends with it.
"""

import base64
import hmac
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

import attrs
import h11
import trio

from orchestrator.agents.nurseries import raising_one_error
from orchestrator.agents.sandbox.network import allowed_hosts
from orchestrator.agents.sandbox.network.own_addresses import Address
from orchestrator.agents.sandbox.network.proxied import note_proxied
from orchestrator.agents.sandbox.network.requests import NetworkRequest

MAX_CONNECTIONS: Final = 64
"""How many are served at once. Further ones wait in the backlog of the listener."""
MAX_HEAD: Final = 32_768
"""How many bytes the head of a request or of a response may have."""
HEAD_SECONDS: Final = 15
CONNECT_SECONDS: Final = 20
"""For the lookup of a name and all connections that are tried."""
IDLE_SECONDS: Final = 300
"""How long a connection may be silent in both directions."""
LINGER_SECONDS: Final = 1
"""How long a client may go on sending after it was refused."""
MAX_ADDRESSES: Final = 4
"""How many addresses of a host are tried."""
ENTRIES_SHOWN: Final = 20
"""How many allowed hosts a refusal names."""
MAX_LOOKUPS: Final = 4
"""The number of concurrent name lookups. Each takes one of the forty threads of all tasks."""
CHUNK: Final = 65_536
USER: Final = "sandbox"
"""The user name in the URL of a proxy that has a password."""

# Of one connection, and not of the message.
_HOP_BY_HOP: Final = frozenset(
    [
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    ]
)
_ABSOLUTE: Final = re.compile(
    rb"http://(?P<authority>[^/?#@]+)(?P<path>[^#]*)(?:#.*)?", re.IGNORECASE
)
_Headers = Iterable[tuple[bytes, bytes]]


class _Refused(Exception):  # noqa: N818 (an answer of ours, and no error)
    """We answer the request ourselves."""

    def __init__(
        self, status: HTTPStatus, text: str, *, reason: str = "", headers: _Headers = ()
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason or status.phrase
        """Of CONNECT, many clients show nothing else."""
        self.headers = headers


@attrs.frozen
class _Target:
    """The target and the form of a request."""

    host: str
    port: int
    path: bytes
    """Empty for CONNECT."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class NetworkProxy:
    """Serves the requests of one command, and calls `on_request` with each when it is over.

    A client sends the password with the user `sandbox`; it is needed where others than the command
    can reach the listener.
    """

    def __init__(
        self,
        allowed: allowed_hosts.AllowedHosts,
        *,
        on_request: Callable[[NetworkRequest], None],
        password: str | None = None,
    ) -> None:
        self._allowed = allowed
        self._on_request = on_request
        self._lookups = trio.CapacityLimiter(MAX_LOOKUPS)
        self._credentials = None
        if password is not None:
            self._credentials = base64.b64encode(f"{USER}:{password}".encode())

    async def serve(self, listener: trio.SocketListener) -> None:
        """Serve connections until this is cancelled, which ends them all."""
        bounded = _BoundedListener(listener, MAX_CONNECTIONS)

        async def serve_one(stream: trio.SocketStream) -> None:
            try:
                await self._serve_connection(stream)
            finally:
                bounded.release()

        with raising_one_error():
            await trio.serve_listeners(serve_one, [bounded])

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        client = _Peer(stream, h11.SERVER)
        async with stream:
            try:
                await self._serve_request(client)
            except _Refused as refused:
                await _refuse(client, refused)
            except h11.ProtocolError as exc:
                await _refuse(client, _Refused(HTTPStatus.BAD_REQUEST, f"this is no HTTP: {exc}"))
            except trio.BrokenResourceError:
                return  # the client or the host has gone

    async def _serve_request(self, client: "_Peer") -> None:
        request = None
        with trio.move_on_after(HEAD_SECONDS):
            request = await client.next_event()
        if not isinstance(request, h11.Request):
            return
        client.asks_for_head = request.method == b"HEAD"
        self._authenticate(request)
        target = _target_of(request)
        allowed = False
        origin = None
        try:
            with trio.move_on_after(CONNECT_SECONDS):
                addresses = await self._judge(target)
                allowed = True
                origin = _Peer(await _connect(addresses, target), h11.CLIENT)
            if origin is None:
                raise _Refused(
                    HTTPStatus.GATEWAY_TIMEOUT,
                    f"{target} did not answer in {CONNECT_SECONDS} seconds",
                )
            with note_proxied(origin.stream):
                await _exchange(request, target, client, origin)
        finally:
            self._on_request(
                NetworkRequest(
                    target=str(target),
                    allowed=allowed,
                    sent=0 if origin is None else origin.sent,
                    received=0 if origin is None else origin.received,
                )
            )

    def _authenticate(self, request: h11.Request) -> None:
        if self._credentials is None:
            return
        given = dict(request.headers).get(b"proxy-authorization", b"")
        scheme, _, credentials = given.partition(b" ")
        if scheme.lower() != b"basic" or not hmac.compare_digest(
            credentials.strip(), self._credentials
        ):
            raise _Refused(
                HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
                "this proxy serves one command; its URL, with a password, is in the variable"
                " HTTPS_PROXY of that command",
                headers=[(b"Proxy-Authenticate", b'Basic realm="sandbox"')],
            )

    async def _judge(self, target: _Target) -> list[Address]:
        """Return the addresses at which a host may be reached."""
        rules = self._allowed.matching(target.host, target.port)
        if not rules:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                self._not_named(target),
                reason=f"{target} is not in Sandbox(network=...)",
            )
        async with self._lookups:
            found = await _look_up(target)
        permitted = [address for address in found if any(rule.permits(address) for rule in rules)]
        if not permitted:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"{target.host} leads to {found[0]}, which is not an address of the internet, but"
                " of this machine or its network. The agent may be allowed to reach it by"
                f' Sandbox(network=[..., "{target}"])',
                reason=f"{target} leads to a private address",
            )
        return permitted[:MAX_ADDRESSES]

    def _not_named(self, target: _Target) -> str:
        entries = self._allowed.entries()
        shown = ", ".join(entries[:ENTRIES_SHOWN]) or "none"
        if more := len(entries[ENTRIES_SHOWN:]):
            shown += f" and {more} more"
        is_web = target.port in {80, 443} and allowed_hosts.as_address(target.host) is None
        missing = target.host if is_web else str(target)
        return (
            f"{target} is not among the hosts that commands of this agent may reach ({shown})."
            f' The agent may be allowed to by Sandbox(network=[..., "{missing}"])'
        )


class _BoundedListener(trio.abc.Listener[trio.SocketStream]):
    """A listener that accepts no more connections than may be open at once."""

    def __init__(self, listener: trio.SocketListener, most: int) -> None:
        self._listener = listener
        self._free = trio.Semaphore(most)

    async def accept(self) -> trio.SocketStream:
        await self._free.acquire()
        try:
            return await self._listener.accept()
        except BaseException:
            self._free.release()
            raise

    def release(self) -> None:
        """Count a connection as closed."""
        self._free.release()

    async def aclose(self) -> None:
        await self._listener.aclose()


class _Peer:
    """One end of an exchange: the command, or the host."""

    def __init__(self, stream: trio.SocketStream, role: type[h11.CLIENT | h11.SERVER]) -> None:
        self.stream = stream
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.sent = 0
        self.received = 0
        self.asks_for_head = False
        """Whether the answer has no body."""
        self.idle = trio.CancelScope()
        """Its deadline moves with every byte."""

    async def receive(self) -> bytes:
        """Return some bytes; none at the end."""
        chunk = await self.stream.receive_some(CHUNK)
        self.received += len(chunk)
        self._move_deadline()
        return bytes(chunk)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)
        self.sent += len(data)
        self._move_deadline()

    async def next_event(self) -> h11.Event | None:
        """Return the next part of a message; None if nothing follows on this connection."""
        await trio.lowlevel.checkpoint()
        while (event := self.http.next_event()) is h11.NEED_DATA:
            if self.http.they_are_waiting_for_100_continue:
                await self.send_event(
                    h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
                )
            self.http.receive_data(await self.receive())
        return event if isinstance(event, h11.Event) else None

    async def send_event(self, event: h11.Event) -> None:
        """Send a part of a message."""
        await self.send(self.http.send(event) or b"")

    def _move_deadline(self) -> None:
        self.idle.deadline = trio.current_time() + IDLE_SECONDS


def _target_of(request: h11.Request) -> _Target:
    """Return the target of a request; raise `_Refused` if it has none, or two readings."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise _Refused(HTTPStatus.BAD_REQUEST, "the body of this request has two lengths")
    if request.method == b"CONNECT":
        authority, path = request.target, b""
    elif found := _ABSOLUTE.fullmatch(request.target):
        authority, path = found["authority"], found["path"]
        if not path.startswith(b"/"):
            is_about_host = request.method == b"OPTIONS" and not path
            path = b"*" if is_about_host else b"/" + path
    else:
        raise _Refused(
            HTTPStatus.BAD_REQUEST,
            "this is a proxy: it takes CONNECT host:port, and requests for http://host/path",
        )
    try:
        name, port = allowed_hosts.split_port(authority.decode("ascii"))
        host = allowed_hosts.normal_host(name)
    except ValueError as exc:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"the target has no host: {exc}") from exc
    if port is None and not path:
        raise _Refused(HTTPStatus.BAD_REQUEST, "CONNECT takes host:port")
    return _Target(host, 80 if port is None else port, path)


async def _look_up(target: _Target) -> list[Address]:
    try:
        found = await trio.socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise _Refused(HTTPStatus.BAD_GATEWAY, f"{target.host} cannot be looked up: {exc}") from exc
    return [ip_address(place[0]) for *_, place in found]


async def _connect(addresses: Sequence[Address], target: _Target) -> trio.SocketStream:
    problem: OSError | None = None
    for address in addresses:
        try:
            # An address, which is not looked up again.
            return await trio.open_tcp_stream(str(address), target.port)
        except OSError as exc:
            problem = exc
    raise _Refused(
        HTTPStatus.BAD_GATEWAY, f"{target} cannot be connected to: {problem}"
    ) from problem


async def _exchange(request: h11.Request, target: _Target, client: _Peer, origin: _Peer) -> None:
    """Let a client and a host talk until both are done, or silent for too long."""
    async with origin.stream:
        with trio.move_on_after(IDLE_SECONDS) as client.idle:
            origin.idle = client.idle
            if request.method == b"CONNECT":
                await _tunnel(client, origin)
            else:
                await _forward(request, target, client, origin)


async def _tunnel(client: _Peer, origin: _Peer) -> None:
    if not isinstance(await client.next_event(), h11.EndOfMessage):
        raise _Refused(HTTPStatus.BAD_REQUEST, "CONNECT has no body")
    await client.send_event(
        h11.Response(status_code=HTTPStatus.OK, reason=b"Connected", headers=[])
    )
    early, _ = client.http.trailing_data
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_copy, client, origin, early)
            nursery.start_soon(_copy, origin, client)


async def _copy(source: _Peer, sink: _Peer, chunk: bytes = b"") -> None:
    """Copy all that comes from one side to the other, and then its end."""
    if chunk:
        await sink.send(chunk)
    while chunk := await source.receive():
        await sink.send(chunk)
    await sink.stream.send_eof()


async def _forward(request: h11.Request, target: _Target, client: _Peer, origin: _Peer) -> None:
    # The proxy sends the `Host` that was judged, and itself answers a client that expects
    # 100-continue.
    kept = [
        (name, value)
        for name, value in _end_to_end(request)
        if name.lower() not in {b"host", b"expect"}
    ]
    host = str(target).removesuffix(":80")
    await origin.send_event(
        h11.Request(
            method=request.method,
            target=target.path,
            headers=[(b"Host", host.encode()), *kept, (b"Connection", b"close")],
        )
    )
    with raising_one_error():
        # The host may answer before it has read all, and need not read the rest.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_body, client, origin)
            await _return_response(client, origin, target)
            nursery.cancel_scope.cancel()


async def _send_body(client: _Peer, origin: _Peer) -> None:
    while True:
        event = await client.next_event()
        match event:
            case h11.Data():
                part: h11.Event = h11.Data(data=event.data)
            case h11.EndOfMessage():
                part = h11.EndOfMessage()
            case _:
                return
        try:
            await origin.send_event(part)
        except trio.BrokenResourceError:
            return  # the host reads no more; it may still answer
        if isinstance(part, h11.EndOfMessage):
            return


async def _return_response(client: _Peer, origin: _Peer, target: _Target) -> None:
    while True:
        try:
            event = await origin.next_event()
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as exc:
            raise _Refused(
                HTTPStatus.BAD_GATEWAY, f"{target} did not answer in HTTP: {exc}"
            ) from exc
        match event:
            case h11.Response():
                await client.send_event(
                    h11.Response(
                        status_code=event.status_code,
                        reason=event.reason,
                        headers=[*_end_to_end(event), (b"Connection", b"close")],
                    )
                )
            case h11.Data():
                await client.send_event(h11.Data(data=event.data))
            case h11.EndOfMessage():
                await client.send_event(h11.EndOfMessage())
                return
            case h11.InformationalResponse():
                pass
            case _:
                raise _Refused(HTTPStatus.BAD_GATEWAY, f"{target} closed without an answer")


def _end_to_end(message: h11.Request | h11.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers for the other end; a body without a length is chunked anew."""
    named = {
        option.strip().lower()
        for name, value in message.headers
        if name == b"connection"
        for option in value.split(b",")
    }
    is_chunked = any(name == b"transfer-encoding" for name, _ in message.headers)
    # A header that frames a body is never an option of a connection.
    dropped = _HOP_BY_HOP | (named - {b"content-length"})
    if is_chunked:
        dropped |= {b"content-length"}
    # As they were written: some hosts mind.
    raw = message.headers.raw_items()
    kept = [(name, value) for name, value in raw if name.lower() not in dropped]
    return [*kept, (b"Transfer-Encoding", b"chunked")] if is_chunked else kept


async def _refuse(client: _Peer, refused: _Refused) -> None:
    """Answer a request ourselves, unless an answer has begun."""
    await trio.lowlevel.checkpoint()
    if client.http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
        return
    body = f"{refused.text}\n".encode()
    try:
        await client.send_event(
            h11.Response(
                status_code=refused.status,
                reason=refused.reason.encode("ascii", "replace"),
                headers=[
                    (b"Content-Type", b"text/plain; charset=utf-8"),
                    (b"Content-Length", str(len(body)).encode()),
                    (b"Connection", b"close"),
                    *refused.headers,
                ],
            )
        )
        if not client.asks_for_head:
            await client.send_event(h11.Data(data=body))
        await client.send_event(h11.EndOfMessage())
        # Closed at once, a client that still sends would lose the answer.
        await client.stream.send_eof()
        with trio.move_on_after(LINGER_SECONDS):
            while await client.receive():
                pass
    except trio.BrokenResourceError:
        return
