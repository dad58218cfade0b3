"""ASGI middleware that checks each request: its host, key, media type and body size.

The host is checked first: a foreign web page must not reach the server under its own host name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import Any, Final, overload

import attrs
import trio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.products.server.cluster import forwarded_header
from orchestrator.products.server.console.sign_in import SignIns, require_own_page
from orchestrator.products.server.keys.key import Key
from orchestrator.products.server.keys.store import Access, KeyStore
from orchestrator.products.server.keys.wrong_keys import WrongKeys
from orchestrator.products.server.transport.errors import MESSAGES, HttpError
from orchestrator.products.server.transport.peers import peer_of
from orchestrator.products.server.transport.request_body import too_large

WRITES: Final = frozenset({"POST", "PUT", "PATCH"})
LONGEST_ID: Final = 128
ADDED: Final = frozenset(
    {b"x-request-id", b"request-id", b"x-content-type-options", b"cache-control"}
)
"""The headers of every response: the server's values replace the application's."""
ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
VERSION: Final = "anthropic-version"
"""The header of every request of Anthropic's clients."""
HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:@/\s]+)(?::[0-9]*)?")


@attrs.frozen(kw_only=True)
class AccessCheck:
    """Passes allowed requests to an application, and gives each request an id."""

    app: ASGIApp
    keys: KeyStore
    take_request: Callable[[Key], None]
    """Counts a request of a key, or raises if the key is over its limit."""
    hosts: frozenset[str] | None
    """The host names that the server answers to; None allows any."""
    body_limit: int
    is_public: Callable[[str], bool]
    """Returns whether a path needs no key."""
    shutdown: trio.Event
    """Set when the server shuts down."""
    note_refusal: Callable[[Scope, int], None]
    """Counts a refused request by its client and status."""
    sign_ins: SignIns
    """The people who are signed in to the console."""
    secret: bytes | None = None
    """Other servers sign the requests that they forward with it."""
    wrong_keys: WrongKeys = attrs.Factory(WrongKeys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = RequestHeaders(scope)
        first = headers.first
        id_ = _request_id(first.get("x-request-id", ""))
        state = scope.setdefault("state", {})
        state["request_id"] = id_
        state["shutdown"] = self.shutdown
        state["headers"] = headers
        is_anthropic = VERSION in first or scope["path"].startswith(MESSAGES)
        if is_anthropic:
            state["is_anthropic"] = True

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [it for it in message["headers"] if it[0] not in ADDED]
                id_header = id_.encode("latin-1")
                message["headers"] = [*own, (b"x-request-id", id_header), *ALWAYS]
                if is_anthropic:
                    message["headers"].append((b"request-id", id_header))
            await send(message)

        try:
            try:
                self._admit(scope, headers, id_)
            except HttpError as exc:
                self.note_refusal(scope, exc.status)
                await exc.response()(scope, receive, send_with_id)
            else:
                await self.app(scope, receive, send_with_id)
        finally:
            if (access := state.get("access")) is not None:
                self.keys.end_access(access)

    def _admit(self, scope: Scope, headers: "RequestHeaders", request: str) -> None:
        """Set the access of a request, or refuse the request."""
        if forwarded_header.HEADER in headers.first:
            self._note_forwarded(scope, headers[forwarded_header.HEADER], request)
        access = scope["state"]["access"] = self._check(scope, headers)
        if access is not None and not scope["state"].get("is_forwarded"):
            self.take_request(access.key)
        self._check_body(scope["method"], headers.first)

    def _note_forwarded(self, scope: Scope, header: str, request: str) -> None:
        """Take the client's address from another server of ours, and from no other sender."""
        query = scope.get("query_string", b"")
        target = (scope.get("raw_path") or scope["path"].encode()) + (
            b"?" + query if query else b""
        )
        try:
            forwarded = forwarded_header.read_forwarded(
                self.secret,
                header,
                method=scope["method"],
                target=target.decode("ascii", "replace"),
                request=request,
                now=self.keys.now(),
            )
        except forwarded_header.StaleHeaderError as exc:
            # Do not treat it as a client's request: it would be forwarded again and again.
            raise HttpError(
                503,
                "the clock of the server that forwards this request differs from this one: keep"
                f" the difference below {forwarded_header.ACCEPTED_SECONDS} seconds",
                code="clocks_differ",
            ) from exc
        if forwarded is not None:
            scope["state"]["is_forwarded"] = True
            scope["state"]["forwarded_key"] = forwarded.key
            # That server has counted each of its clients, which share its address here.
            if (counted := scope["state"].get("connection")) is not None:
                counted.release()
            scope["client"] = (forwarded.peer, 0)

    def _check(self, scope: Scope, headers: "RequestHeaders") -> Access | None:
        """Return the access of a request; a request to a public path has none."""
        # Routes match the decoded path: %2Fv1 would pass, and become part of the host in a URL.
        if not (scope.get("raw_path") or scope["path"].encode()).startswith(b"/"):
            raise HttpError(400, "the target of a request must begin with /", code="invalid_target")
        first = headers.first
        host = first.get("host", "")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise HttpError(
                421,
                f"this server does not answer to the host {_name_of(host)!r}; start it with"
                " --allowed-host if it should",
                code="wrong_host",
            )
        if self.is_public(scope["path"]):
            return None
        token = self.sign_ins.token_in(first)
        if token is not None and _api_key_in(first) is None:
            found = self.sign_ins.find(token)
            if found is not None:
                require_own_page(scope["method"], headers)
                latest = partial(self.sign_ins.ends_at, found.cookie_id)
                return self.keys.begin_access(found.key, found.token_id, latest=latest)
        if (key := scope["state"].get("forwarded_key")) is not None:
            # That server ends the request when the sign-in ends.
            return self.keys.begin_access(key, "")
        return self._begin_access(scope, first)

    def _begin_access(self, scope: Scope, headers: Mapping[str, str]) -> Access:
        token = _api_key_in(headers)
        found = self.keys.find(token or "")
        if found is not None:
            return self.keys.begin_access(*found)
        if self.keys.problem:
            raise HttpError(
                503,
                "the keys of this server cannot be read; its log says why",
                code="keys_unreadable",
            )
        is_sent = token is not None
        if is_sent:
            self._slow_down(scope)
        raise HttpError(
            401,
            f"{'the token is wrong' if is_sent else 'a token is needed'}: send the header"
            " Authorization: Bearer TOKEN, or x-api-key: TOKEN, with a token from the owner of this"
            " server",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )

    def _slow_down(self, scope: Scope) -> None:
        """Count a wrong key, and make a peer that sent many wait."""
        client = scope.get("client")
        peer = peer_of(client[0]) if client else ""
        if seconds := self.wrong_keys.note(peer, self.keys.now()):
            raise HttpError(
                429,
                f"too many wrong tokens came from {peer}; wait, then send a right one",
                type="authentication_error",
                code="too_many_wrong_keys",
                # Each further guess costs a connection.
                headers={"retry-after": str(int(seconds)), "connection": "close"},
            )

    def _check_body(self, method: str, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "0")
        is_sent = length != "0" or "transfer-encoding" in headers
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if is_sent and encoding != "identity":
            raise HttpError(
                415,
                f"the body is encoded ({encoding[:40]!r}); send it without an encoding and without"
                " the header Content-Encoding",
                code="unsupported_content_encoding",
                headers={"accept-encoding": "identity"},
            )
        kind, _, _ = headers.get("content-type", "").partition(";")
        if method in WRITES and is_sent and kind.strip().lower() != "application/json":
            raise HttpError(
                415,
                f"the media type of the body is {kind.strip()!r}; send JSON, with the"
                " header Content-Type: application/json",
                code="unsupported_media_type",
            )
        if length.isdecimal() and int(length) > self.body_limit:
            raise too_large(self.body_limit)


def _api_key_in(headers: Mapping[str, str]) -> str | None:
    """Return the token that a request sends; None if it sends none."""
    sent = headers.get("authorization")
    if sent is None:
        return headers.get("x-api-key")
    scheme, _, token = sent.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _request_id(sent: str) -> str:
    is_valid = 0 < len(sent) <= LONGEST_ID and sent.isascii() and sent.isprintable()
    return sent if is_valid else f"req_{token_hex(12)}"


def _name_of(host: str) -> str:
    """Return a host without its port, in lower case; an invalid host is returned unchanged."""
    found = HOST.fullmatch(host.strip().lower())
    return found["name"] if found else host


def accepted_hosts(bound: Iterable[str], allowed: Iterable[str]) -> frozenset[str] | None:
    """Return the host names that a server answers to, from its addresses and its options."""
    local = {"localhost", "127.0.0.1", "[::1]"}
    named = {name.lower() for name in allowed}
    if "*" in named:
        return None
    return frozenset({*local, *named, *(_bracketed(host) for host in bound)})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


class RequestHeaders(Headers):
    """Immutable headers, found by name without a search; the first one of a name wins."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        # All names and values are decoded in one call: clients of OpenAI send twenty headers.
        texts = b"\n".join(chain.from_iterable(self._list)).decode("latin-1").split("\n")
        # A dict keeps the last value of a name: reversed, that is the first header.
        self.first = dict(zip(texts[-2::-2], texts[::-2], strict=False))
        """The first value of each name, which is in lower case."""

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str) -> str: ...
    @overload
    def get(self, key: str, /, default: Any) -> Any: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        return self.first.get(key.lower(), default)

    def __getitem__(self, key: str) -> str:
        return self.first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self.first
