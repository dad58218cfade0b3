"""Discord's objects, with the fields that are read here. Unknown fields are ignored."""

from typing import Final

import msgspec

DIRECT: Final = frozenset({1, 3})
"""The types of private channels, outside of a server."""
THREADS: Final = frozenset({10, 11, 12})
TEXTS: Final = frozenset({0, 19})
"""The types of messages that people write: a message, and a reply. All others are notices."""
FORWARD: Final = 1
"""The type of a reference that forwards a message, instead of replying to it."""


class User(msgspec.Struct):
    """A person or a bot."""

    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False

    @property
    def name(self) -> str:
        return self.global_name or self.username


class File(msgspec.Struct):
    """A file of a message."""

    id: str
    filename: str
    size: int
    url: str
    content_type: str | None = None


class Sticker(msgspec.Struct):
    """A sticker of a message."""

    name: str


class PollQuestion(msgspec.Struct):
    """The question of a poll."""

    text: str = ""


class Poll(msgspec.Struct):
    """A poll of a message."""

    question: PollQuestion


class Reference(msgspec.Struct):
    """The message that another one replies to, or forwards."""

    type: int = 0
    message_id: str = ""


class Content(msgspec.Struct):
    """The content of a forwarded message."""

    content: str = ""
    attachments: list[File] = []


class Snapshot(msgspec.Struct):
    """A forwarded message."""

    message: Content


class Referenced(msgspec.Struct):
    """The message that a reply is about."""

    id: str
    author: User


class InChannel(msgspec.Struct):
    """An object in a channel."""

    channel_id: str


class Message(msgspec.Struct, kw_only=True):
    """A message in a channel."""

    id: str
    channel_id: str
    author: User
    type: int = 0
    content: str = ""
    guild_id: str = ""
    """Present only in messages from the gateway, not in messages read over HTTP."""
    webhook_id: str = ""
    attachments: list[File] = []
    mentions: list[User] = []
    sticker_items: list[Sticker] = []
    poll: Poll | None = None
    message_reference: Reference | None = None
    message_snapshots: list[Snapshot] = []
    referenced_message: Referenced | None = None


class Channel(msgspec.Struct, kw_only=True):
    """A channel, a thread, or a conversation with one person."""

    id: str
    type: int
    name: str | None = None
    parent_id: str | None = None

    @property
    def is_direct(self) -> bool:
        return self.type in DIRECT

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS


class Member(msgspec.Struct):
    """A person as a member of a server."""

    user: User


class ComponentData(msgspec.Struct):
    """The pressed component."""

    custom_id: str = ""
    component_type: int = 0


class Interaction(msgspec.Struct, kw_only=True):
    """A press of a button, or another use of the bot other than a message."""

    id: str
    type: int
    token: str
    application_id: str
    channel_id: str = ""
    guild_id: str = ""
    data: ComponentData | None = None
    member: Member | None = None
    user: User | None = None
    message: Referenced | None = None


class SessionStarts(msgspec.Struct):
    """The number of times that the bot may still identify itself."""

    remaining: int = 1
    reset_after: int = 0
    """The milliseconds until the number is reset."""


class GatewayInfo(msgspec.Struct):
    """The URL of the gateway, and its limits."""

    url: str
    session_start_limit: SessionStarts = msgspec.field(default_factory=SessionStarts)


class Ready(msgspec.Struct):
    """A session with the gateway has begun."""

    session_id: str
    resume_gateway_url: str
    user: User


class Hello(msgspec.Struct):
    """The gateway's first frame."""

    heartbeat_interval: int
    """Milliseconds."""


class Payload(msgspec.Struct):
    """One frame of the gateway."""

    op: int
    d: msgspec.Raw = msgspec.Raw(b"null")
    s: int | None = None
    t: str | None = None


class Refusal(msgspec.Struct):
    """Discord's reason for refusing a call."""

    code: int = 0
    message: str = ""


class Limited(msgspec.Struct):
    """The pause that Discord asks for."""

    retry_after: float
    is_global: bool = msgspec.field(name="global", default=False)


class Created(msgspec.Struct):
    """A message that was sent."""

    id: str
