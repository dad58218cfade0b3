"""Gives the events of Discord's gateway to the inbox.

Messages from a time without a connection are read from the history of addresses with a session,
since the gateway does not repeat the events of an ended session. An address without a session is
unknown, so its first messages from that time are lost.
"""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from orchestrator.products.chat.discord import objects
from orchestrator.products.chat.discord.api import PAGE, DiscordApi
from orchestrator.products.chat.discord.channels import NAME, Channels, address_of, channel_of
from orchestrator.products.chat.discord.gateway import Dispatch
from orchestrator.products.chat.discord.lanes import Lane, Order
from orchestrator.products.chat.discord.objects import FORWARD, TEXTS, Channel, File, Message
from orchestrator.products.chat.discord.presses import Presses, button_press
from orchestrator.products.chat.errors import ChatError, RefusedError, RetryAfterError, RevokedError
from orchestrator.products.chat.platform import Attachment, ChatUser, Inbox, IncomingMessage

EPOCH: Final = 1_420_070_400_000
"""The start of Discord's time, in milliseconds."""
_MENTION: Final = re.compile(r"<@!?(\d+)>")


def incoming_message(message: Message, channel: Channel, me: str) -> IncomingMessage | None:
    """Convert a message; return None if the bot should not read it.

    In a channel of a server, the bot reads messages that mention it or reply to it. In a thread, it
    reads all messages: the gateway decides whether one without a mention is for the bot.
    """
    if message.author.bot or message.webhook_id or message.type not in TEXTS:
        return None
    is_addressed = channel.is_direct or _calls(message, me)
    if not (is_addressed or channel.is_thread):
        return None
    text, files = _text(message, me), list(message.attachments)
    for it in message.message_snapshots:
        files.extend(it.message.attachments)
    if not (text or files):
        return None
    return IncomingMessage(
        id=message.id,
        address=address_of(channel),
        user=ChatUser(message.author.id, message.author.name),
        text=text,
        anchor=message.id,
        chat_name=channel.name or "",
        is_private=channel.is_direct,
        is_addressed=is_addressed,
        attachments=tuple(map(_attachment, files)),
    )


def snowflake(seconds: float) -> str:
    """Return the smallest id of a message at a time."""
    return str(max(0, int(seconds * 1000) - EPOCH) << 22)


def _calls(message: Message, me: str) -> bool:
    """Return whether a message mentions the bot, or replies to it."""
    replied = message.referenced_message
    return any(it.id == me for it in message.mentions) or (
        replied is not None and replied.author.id == me
    )


def _text(message: Message, me: str) -> str:
    names = {it.id: it.name for it in message.mentions}
    names[me] = ""

    def name_of(found: re.Match[str]) -> str:
        name = names.get(found.group(1))
        return found.group() if name is None else name and f"@{name}"

    said = [_MENTION.sub(name_of, message.content).strip()]
    reference = message.message_reference
    if reference is not None and reference.type == FORWARD:
        said += [f"[Forwarded] {it.message.content}" for it in message.message_snapshots]
    said += [f"[Sticker: {it.name}]" for it in message.sticker_items]
    if message.poll is not None:
        said.append(f"[Poll: {message.poll.question.text}]")
    return "\n".join(filter(None, said))


def _attachment(file: File) -> Attachment:
    return Attachment(
        name=file.filename,
        media_type=(file.content_type or "").partition(";")[0],
        size=file.size,
        reference=file.url,
    )


HISTORY_SECONDS: Final = 24 * 3600
"""The oldest messages that are read from the history: a later answer helps no person."""
HISTORY_PAGES: Final = 10
"""The most pages that are read of an address."""
LONGEST_PAUSE: Final = 60.0
NOT_UNDERSTOOD: Final = "discord: a message was left out, because it is not as messages are"
COMMAND_PREFIX: Final = "!"
"""The sign before a command; Discord reserves `/` for commands that a server offers."""
COMMAND_PREFIXES: Final = (COMMAND_PREFIX, "/")
"""The accepted signs: without a command of that name, Discord lets `/` through as text."""
ValueT = TypeVar("ValueT")


class Events:
    """Handles the events of one bot."""

    def __init__(
        self,
        api: DiscordApi,
        presses: Presses,
        inbox: Inbox,
        me: str,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Handle events; `me` is the id of the bot, or "" if READY will tell it."""
        self._api = api
        self._presses = presses
        self._inbox = inbox
        self._clock = clock
        self._channels = Channels(api.get_channel)
        self._me = me
        self._heard: dict[str, str] | None = None
        """The last message of each channel with a session; None until it is loaded."""
        self._unread: dict[str, str] = {}
        """The channels whose history must be read, with the message to start after."""

    def lane_of(self, event: Dispatch) -> Lane:
        match event.name:
            case "MESSAGE_CREATE":
                found = _decode(event, objects.InChannel)
                return Order.AT_ONCE if found is None else found.channel_id
            case "READY" | "RESUMED":
                return Order.ALONE
            case _:
                # Presses are included: Discord waits for an answer.
                return Order.AT_ONCE

    async def handle(self, event: Dispatch) -> None:
        await trio.lowlevel.checkpoint()
        match event.name:
            case "READY":
                if (ready := _decode(event, objects.Ready)) is not None:
                    self._me = ready.user.id
                self._unread = {**await self._last_heard(), **self._unread}
                await self._read_history()
            case "RESUMED":
                await self._read_history()
            case "MESSAGE_CREATE":
                if (message := _decode(event, objects.Message)) is not None:
                    await self._receive(message)
                else:
                    self._inbox.report(NOT_UNDERSTOOD)
            case "INTERACTION_CREATE":
                if (interaction := _decode(event, objects.Interaction)) is not None:
                    await self._receive_press(interaction)
            case _:
                pass

    async def _receive_press(self, interaction: objects.Interaction) -> None:
        await trio.lowlevel.checkpoint()
        try:
            channel = await self._find(interaction.channel_id)
        except RefusedError:
            return
        press = button_press(interaction, channel)
        if press is not None:
            await self._presses.receive(interaction, press, self._inbox)

    async def _receive(self, message: objects.Message, *, is_late: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        try:
            channel = await self._find(message.channel_id)
        except RefusedError as exc:
            self._inbox.report(f"a message was not read: {exc}")
            return
        incoming = incoming_message(message, channel, self._me)
        # A command may have been obeyed already, and a late command may do harm.
        is_stale = is_late and incoming and incoming.text.startswith(COMMAND_PREFIXES)
        if incoming is not None and not is_stale:
            await self._inbox.receive(incoming)
        heard = await self._last_heard()
        if incoming is not None or message.channel_id in heard:
            heard[message.channel_id] = message.id

    async def _last_heard(self) -> dict[str, str]:
        """Return the last message of each channel with a session; the caller may change it."""
        await trio.lowlevel.checkpoint()
        if self._heard is None:
            found = await self._inbox.last_anchors()
            # Another event may have loaded it meanwhile.
            if self._heard is None:
                self._heard = {
                    channel_of(address): id_
                    for address, id_ in found.items()
                    if address.platform == NAME
                }
        return self._heard

    async def _find(self, channel: str) -> objects.Channel:
        return await _patiently(partial(self._channels.find, channel))

    async def _read_history(self) -> None:
        """Read the messages of known channels after the last one that was heard."""
        oldest = snowflake(self._clock() - HISTORY_SECONDS)
        while self._unread:
            channel, after = next(iter(self._unread.items()))
            after = max(after, oldest, key=int)
            for _ in range(HISTORY_PAGES):
                try:
                    page = await _patiently(partial(self._api.get_messages, channel, after=after))
                except RefusedError:
                    # The channel is gone, or the bot may not read its history.
                    break
                for message in page:
                    await self._receive(message, is_late=True)
                    after = self._unread[channel] = message.id
                if len(page) < PAGE:
                    break
            else:
                self._inbox.report(
                    f"channel {channel} has more than {HISTORY_PAGES * PAGE} new messages; the"
                    " later ones are not read"
                )
            del self._unread[channel]
        await trio.lowlevel.checkpoint()


async def _patiently(call: Callable[[], Awaitable[ValueT]]) -> ValueT:
    """Repeat a call until Discord answers it; raise its refusal."""
    pause = 1.0
    while True:
        try:
            return await call()
        except RetryAfterError as exc:
            await trio.sleep(exc.seconds)
        except (RefusedError, RevokedError):
            raise
        except ChatError:
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _decode(event: Dispatch, type_: type[ValueT]) -> ValueT | None:
    """Decode an event; None if it is malformed, since it would come with every connection."""
    try:
        return msgspec.json.decode(event.data, type=type_)
    except msgspec.MsgspecError:
        return None
