"""Converts Discord messages to messages of the port."""

import re
from typing import Final

from orchestrator.products.chat.discord.channels import address_of
from orchestrator.products.chat.discord.objects import FORWARD, TEXTS, Channel, File, Message
from orchestrator.products.chat.platform import Attachment, ChatUser, IncomingMessage

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
