"""Slack's requests and socket messages: checked, decoded, completed with names, and heard.

An event is acknowledged when the inbox has taken it. A malformed event is acknowledged too: Slack
would only send it again.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

import attrs
import msgspec
import trio

from orchestrator.products.chat import platform
from orchestrator.products.chat.errors import ChatError, RevokedError
from orchestrator.products.chat.slack import events
from orchestrator.products.chat.slack.answers import ChannelInfo, Identity, UserInfo
from orchestrator.products.chat.slack.api import SlackApi, SlackRefusedError
from orchestrator.products.chat.slack.history import read_missed
from orchestrator.products.chat.slack.signature import is_signed
from orchestrator.products.chat.troubles import Troubles

IDENTITY_SECONDS: Final = 2
"""The seconds that a request waits until the bot knows its own identity; Slack waits for three."""
NAME_SECONDS: Final = 1
"""The seconds that a message waits for the names of its writer and its channel."""
MOST_NAMES: Final = 10_000
EVENTS: Final = "events_api"
INTERACTIVE: Final = "interactive"
FORM: Final = "application/x-www-form-urlencoded"
COMMAND_PREFIXES: Final = ("!", "/")
"""The signs before a command; after a mention, a slash works too."""


class EventKind(msgspec.Struct, frozen=True):
    """The kind of an event."""

    type: str = ""
    tokens: dict[str, list[str]] = {}
    """The revoked tokens of bots and of people, in a `tokens_revoked` event."""


class EventRequest(msgspec.Struct, frozen=True):
    """A request of the Events API, or the payload of its envelope."""

    type: str = ""
    challenge: str = ""
    event: msgspec.Raw = msgspec.Raw(b"{}")


class Inbound:
    """Gives Slack's events to the inbox."""

    def __init__(
        self, api: SlackApi, *, signing_secret: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._signing_secret = signing_secret
        self._now = now
        self._own: Identity | None = None
        self._identified = trio.Event()
        self._removed = trio.Event()
        self._names: dict[str, str] = {}

    async def identify(self, inbox: platform.Inbox) -> None:
        """Ask Slack for the bot's identity, until it answers."""
        troubles = Troubles(inbox, events.PLATFORM)
        while not self._identified.is_set():
            try:
                self._own = await self._api.call("auth.test", Identity)
            except SlackRefusedError as exc:
                raise RevokedError(str(exc)) from exc
            except ChatError as exc:
                await troubles.pause(exc)
            else:
                troubles.over()
                self._identified.set()
        await trio.lowlevel.checkpoint()

    async def wait_removed(self) -> None:
        """Wait until Slack says that the app was removed from the workspace, and raise."""
        await self._removed.wait()
        raise RevokedError("the app was removed from the Slack workspace")

    async def answer(
        self, call: platform.WebhookCall, inbox: platform.Inbox
    ) -> platform.WebhookAnswer:
        """Answer a request of Slack when its event has been heard."""
        await trio.lowlevel.checkpoint()
        secret, now = self._signing_secret, self._now()
        if not is_signed(secret, call.headers, call.body, now=now):
            return platform.WebhookAnswer(HTTPStatus.UNAUTHORIZED)
        kind, payload = EVENTS, call.body
        if call.headers.get("content-type", "").startswith(FORM):
            kind, payload = INTERACTIVE, _payload_of(call.body)
        try:
            request = msgspec.json.decode(payload, type=EventRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return platform.WebhookAnswer(HTTPStatus.BAD_REQUEST)
        if request.type == "url_verification":
            challenge = request.challenge.encode()
            return platform.WebhookAnswer(body=challenge, media_type="text/plain")
        with trio.move_on_after(IDENTITY_SECONDS):
            await self._identified.wait()
        if self._own is None:
            return platform.WebhookAnswer(HTTPStatus.SERVICE_UNAVAILABLE)
        await self.hear(kind, payload, inbox)
        return platform.WebhookAnswer()

    async def hear(self, kind: str, payload: bytes, inbox: platform.Inbox) -> None:
        """Hear an `events_api` or `interactive` event of Slack, and return when it is durable."""
        await trio.lowlevel.checkpoint()
        event: platform.IncomingMessage | platform.ButtonPress | None = None
        try:
            if kind == EVENTS:
                event = self._told(msgspec.json.decode(payload, type=EventRequest))
            elif kind == INTERACTIVE:
                event = events.press_of(msgspec.json.decode(payload, type=events.SlackPress))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            inbox.report(f"{events.PLATFORM}: an event was passed over: {exc}")
        if isinstance(event, platform.IncomingMessage):
            event = await self._named(event)
        if event is not None:
            await inbox.receive(event)

    async def read_missed(self, inbox: platform.Inbox) -> None:
        """Hear the messages that were missed."""

        async def hear(told: events.SlackMessage) -> None:
            message = None if self._own is None else events.message_of(told, self._own)
            # A command may have been obeyed already: an old approval must answer no new question.
            if message is not None and not message.text.startswith(COMMAND_PREFIXES):
                await inbox.receive(await self._named(message))
            await trio.lowlevel.checkpoint()

        await read_missed(self._api, inbox, hear, now=self._now())

    def _told(self, request: EventRequest) -> platform.IncomingMessage | None:
        """Return the message of an event, if there is one to hear."""
        kind = msgspec.json.decode(request.event, type=EventKind)
        if kind.type == "app_uninstalled" or (
            kind.type == "tokens_revoked" and kind.tokens.get("bot")
        ):
            self._removed.set()
        if kind.type not in events.HEARD or self._own is None:
            return None
        told = msgspec.json.decode(request.event, type=events.SlackMessage)
        return events.message_of(told, self._own)

    async def _named(self, message: platform.IncomingMessage) -> platform.IncomingMessage:
        """Return a message with the names of its writer and its channel, if they are known."""
        user, chat = message.user.id, message.address.chat
        with trio.move_on_after(NAME_SECONDS):
            await self._look_up(user, "users.info", UserInfo, user=user)
            if not message.is_private:
                await self._look_up(chat, "conversations.info", ChannelInfo, channel=chat)
        return attrs.evolve(
            message,
            user=platform.ChatUser(user, self._names.get(user, "")),
            chat_name=self._names.get(chat, ""),
        )

    async def _look_up(
        self, id_: str, method: str, into: type[UserInfo] | type[ChannelInfo], **arguments: str
    ) -> None:
        """Look up and keep a name. Without the scope for it, an empty name is kept."""
        await trio.lowlevel.checkpoint()
        if id_ in self._names:
            return
        name = ""
        try:
            name = (await self._api.call(method, into, **arguments)).name
        except SlackRefusedError:
            pass
        except ChatError:
            return
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        self._names[id_] = name


def _payload_of(body: bytes) -> bytes:
    """Return the form field `payload` of a request about a button."""
    fields = parse_qs(body.decode(errors="replace"))
    return fields.get("payload", [""])[0].encode()
