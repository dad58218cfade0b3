"""A person logs in to a server, in a browser. The login is stored when the server accepts it."""

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from mcp import Client
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.delegation import printable
from orchestrator.ports.errors import LoginError
from orchestrator.products.mcp.client.connection import describe
from orchestrator.products.mcp.client.http import open_http
from orchestrator.products.mcp.client.login.authorization import Authorization
from orchestrator.products.mcp.client.login.callback import HOST, open_callback
from orchestrator.products.mcp.client.login.file import (
    Login,
    address_of,
    changed_logins,
    read_logins,
)

PERSON_SECONDS: Final = 300.0
"""How long a person may take."""


@attrs.frozen(kw_only=True)
class LoginRequest:
    """The server of a login, and the client that logs in."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Sent with every request to the server."""
    scope: str = ""
    """The scopes besides those that the server names."""
    port: int = 0
    """Where the browser comes back to; 0 is any."""
    client_id: str = ""
    """As whom the authorization server knows us; empty registers us."""
    client_secret: str = attrs.field(default="", repr=False)
    client_metadata_url: str | None = None
    """Where the authorization server may read who we are."""


async def log_in(
    request: LoginRequest,
    file: Path,
    *,
    show_link: Callable[[str], Awaitable[None]],
    clock: Callable[[], float] = time.time,
) -> Login | None:
    """Let a person log in, store the login, and return it; None if the server wants none.

    `show_link` is called with the page on which to log in, and returns at once. Raise `LoginError`
    if it has not worked; the login that was stored before stays.
    """
    known = read_logins(file).get(address_of(request.url))
    registered = None if known is None else known.client
    port = request.port or _port_of(registered)

    async def show(link: str) -> None:
        callback.expect(link)
        await show_link(link)

    async with open_callback(port, or_another=not request.port) as callback:
        client: dict[str, Any] | None
        if request.client_id:
            client = _client(request, callback.url)
        else:
            # With another address to come back to, we are registered anew.
            client = registered if callback.url in _redirects(registered) else None
        flow = Authorization(
            request.url,
            Login(url=address_of(request.url), client=client),
            redirect_url=callback.url,
            show_link=show,
            wait_for_code=callback.wait,
            scope=request.scope,
            client_metadata_url=request.client_metadata_url,
        )
        await _connect(request, flow)
    if flow.context.current_tokens is None:
        return None
    login = flow.login(clock())
    with changed_logins(file) as logins:
        logins[login.url] = login
    return login


async def _connect(request: LoginRequest, flow: Authorization) -> None:
    """Make the first request, which the server answers by sending us to a person."""
    try:
        with trio.fail_after(PERSON_SECONDS), _unlogged():
            async with Client(open_http(request.url, request.headers, flow)) as client:
                await client.list_tools()
    except trio.TooSlowError as exc:
        raise LoginError(f"there was no login within {PERSON_SECONDS / 60:g} minutes") from exc
    except (Exception, BaseExceptionGroup) as exc:  # (a bulkhead: two servers are foreign code)
        redactor = Redactor(flow.login(0).secrets)
        raise LoginError(printable(redactor.redact(describe(exc)))) from exc


@contextmanager
def _unlogged() -> Generator[None]:
    """Keep Python from printing the log of the SDK: we print a sentence without secrets."""
    handler, log = logging.NullHandler(), logging.getLogger("mcp")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _redirects(client: dict[str, Any] | None) -> list[str]:
    return [str(it) for it in (client or {}).get("redirect_uris") or ()]


def _port_of(client: dict[str, Any] | None) -> int:
    """Return the port of the last browser callback, or 0."""
    for redirect in _redirects(client):
        parts = urlsplit(redirect)
        if parts.hostname == HOST and parts.port:
            return parts.port
    return 0


def _client(request: LoginRequest, redirect: str) -> dict[str, Any]:
    method = "client_secret_basic" if request.client_secret else "none"
    given = OAuthClientInformationFull(
        client_id=request.client_id,
        client_secret=request.client_secret or None,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method=method,
    )
    return given.model_dump(mode="json", exclude_none=True)
