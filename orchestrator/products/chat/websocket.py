"""A WebSocket to a chat platform, on trio-websocket, whose TCP stream is always closed.

trio-websocket leaves the stream open if a connection is lost without a closing handshake, and it
logs the addresses that it connects to. So this module opens and closes the stream. The address may
contain a secret: no error and no log contains it.
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
"""The seconds that the last frame may take."""
NORMAL: Final = 1000
LARGEST_MESSAGE: Final = 16_000_000
BROKEN_OFF: Final = 1006
"""The code of a connection that ended without a code."""


class SocketLostError(ChatError):
    """The connection could not be opened, or has ended."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(f"the connection was lost: {reason}")
        self.code = code
        """The platform's closing code; 0 if it did not close the connection."""


@asynccontextmanager
async def open_websocket(
    url: str, *, largest: int = LARGEST_MESSAGE
) -> AsyncGenerator[WebSocketConnection]:
    """Connect to a URL for the block; a message has at most `largest` characters.

    Raise `SocketLostError` if the connection could not be opened, or was lost in the block.
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
    """Send a close frame, and wait for the answer unless this is cancelled."""
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
        # Otherwise a peer that hangs up during the handshake would not be noticed.
        with trio.fail_after(CONNECT_SECONDS):
            return await wrap_client_stream(
                nursery, stream, parts.netloc, resource, max_message_size=largest
            )
    except trio.TooSlowError:
        raise SocketLostError("no handshake") from None
