"""A WebSocket to a chat platform, on trio-websocket, whose TCP stream is always closed.

trio-websocket leaves the stream of a connection open that was lost without a closing handshake, and
logs the addresses that it connects to. So the stream is opened and closed here. The address may
hold a secret: no error and no log names it.
"""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection, wrap_client_stream

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.errors import ChatError

CONNECT_SECONDS: Final = 15
CLOSE_SECONDS: Final = 2
FRAME_SECONDS: Final = 0.05
"""How long the last frame may take."""
NORMAL: Final = 1000
LARGEST_MESSAGE: Final = 16_000_000
BROKEN_OFF: Final = 1006
"""The code of a connection that ended without one."""


class SocketLostError(ChatError):
    """The connection could not be opened, or is over."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(f"the connection was lost: {reason}")
        self.code = code
        """The code by which the platform has closed it; 0 if it did not."""


@asynccontextmanager
async def open_websocket(
    url: str, *, largest: int = LARGEST_MESSAGE
) -> AsyncGenerator[WebSocketConnection]:
    """Be connected to a URL, as long as the block lasts.

    Args:
        url: `ws://…` or `wss://…`.
        largest: the most characters of a message.

    Raises:
        SocketLostError: the connection could not be opened, or was lost in the block.
    """
    try:
        with raising_one_error():
            # Owns the task of the connection that reads.
            async with trio.open_nursery() as nursery:
                stream = await _open_stream(url)
                try:
                    connection = await _shake_hands(nursery, stream, url, largest)
                    try:
                        yield connection
                    finally:
                        await close_websocket(connection)  # noqa: ASYNC102 (shielded)
                finally:
                    await trio.aclose_forcefully(stream)
                    nursery.cancel_scope.cancel(reason="the connection is over")
    except ConnectionClosed as exc:
        reason = exc.reason
        if reason is None or reason.code == BROKEN_OFF:
            raise SocketLostError("it broke off") from None
        said = f"{reason.code} {reason.reason or ''}".strip()
        raise SocketLostError(said, reason.code) from None
    except HandshakeError as exc:
        raise SocketLostError(type(exc).__name__) from None


async def close_websocket(connection: WebSocketConnection, code: int = NORMAL) -> None:
    """Say farewell, and wait for the answer; not if we are cancelled, for then none is read."""
    is_cancelled = trio.current_effective_deadline() == -math.inf
    seconds = FRAME_SECONDS if is_cancelled else CLOSE_SECONDS
    with trio.move_on_after(seconds, shield=True):
        await connection.aclose(code)


async def _open_stream(url: str) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
    parts = urlsplit(url)
    is_secure = parts.scheme == "wss"
    host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            if is_secure:
                return await trio.open_ssl_over_tcp_stream(host, port, https_compatible=True)
            return await trio.open_tcp_stream(host, port)
    except (OSError, trio.TooSlowError) as exc:
        raise SocketLostError(type(exc).__name__) from None


async def _shake_hands(
    nursery: trio.Nursery,
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
    url: str,
    largest: int,
) -> WebSocketConnection:
    parts = urlsplit(url)
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        # A peer that hangs up before the handshake is over is not noticed otherwise.
        with trio.fail_after(CONNECT_SECONDS):
            return await wrap_client_stream(
                nursery, stream, parts.netloc, resource, max_message_size=largest
            )
    except trio.TooSlowError:
        raise SocketLostError("no handshake") from None
