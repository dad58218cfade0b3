"""ASGI middleware that checks each request: its host, token, media type and body size.

The host is checked first: a foreign web page must not reach the server under its own host name.
"""

import hmac
import re
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Final

import attrs
import trio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.server.operation import too_large
from orchestrator.server.transport.errors import HttpError

WRITES: Final = frozenset({"POST", "PUT", "PATCH"})
LONGEST_ID: Final = 128
HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:@/\s]+)(?::[0-9]*)?")


@attrs.frozen(kw_only=True)
class AccessCheck:
    """Passes allowed requests on to an application, and gives each an id."""

    app: ASGIApp
    token: str
    hosts: frozenset[str] | None
    """The host names that the server answers to; None is any."""
    body_limit: int
    is_public: Callable[[str], bool]
    """Tells whether a path needs no token."""
    shutdown: trio.Event
    """Set when the server shuts down."""
    count_refusal: Callable[[int], None]
    """Counts a refused request, by status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        id_ = _request_id(headers.get("x-request-id", ""))
        scope.setdefault("state", {}).update(request_id=id_, shutdown=self.shutdown)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                added["x-request-id"] = id_
                added["x-content-type-options"] = "nosniff"
                added["cache-control"] = "no-store"
            await send(message)

        try:
            self._check(scope, headers)
        except HttpError as exc:
            self.count_refusal(exc.status)
            await exc.response()(scope, receive, send_with_id)
        else:
            await self.app(scope, receive, send_with_id)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise HttpError(
                421,
                f"this server does not answer to the host {_name_of(host)!r}; start it with"
                " --allowed-host if it should",
                code="wrong_host",
            )
        if not self.is_public(scope["path"]) and not self._has_token(headers):
            problem = (
                "the token is wrong"
                if "authorization" in headers
                else "a token is needed"
            )
            raise HttpError(
                401,
                f"{problem}: send the header Authorization: Bearer TOKEN, with the one"
                " that the server was started with",
                type="authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        self._check_body(scope["method"], headers)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip().encode(errors="replace")
        is_right = hmac.compare_digest(sent, self.token.encode())
        return is_right and scheme.lower() == "bearer"

    def _check_body(self, method: str, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        is_sent = length != "0" or "transfer-encoding" in headers
        kind, _, _ = headers.get("content-type", "").partition(";")
        if method in WRITES and is_sent and kind.strip().lower() != "application/json":
            raise HttpError(
                415,
                f"the body is {kind.strip() or 'of no kind'!r}; send JSON, with the header"
                " Content-Type: application/json",
                code="unsupported_media_type",
            )
        if length.isdecimal() and int(length) > self.body_limit:
            raise too_large(self.body_limit)


def _request_id(sent: str) -> str:
    is_valid = 0 < len(sent) <= LONGEST_ID and sent.isascii() and sent.isprintable()
    return sent if is_valid else f"req_{token_hex(12)}"


def _name_of(host: str) -> str:
    """Return a host without its port, in lower case; an invalid one as it is."""
    found = HOST.fullmatch(host.strip().lower())
    return found["name"] if found else host


def accepted_hosts(
    bound: Iterable[str], allowed: Iterable[str]
) -> frozenset[str] | None:
    """Return the host names that a server answers to, from its addresses and the options."""
    local = {"localhost", "127.0.0.1", "[::1]"}
    named = {name.lower() for name in allowed}
    if "*" in named:
        return None
    return frozenset({*local, *named, *(_bracketed(host) for host in bound)})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
