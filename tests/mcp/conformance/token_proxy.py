"""Adds the token of a server to each request: the suite's runner cannot send one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import trio

END = b"\r\n\r\n"
MOST_HEAD = 65_536


@asynccontextmanager
async def token_proxy(url: str, token: str) -> AsyncGenerator[str]:
    """Give the address at which a server can be reached without its token."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as connections:
        serve = partial(_pass_on, url=url, token=token)
        await connections.start(trio.serve_listeners, serve, listeners)
        yield f"http://127.0.0.1:{port}"
        connections.cancel_scope.cancel()


async def _pass_on(client: trio.SocketStream, *, url: str, token: str) -> None:
    """Pass one request on, and its answer back; the connection ends with it."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    async with client:
        head = b""
        while END not in head and len(head) < MOST_HEAD:
            received = await client.receive_some()
            if not received:
                return
            head += received
        lines, _, body = head.partition(END)
        first, *headers = lines.split(b"\r\n")
        kept = [it for it in headers if not it.lower().startswith(b"connection:")]
        kept += [f"Authorization: Bearer {token}".encode(), b"Connection: close"]
        server = await trio.open_tcp_stream(address.hostname, address.port)
        async with server, trio.open_nursery() as both:
            await server.send_all(b"\r\n".join([first, *kept]) + END + body)
            both.start_soon(_copy, server, client, both.cancel_scope)
            both.start_soon(_copy, client, server, both.cancel_scope)


async def _copy(
    source: trio.SocketStream, target: trio.SocketStream, both: trio.CancelScope
) -> None:
    try:
        async for chunk in source:
            await target.send_all(chunk)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    # Either side that hangs up ends the other: hanging up on a call cancels it.
    both.cancel()
