"""Forwards a request to the server that writes its journal, and streams the answer back.

It calls only the addresses of writers that journals name. When a client hangs up, the proxy hangs
up there, too, so the work for the request is cancelled. Each request has its own connection: a kept
connection could end in the middle of a request, which then may or may not have had an effect.
"""

import platform
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx2
import msgspec
import trio
from starlette.types import Receive, Scope, Send

from orchestrator.ports.journals import Writer
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.audit import peer_of
from orchestrator.products.server.cluster.forwarded_header import HEADER, MOVED, sign
from orchestrator.products.server.console.sign_in import HEADER as PAGE_SECRET
from orchestrator.products.server.console.sign_in import is_page
from orchestrator.products.server.endpoint import OpenAnswer
from orchestrator.products.server.transport import sse
from orchestrator.products.server.transport.api_key import is_loopback, is_wildcard
from orchestrator.products.server.transport.errors import SOON, ErrorBody, HttpError

CONNECT_SECONDS: Final = 3
CLOSE_SECONDS: Final = 1
HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection"),
    }
)
"""The headers about one connection, and not about the request (RFC 9110, 7.6.1)."""
OWN_REQUEST: Final = frozenset({"host", "content-length", "expect", HEADER})
OF_PAGES: Final = frozenset({"cookie", PAGE_SECRET, "origin", "sec-fetch-site"})
"""The headers of the console's pages, which belong to the address of this server."""
OWN_ANSWER: Final = frozenset(
    {"date", "server", "x-request-id", "x-content-type-options", "cache-control"}
)
"""The headers of an answer that this server sets itself."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""The probes that notice a dead machine, which sends nothing more."""
BROKEN: Final = (httpx2.HTTPError, httpx2.StreamError, OSError)


class NotReachedError(Exception):
    """The request had no effect: the writer cannot be reached, or writes the journal no more."""


class Proxy:
    """Forwards requests. `open_proxy` makes one."""

    def __init__(
        self, opened: AsyncExitStack, secret: bytes, own_address: str, clock: Callable[[], float]
    ) -> None:
        self._opened = opened
        self._client: httpx2.AsyncClient | None = None
        self._secret = secret
        self._own_address = own_address
        self._clock = clock
        self._under_way: dict[trio.CancelScope, tuple[str, int]] = {}
        """The requests under way, with their journals and the epochs of the journals' writers."""

    async def forward(self, call: ApiCall, writer: Writer, *, journal: str) -> "ForwardedAnswer":
        """Send a request to the writer of its journal, and return when its answer begins."""
        address, epoch = writer.address, writer.epoch
        await trio.lowlevel.checkpoint()
        if is_address(address):
            require_reachable(writer)
        if not is_address(address) or address == self._own_address:
            raise NotReachedError(f"{address!r} is not the address of another server")
        url = url_at(address, target_of(call))
        client = await self._open_client()
        request = client.build_request(
            call.request.method, url, headers=self._headers(call, url), content=call.raw
        )
        scope = trio.CancelScope()
        self._under_way[scope] = (journal, epoch)
        answer: httpx2.Response | None = None
        try:
            with scope:
                await trio.lowlevel.checkpoint()
                answer = await client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise NotReachedError(str(exc)) from exc
        except BROKEN as exc:
            raise _writer_gone() from exc
        finally:
            del self._under_way[scope]
        if answer is None:
            raise _writer_gone()
        if MOVED in answer.headers:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await answer.aclose()
            raise NotReachedError("it has moved")
        return ForwardedAnswer(self, answer, journal, epoch)

    async def fetch(self, call: ApiCall, address: str) -> bytes | None:
        """Return another server's answer to the same request; None if it has none now."""
        if not is_address(address) or address == self._own_address:
            await trio.lowlevel.checkpoint()
            return None
        url = url_at(address, target_of(call))
        client = await self._open_client()
        with trio.move_on_after(CONNECT_SECONDS):
            await trio.lowlevel.checkpoint()
            try:
                answer = await client.request(
                    call.request.method,
                    url,
                    headers=self._headers(call, url),
                    content=call.raw or None,
                )
            except BROKEN:
                return None
            return answer.content if answer.status_code == 200 else None
        return None

    async def _open_client(self) -> httpx2.AsyncClient:
        """Return the client, which is made at the first request, because that takes a while."""
        await trio.lowlevel.checkpoint()
        if self._client is None:
            # The environment may name a proxy and its certificates, but servers are not behind it.
            transport = httpx2.AsyncHTTPTransport(
                verify=ssl.create_default_context(),
                trust_env=False,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
                socket_options=_socket_options(),
            )
            client = httpx2.AsyncClient(
                transport=transport,
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                trust_env=False,
                follow_redirects=False,
            )
            client.headers.clear()
            self._client = client
            await self._opened.enter_async_context(client)
        return self._client

    def track(self, scope: trio.CancelScope, journal: str, epoch: int) -> None:
        """Let `end_stale` cancel a scope, until `untrack`."""
        self._under_way[scope] = (journal, epoch)

    def untrack(self, scope: trio.CancelScope) -> None:
        self._under_way.pop(scope, None)

    def end_stale(self, epochs: Mapping[str, int]) -> None:
        """Cancel waits for former writers: they may be stopped. `epochs` has the present ones."""
        for scope, (journal, epoch) in self._under_way.items():
            if epochs.get(journal, epoch) != epoch:
                scope.cancel(reason="another server writes the journal by now")

    def _headers(self, call: ApiCall, url: httpx2.URL) -> list[tuple[str, str]]:
        headers = call.request.headers
        named = {it.strip().lower() for it in headers.get("connection", "").split(",")}
        dropped = HOP_BY_HOP | OWN_REQUEST | named | {"x-request-id"}
        id_ = call.request.state.request_id
        # The other server knows no sign-ins of this one.
        is_signed_in = is_page(headers)
        if is_signed_in:
            dropped |= OF_PAGES
        forwarded = sign(
            self._secret,
            peer=peer_of(call.request.scope) or "0.0.0.0",  # noqa: S104 (no address is known)
            method=call.request.method,
            target=url.raw_path.decode("ascii"),
            request=id_,
            now=self._clock(),
            key=call.key if is_signed_in else None,
        )
        return [
            *((name, value) for name, value in headers.items() if name not in dropped),
            ("host", url.netloc.decode("ascii")),
            ("x-request-id", id_),
            (HEADER, forwarded),
        ]


class ForwardedAnswer(OpenAnswer):
    """The answer of another server, passed on as it comes."""

    def __init__(self, proxy: Proxy, answer: httpx2.Response, journal: str, epoch: int) -> None:
        self._proxy = proxy
        self._answer = answer
        self._writer = (journal, epoch)
        self.media_type = answer.headers.get("content-type", "").partition(";")[0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer
        is_complete = False
        is_stream = self.media_type == sse.SSE_MEDIA_TYPE
        ended = trio.CancelScope()
        self._proxy.track(ended, *self._writer)
        try:
            with trio.CancelScope() as left:
                async with sse.cancelled_on_disconnect(scope, receive, left):
                    await send(
                        {
                            "type": "http.response.start",
                            "status": answer.status_code,
                            "headers": [
                                (name, value)
                                for name, value in answer.headers.raw
                                if name.lower().decode() not in HOP_BY_HOP | OWN_ANSWER
                            ],
                        }
                    )
                    if is_stream:
                        # The headers do not wait for the first event.
                        await send(_body(b"", more=True))
                    with ended:
                        try:
                            async with aclosing(answer.aiter_raw()) as chunks:
                                async for chunk in chunks:
                                    await send(_body(chunk, more=True))
                            is_complete = True
                        except BROKEN:
                            is_complete = False
                    if is_complete:
                        await send(_body(b"", more=False))
                    elif is_stream:
                        # A client that comes back continues with the next writer.
                        error = msgspec.json.encode(ErrorBody(_writer_gone().problem))
                        last = sse.encode_event(error, name="error")
                        await send(_body(last, more=False))
        finally:
            self._proxy.untrack(ended)
            await self.aclose()

    async def aclose(self) -> None:
        """Hang up on the other server."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._answer.aclose()


def _body(chunk: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


def target_of(call: ApiCall) -> bytes:
    """Return the path of a request with its query, as the client sent it."""
    scope = call.request.scope
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")


def url_at(address: str, target: bytes) -> httpx2.URL:
    """Return the URL of a client's target at a server, or refuse one that leads elsewhere."""
    there = httpx2.URL(address)
    try:
        url = there.copy_with(raw_path=target)
    except (httpx2.InvalidURL, ValueError) as exc:
        raise _wrong_target() from exc
    is_there = (url.scheme, url.netloc, url.userinfo) == (there.scheme, there.netloc, b"")
    if not target.startswith(b"/") or not is_there:
        raise _wrong_target()
    return url


def _wrong_target() -> HttpError:
    return HttpError(400, "the target of the request is not a path", code="invalid_target")


def is_address(address: str) -> bool:
    """Return whether a text is the address of a server and has no other parts."""
    try:
        parts = urlsplit(address)
        is_right = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return (
        is_right
        and parts.scheme in {"http", "https"}
        and not parts.username
        and not parts.password
        and parts.path in {"", "/"}
        and not parts.query
        and not parts.fragment
        and address.isprintable()
    )


def is_own_machine(address: str) -> bool:
    """Return whether an address means, on every machine, that machine itself."""
    host = (urlsplit(address).hostname or "").rstrip(".")
    host = host.removeprefix("::ffff:")
    return is_loopback(host) or is_wildcard(host) or host.endswith(".localhost")


def may_reach(address: str, network: str) -> bool:
    """Return whether an address leads from here to a server on the machine named `network`."""
    return network == platform.node() or not is_own_machine(address)


def require_reachable(writer: Writer) -> None:
    """Refuse an address of another machine that leads here: the client's key would go astray."""
    if may_reach(writer.address, writer.network):
        return
    if not writer.network:
        raise NotReachedError("the writer is not a server any more, or not yet")
    raise HttpError(
        503,
        f"the server on {writer.host} writes this journal, and gives its address as"
        f" {writer.address}, which no other machine reaches: start that server with --address",
        code="writer_unreachable",
    )


def _writer_gone() -> HttpError:
    return HttpError(
        502,
        "the server that writes this journal is gone, or lost it, and may have carried out the"
        " request: check that first, then send it again, best with an Idempotency-Key; resume a"
        " stream with the number of the last event",
        code="writer_gone",
        headers=SOON,
    )


def _socket_options() -> list[tuple[int, int, int]]:
    # Not every system has all of them.
    timers = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in KEEPALIVE.items()
        if hasattr(socket, name)
    ]
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        *timers,
    ]


@asynccontextmanager
async def open_proxy(
    secret: bytes, own_address: str, clock: Callable[[], float]
) -> AsyncGenerator[Proxy]:
    """Forward requests as long as the block lasts; others reach this server at `own_address`."""
    async with AsyncExitStack() as opened:
        yield Proxy(opened, secret, own_address, clock)
