"""Telegram's updates: the messages for the bot, with their addresses and files.

A thread is a topic only if Telegram says so, since replies in a group have a `message_thread_id`
too. Edited messages are not requested, and service messages are skipped.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.products.chat import platform
from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.telegram.api import NAME

KINDS: Final = ("message", "callback_query")
"""The kinds of updates to request."""


class User(msgspec.Struct):
    """A user or bot."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return " ".join(it for it in (self.first_name, self.last_name) if it)


class Chat(msgspec.Struct):
    """A chat."""

    id: int
    type: str
    title: str = ""
    first_name: str = ""


class Entity(msgspec.Struct):
    """A formatted piece of a text; its offset and length count UTF-16 units."""

    type: str
    offset: int
    length: int


class File(msgspec.Struct):
    """A file of any kind."""

    file_id: str
    file_unique_id: str = ""
    file_size: int | None = None
    file_name: str = ""
    mime_type: str = ""


class Sticker(msgspec.Struct):
    """A sticker."""

    emoji: str = ""


class Poll(msgspec.Struct):
    """A poll."""

    question: str = ""


class Location(msgspec.Struct):
    """A place on earth."""

    latitude: float
    longitude: float


class Contact(msgspec.Struct):
    """The contact of a person."""

    phone_number: str
    first_name: str = ""


class RepliedTo(msgspec.Struct):
    """The message that another one answers."""

    message_id: int
    from_user: User | None = msgspec.field(default=None, name="from")


class Message(msgspec.Struct):
    """A message, with the fields that are read here."""

    message_id: int
    chat: Chat
    from_user: User | None = msgspec.field(default=None, name="from")
    message_thread_id: int | None = None
    is_topic_message: bool = False
    reply_to_message: RepliedTo | None = None
    text: str = ""
    caption: str = ""
    entities: tuple[Entity, ...] = ()
    caption_entities: tuple[Entity, ...] = ()
    forward_origin: dict[str, object] | None = None
    photo: tuple[File, ...] = ()
    document: File | None = None
    audio: File | None = None
    voice: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: Sticker | None = None
    poll: Poll | None = None
    location: Location | None = None
    contact: Contact | None = None
    migrate_to_chat_id: int | None = None

    @property
    def address(self) -> ChatAddress:
        is_topic = self.is_topic_message and self.message_thread_id is not None
        return ChatAddress(NAME, str(self.chat.id), str(self.message_thread_id) if is_topic else "")

    @property
    def is_private(self) -> bool:
        return self.chat.type == "private"


class CallbackQuery(msgspec.Struct):
    """A press of a button."""

    id: str
    from_user: User = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct):
    """An update from Telegram."""

    update_id: int
    message: Message | None = None
    callback_query: CallbackQuery | None = None

    @property
    def chat(self) -> int:
        """The chat of the update; updates of one chat stay in order."""
        query = self.callback_query
        message = self.message or (None if query is None else query.message)
        return 0 if message is None else message.chat.id


def event_of(update: Update, bot: User) -> platform.ChatEvent | None:
    """Return the event of an update; None if there is none for the bot."""
    id_ = f"{bot.id}.{update.update_id}"
    if update.callback_query is not None:
        return _press(update.callback_query, id_)
    message = update.message
    if message is None:
        return None
    if message.migrate_to_chat_id is not None:
        return platform.ChatMoved(
            message.address, ChatAddress(NAME, str(message.migrate_to_chat_id))
        )
    sender = message.from_user
    if sender is None or sender.is_bot or _is_for_another(message, bot):
        return None
    text, files = _text_of(message, bot), _files_of(message)
    if not text and not files:
        return None
    return platform.IncomingMessage(
        id=id_,
        address=message.address,
        user=platform.ChatUser(str(sender.id), sender.name or sender.username),
        text=text,
        anchor=str(message.message_id),
        chat_name=message.chat.title or message.chat.first_name,
        is_private=message.is_private,
        is_addressed=_is_for(message, bot),
        attachments=files,
    )


def _press(query: CallbackQuery, id_: str) -> platform.ButtonPress | None:
    if query.message is None or not query.data:
        return None
    return platform.ButtonPress(
        id=id_,
        address=query.message.address,
        user=platform.ChatUser(str(query.from_user.id), query.from_user.name),
        data=query.data,
        message=str(query.message.message_id),
        is_private=query.message.is_private,
        answer=query.id,
    )


def _is_for_another(message: Message, bot: User) -> bool:
    """Return whether a message is a command to another bot: `/new@other_bot`."""
    if not message.text.startswith("/"):
        return False
    _, _, addressee = message.text.split(maxsplit=1)[0].partition("@")
    return bool(addressee) and addressee.lower() != bot.username.lower()


def _is_for(message: Message, bot: User) -> bool:
    """Return whether a message is for the bot: in a group, it mentions the bot or replies to it."""
    answered = message.reply_to_message
    answered_user = None if answered is None else answered.from_user
    return (
        message.is_private
        or message.text.startswith("/")
        or (answered_user is not None and answered_user.id == bot.id)
        or f"@{bot.username}".lower() in _mentions(message)
    )


def _mentions(message: Message) -> set[str]:
    text = (message.text or message.caption).encode("utf-16-le", "surrogatepass")
    return {
        text[2 * it.offset : 2 * (it.offset + it.length)].decode("utf-16-le", "replace").lower()
        for it in message.entities or message.caption_entities
        if it.type == "mention"
    }


def _text_of(message: Message, bot: User) -> str:
    text = message.text or message.caption
    mention = f"@{bot.username}"
    if bot.username and not message.is_private:
        at = text.lower().find(mention.lower())
        if at >= 0:
            text = f"{text[:at].rstrip()} {text[at + len(mention) :].lstrip()}"
    pieces = [text.strip()]
    if message.sticker is not None:
        pieces.append(f"[sticker {message.sticker.emoji}]")
    if message.poll is not None:
        pieces.append(f"[poll: {message.poll.question}]")
    if message.location is not None:
        where = message.location
        pieces.append(f"[location {where.latitude}, {where.longitude}]")
    if message.contact is not None:
        who = message.contact
        pieces.append(f"[contact {who.first_name}, {who.phone_number}]")
    found = "\n".join(it for it in pieces if it)
    return f"[forwarded]\n{found}" if found and message.forward_origin else found


def _files_of(message: Message) -> tuple[platform.Attachment, ...]:
    # An animation also comes as a document.
    files: list[tuple[File, str, str]] = []
    if message.photo:
        largest = max(message.photo, key=lambda it: it.file_size or 0)
        files.append((largest, "photo.jpg", "image/jpeg"))
    kinds: Sequence[tuple[File | None, str, str]] = (
        (message.document, "document", ""),
        (message.audio, "audio", ""),
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.video_note, "video.mp4", "video/mp4"),
    )
    files += [(file, name, kind) for file, name, kind in kinds if file is not None]
    return tuple(
        platform.Attachment(
            name=file.file_name or name,
            media_type=file.mime_type or media_type,
            size=file.file_size,
            reference=file.file_id,
        )
        for file, name, media_type in files
    )
