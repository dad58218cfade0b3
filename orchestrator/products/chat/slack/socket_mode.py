"""Socket Mode: Slack's events over a WebSocket that the bot opens, so it needs no public address.

An envelope is acknowledged when it was heard. Envelopes of one thread are heard in order, those of
other threads concurrently, since Slack waits three seconds. Slack refreshes a connection every few
hours, and announces it: the next one is opened while the old one still delivers. A lost or silent
connection is opened again, with growing pauses.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.errors import ChatError
from orchestrator.products.chat.slack.api import SlackApi, SlackRefusedError
from orchestrator.products.chat.troubles import Troubles
from orchestrator.products.chat.websocket import SocketLostError, open_websocket

PING_SECONDS: Final = 30
PONG_SECONDS: Final = 10
OLD_SECONDS: Final = 60
"""The seconds that a refreshed connection is still read."""
REFRESHED: Final = frozenset({"warning", "refresh_requested"})
"""The reasons for a refresh of a connection."""
REASONS: Final = {
    "link_disabled": "Socket Mode is switched off for this app",
    "too_many_websockets": "this app has too many connections: ten are allowed",
}

Hear: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Hears the payload of an envelope; its type is `events_api` or `interactive`."""


class Envelope(msgspec.Struct, frozen=True):
    """A message of Slack over the socket."""

    type: str
    envelope_id: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    """The reason of a `disconnect`."""


class _Event(msgspec.Struct, frozen=True):
    channel: Any = None
    ts: Any = None
    thread_ts: Any = None


class _Payload(msgspec.Struct, frozen=True):
    """The fields of a payload that identify its thread."""

    event: _Event = _Event()


class SocketMode:
    """The connections of Socket Mode: usually one, and two during a refresh."""

    def __init__(
        self, api: SlackApi, hear: Hear, troubles: Troubles, note_gap: Callable[[], None]
    ) -> None:
        """Set up without a connection; `note_gap` is called after a time without one."""
        self._api = api
        self._hear = hear
        self._troubles = troubles
        self._note_gap = note_gap
        self._has_gap = True
        self._last: dict[tuple[str, str], trio.Event] = {}
        """Set when the last envelope of a thread was heard."""

    async def run(self) -> None:
        """Stay connected; raise `SlackRefusedError` if Slack opens no connection for this app."""
        with raising_one_error():
            # Owns the connections.
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        url = await self._api.open_connection()
                    except SlackRefusedError:
                        raise
                    except ChatError as exc:
                        await self._troubles.pause(exc)
                        continue
                    replaced = trio.Event()
                    nursery.start_soon(self._serve, url, replaced)
                    await replaced.wait()

    async def _serve(self, url: str, replaced: trio.Event) -> None:
        """Hear the envelopes of one connection until it is closed."""
        await trio.lowlevel.checkpoint()
        try:
            async with open_websocket(url) as socket:
                await self._serve_socket(socket, replaced)
        except SocketLostError as exc:
            if not replaced.is_set():
                self._has_gap = True
                await self._troubles.pause(exc)
                replaced.set()

    async def _serve_socket(self, socket: WebSocketConnection, replaced: trio.Event) -> None:
        with raising_one_error():
            # Owns the tasks that ping, and that hear.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_ping_forever, socket)
                with trio.CancelScope() as reading:
                    while True:
                        envelope = _read(await socket.get_message())
                        match envelope.type:
                            case "hello":
                                self._troubles.over()
                                if self._has_gap:
                                    self._note_gap()
                                self._has_gap = False
                            case "disconnect" if envelope.reason in REFRESHED:
                                replaced.set()
                                reading.deadline = trio.current_time() + OLD_SECONDS
                            case "disconnect":
                                reason = REASONS.get(envelope.reason, "Slack ends it")
                                raise SocketLostError(reason)
                            case _ if envelope.envelope_id:
                                nursery.start_soon(self._take, socket, envelope)
                            case _:
                                pass
                nursery.cancel_scope.cancel(reason="the connection was refreshed")

    async def _take(self, socket: WebSocketConnection, envelope: Envelope) -> None:
        """Hear an envelope after the previous one of its thread, and acknowledge it."""
        thread = _thread_of(envelope)
        before, heard = self._last.get(thread), trio.Event()
        self._last[thread] = heard
        try:
            if before is not None:
                await before.wait()
            await self._hear(envelope.type, bytes(envelope.payload))
        finally:
            heard.set()
            if self._last[thread] is heard:
                del self._last[thread]
        acknowledgement = msgspec.json.encode({"envelope_id": envelope.envelope_id})
        try:
            await socket.send_message(acknowledgement.decode())
        except ConnectionClosed:
            # Slack sends it again over the next connection, where it is recognized.
            await trio.lowlevel.checkpoint()


async def _ping_forever(socket: WebSocketConnection) -> None:
    while True:
        await trio.sleep(PING_SECONDS)
        with trio.move_on_after(PONG_SECONDS) as waiting:
            await socket.ping()
        if waiting.cancelled_caught:
            raise SocketLostError("no answer to a ping")


def _read(message: str | bytes) -> Envelope:
    """Decode a message of Slack; a malformed message gets a type that is ignored."""
    try:
        return msgspec.json.decode(message, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Envelope(type="")


def _thread_of(envelope: Envelope) -> tuple[str, str]:
    """Return the thread of an envelope, or its direct message."""
    event = _Event()
    with suppress(msgspec.DecodeError):
        event = msgspec.json.decode(envelope.payload, type=_Payload).event
    channel = str(event.channel or "")
    first = "" if channel.startswith("D") else event.ts
    return channel, str(event.thread_ts or first or "")
