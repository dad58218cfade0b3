"""Socket Mode: Slack's events over a WebSocket that we open, so that no address of ours is public.

An envelope is acknowledged when what it holds was heard. Slack refreshes a connection every few
hours and says so: the next one is opened while the old one still delivers. One that is lost, or
answers no ping, is opened again, later and later.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio
from trio_websocket import WebSocketConnection

from agents import raising_one_error
from orchestrator.chat.slack.api import (
    SlackApi,
    SlackRateLimitError,
    SlackUnreachableError,
)
from orchestrator.chat.slack.pauses import Pauses
from orchestrator.chat.websocket import SocketLostError, open_websocket

PING_SECONDS: Final = 30
PONG_SECONDS: Final = 10
OLD_SECONDS: Final = 60
"""How long a connection that Slack refreshes is read on."""
REFRESHED: Final = frozenset({"warning", "refresh_requested"})
"""Why Slack takes a connection away, to give us another one."""
REASONS: Final = {
    "link_disabled": "Socket Mode is switched off for this app",
    "too_many_websockets": "this app has too many connections: ten are allowed",
}

Hear: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Hears the payload of an envelope of a type: `events_api` or `interactive`."""


class Envelope(msgspec.Struct, frozen=True):
    """A message of Slack over the socket."""

    type: str
    envelope_id: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    """Of a `disconnect`."""


class SocketMode:
    """The connections of Socket Mode: mostly one, and two while Slack refreshes it."""

    def __init__(
        self, api: SlackApi, hear: Hear, report: Callable[[str], None]
    ) -> None:
        """Connect later: `run` does.

        Args:
            api: opens connections.
            hear: hears what an envelope holds, and returns when that is durable.
            report: tells the operator of trouble, once until it is over.
        """
        self._api = api
        self._hear = hear
        self._pauses = Pauses(report)

    async def run(self) -> None:
        """Be connected until it is cancelled.

        Raises:
            SlackRefusedError: Slack opens no connection for this app.
        """
        with raising_one_error():
            # Owns the connections.
            async with trio.open_nursery() as nursery:
                while True:
                    replaced = trio.Event()
                    if (url := await self._open()) is not None:
                        nursery.start_soon(self._serve, url, replaced)
                        await replaced.wait()

    async def _open(self) -> str | None:
        """Return the URL of a new connection, or None after a pause."""
        try:
            return await self._api.open_connection()
        except SlackUnreachableError as exc:
            await self._pauses.wait(str(exc))
        except SlackRateLimitError as exc:
            await trio.sleep(exc.seconds)
        return None

    async def _serve(self, url: str, replaced: trio.Event) -> None:
        """Hear what one connection delivers, until it is closed."""
        await trio.lowlevel.checkpoint()
        try:
            async with open_websocket(url) as socket:
                trouble = await self._serve_socket(socket, replaced)
        except SocketLostError as exc:
            trouble = f"Slack: {exc}"
        if not replaced.is_set():
            await self._pauses.wait(trouble)
            replaced.set()

    async def _serve_socket(
        self, socket: WebSocketConnection, replaced: trio.Event
    ) -> str:
        """Hear what a socket delivers, and return why it is over."""
        trouble = ""
        with raising_one_error():
            # Owns the task that pings.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_ping_forever, socket)
                with trio.CancelScope() as reading:
                    trouble = await self._read_until_over(socket, replaced, reading)
                nursery.cancel_scope.cancel(reason="the connection is over")
        return trouble

    async def _read_until_over(
        self,
        socket: WebSocketConnection,
        replaced: trio.Event,
        reading: trio.CancelScope,
    ) -> str:
        while True:
            envelope = _read(await socket.get_message())
            match envelope.type:
                case "hello":
                    self._pauses.reset()
                case "disconnect" if envelope.reason in REFRESHED:
                    replaced.set()
                    reading.deadline = trio.current_time() + OLD_SECONDS
                case "disconnect":
                    reason = REASONS.get(envelope.reason, "the connection is over")
                    return f"Slack says that {reason}"
                case _ if envelope.envelope_id:
                    await self._hear(envelope.type, bytes(envelope.payload))
                    await socket.send_message(_acknowledgement(envelope))
                case _:
                    pass


async def _ping_forever(socket: WebSocketConnection) -> None:
    while True:
        await trio.sleep(PING_SECONDS)
        with trio.move_on_after(PONG_SECONDS) as waiting:
            await socket.ping()
        if waiting.cancelled_caught:
            raise SocketLostError("no answer to a ping")


def _read(message: str | bytes) -> Envelope:
    """Return a message of Slack; what is none is of no type that is heard."""
    try:
        return msgspec.json.decode(message, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Envelope(type="")


def _acknowledgement(envelope: Envelope) -> str:
    return msgspec.json.encode({"envelope_id": envelope.envelope_id}).decode()
