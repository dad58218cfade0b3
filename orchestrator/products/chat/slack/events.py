"""Converts Slack's messages and button presses to chat events.

Slack sends a mention in a channel twice, as `message` and as `app_mention`: both give the same
message, whose id consists of its channel and its time. Messages of bots, edits, and Slack's own
messages are ignored.
"""

import re
from typing import Final

import msgspec

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.platform import Attachment, ButtonPress, ChatUser, IncomingMessage
from orchestrator.products.chat.slack.answers import Identity

PLATFORM: Final = "slack"
HEARD: Final = frozenset({"message", "app_mention"})
SUBTYPES: Final = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""The kinds of messages that people write; others are edits, deletions, and Slack's own."""
LOST_FILES: Final = frozenset({"tombstone", "hidden_by_limit"})
"""The modes of files that Slack no longer shows."""
_MARKUP: Final = re.compile(r"<([^<>\n]*)>")


class SlackFile(msgspec.Struct, frozen=True):
    """A file of a message, with the fields that are read here."""

    id: str = ""
    name: str | None = None
    mimetype: str | None = None
    size: int | None = None
    mode: str | None = None


class SlackMessage(msgspec.Struct, frozen=True):
    """A message or its mention, with the fields that are read here."""

    type: str
    ts: str
    channel: str = ""
    """The channel; empty in a history, which belongs to one channel."""
    subtype: str | None = None
    channel_type: str | None = None
    user: str | None = None
    bot_id: str | None = None
    text: str | None = None
    thread_ts: str | None = None
    parent_user_id: str | None = None
    hidden: bool = False
    files: list[SlackFile] = []

    @property
    def is_private(self) -> bool:
        return self.channel_type == "im" or self.channel.startswith("D")


class SlackUser(msgspec.Struct, frozen=True):
    """The person who pressed a button."""

    id: str
    name: str = ""


class SlackAction(msgspec.Struct, frozen=True):
    """The press of a button."""

    type: str
    action_ts: str
    value: str | None = None


class SlackContainer(msgspec.Struct, frozen=True):
    """The place of the button."""

    type: str = ""
    channel_id: str = ""
    message_ts: str = ""
    thread_ts: str | None = None


class SlackPressed(msgspec.Struct, frozen=True):
    """The message with the button."""

    thread_ts: str | None = None


class SlackPress(msgspec.Struct, frozen=True):
    """Slack's description of a button press."""

    type: str
    user: SlackUser
    actions: list[SlackAction] = []
    container: SlackContainer = SlackContainer()
    message: SlackPressed = SlackPressed()


def message_of(told: SlackMessage, own: Identity) -> IncomingMessage | None:
    """Convert a message of a person; return None if it is not for the bot.

    The names of the user and the channel are missing: they are looked up later.
    """
    if (
        (told.subtype or "") not in SUBTYPES
        or told.hidden
        or not told.channel
        or told.bot_id
        or not told.user
        or told.user == own.user_id
    ):
        return None
    is_addressed = (
        told.is_private
        or told.type == "app_mention"
        or _mention(own) in (told.text or "")
        or told.parent_user_id == own.user_id
    )
    # The first message of a thread names itself.
    replied = "" if told.thread_ts == told.ts else told.thread_ts or ""
    if not is_addressed and not replied:
        return None
    attachments = tuple(
        Attachment(
            name=file.name or file.id,
            media_type=file.mimetype or "",
            size=file.size,
            reference=file.id,
        )
        for file in told.files
        if file.id and file.mode not in LOST_FILES
    )
    text = readable(told.text or "", own)
    if not text and not attachments:
        return None
    # An answer in a channel opens a thread, so the conversation is in this thread.
    thread = replied or ("" if told.is_private else told.ts)
    return IncomingMessage(
        id=f"{told.channel}:{told.ts}",
        address=ChatAddress(PLATFORM, told.channel, thread),
        user=ChatUser(told.user),
        text=text,
        anchor=told.ts,
        is_private=told.is_private,
        is_addressed=is_addressed,
        attachments=attachments,
    )


def press_of(told: SlackPress) -> ButtonPress | None:
    """Convert the press of a button; return None if the button is not ours."""
    where = told.container
    if told.type != "block_actions" or not where.channel_id or not told.actions:
        return None
    action = told.actions[0]
    if action.type != "button" or action.value is None:
        return None
    thread = where.thread_ts or told.message.thread_ts or ""
    return ButtonPress(
        id=f"{where.channel_id}:{where.message_ts}:{told.user.id}:{action.action_ts}",
        address=ChatAddress(PLATFORM, where.channel_id, thread),
        user=ChatUser(told.user.id, told.user.name),
        data=action.value,
        message=where.message_ts,
        is_private=where.channel_id.startswith("D"),
    )


def readable(text: str, own: Identity) -> str:
    """Return the text of a message as its writer sees it, without a leading mention of the bot."""
    text = text.strip().removeprefix(_mention(own)).strip()
    text = _MARKUP.sub(lambda found: _shown(found[1], own), text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escaped(text: str) -> str:
    """Escape a text, so that Slack finds no markup in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mention(own: Identity) -> str:
    return f"<@{own.user_id}>"


def _shown(markup: str, own: Identity) -> str:
    """Return the visible text of a link, or of a mention of a person, channel or group."""
    target, _, label = markup.partition("|")
    match target[:1]:
        case "@":
            known = own.user if target[1:] == own.user_id else target[1:]
            return f"@{label.removeprefix('@') or known}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:")
            return f"{label} ({target})" if label and label not in target else address
