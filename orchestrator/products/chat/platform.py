"""The port of chat platforms, and the values that cross it.

A platform hears and sends, and decides nothing: the gateway knows who may talk, which session a
message belongs to, and what was sent already. To add one, write a class with these methods, and run
the conformance tests of `orchestrator.testing.chat_conformance` against a server that speaks its
protocol.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs

from orchestrator.products.chat.chat_address import ChatAddress

MOST_BUTTON_BYTES: Final = 64
"""The longest data of a button that all platforms take."""


@attrs.frozen
class ChatUser:
    """A person on a platform."""

    id: str
    name: str = ""


@attrs.frozen(kw_only=True)
class Attachment:
    """A file that came with a message, and was not fetched yet."""

    name: str
    """What its sender calls it: any text, no path."""
    media_type: str = ""
    size: int | None = None
    """In bytes, if the platform says."""
    reference: str = attrs.field(repr=False)
    """By which the platform fetches it; it may contain a secret."""


@attrs.frozen(kw_only=True)
class IncomingMessage:
    """A message that a person has sent where we read it: in private, or in a group."""

    id: str
    """What is heard twice has the same id twice, and no other message of the platform has it."""
    address: ChatAddress
    user: ChatUser
    text: str
    """What the person has written, without the mention of us; "" if there are only files."""
    anchor: str = ""
    """The id of the message, for a reply to it."""
    chat_name: str = ""
    is_private: bool
    """No other person reads the chat."""
    is_addressed: bool = True
    """Whether it is for us: private, with our mention, or a reply to us.

    One in a thread that is not, is heard only where a session is held already."""
    attachments: tuple[Attachment, ...] = ()


@attrs.frozen(kw_only=True)
class ButtonPress:
    """A person has pressed a button."""

    id: str
    """As that of a message; `Platform.answer_press` may need it."""
    address: ChatAddress
    user: ChatUser
    data: str
    """What `send_buttons` was given for the button."""
    message: str
    """The id of the message with the button."""
    is_private: bool
    answer: str = attrs.field(default="", repr=False)
    """What the platform needs to answer it, if the id is not enough; it may be a secret."""


@attrs.frozen
class ChatMoved:
    """A chat has become another one; its conversation goes on there."""

    old: ChatAddress
    new: ChatAddress


ChatEvent: TypeAlias = IncomingMessage | ButtonPress | ChatMoved


class Inbox(Protocol):
    """What a platform gives its events to. The gateway has one for each platform."""

    async def receive(self, event: ChatEvent) -> None:
        """Take an event, and return when a crash cannot undo that.

        Only then acknowledge it: move the offset, answer the webhook, confirm the envelope. If this
        raises, do not acknowledge it.
        """
        ...

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        """Return the last message that was heard at each address where a session is held.

        A platform that does not repeat what was said while we were away reads on from there.
        """
        ...

    def report(self, line: str) -> None:
        """Tell the operator, once for each trouble: another bot polls, the network is gone."""
        ...


@attrs.frozen
class Button:
    """A button below a message."""

    text: str
    data: str
    """At most `MOST_BUTTON_BYTES` of UTF-8."""


@attrs.frozen
class TextPart:
    """A piece of a text that fits in one message."""

    text: str
    formatting: Any = None
    """How the platform formats it: its own business."""


@attrs.frozen
class Sent:
    """A message that the platform has taken."""

    id: str
    changed: str = ""
    """What had to be left out: the topic, the anchor, the formatting; for the journal."""


@attrs.frozen
class WebhookCall:
    """An HTTP request of the platform to us."""

    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes


@attrs.frozen
class WebhookAnswer:
    """What we answer."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"


Webhook: TypeAlias = Callable[[WebhookCall], Awaitable[WebhookAnswer]]


class Platform(Protocol):
    """A chat platform, opened: it has its secret and its connections.

    What sends raises the errors of `orchestrator.products.chat.errors`.
    """

    @property
    def name(self) -> str:
        """How addresses call it: `telegram`."""
        ...

    @property
    def command_prefix(self) -> str:
        """The sign before a command: `/`, unless the platform keeps that for itself."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What must appear in no log, journal or message."""
        ...

    @property
    def largest_download(self) -> int:
        """The most bytes of a file that it lets us fetch."""
        ...

    @property
    def largest_upload(self) -> int:
        """The most bytes of a file that it takes from us."""
        ...

    async def run(self, inbox: Inbox) -> None:
        """Hear events until it is cancelled; a platform that only has webhooks returns.

        A passing fault (no network, 5xx, another poller) is reported once, and tried again with
        pauses.

        Raises:
            RevokedError: it refuses our secret.
        """
        ...

    def webhooks(self, inbox: Inbox) -> Mapping[str, Webhook]:
        """Return what answers its HTTP requests, by their paths; without webhooks nothing."""
        ...

    def split(self, text: str) -> Sequence[TextPart]:
        """Return a text in Markdown as messages of this platform.

        The same text always gives the same parts: after a crash the rest of them is sent. None is
        cut within a character, and what is formatted is so in both parts.
        """
        ...

    async def send(
        self, address: ChatAddress, part: TextPart, *, key: str, anchor: str = "", mark: str = ""
    ) -> Sent:
        """Send one message.

        Args:
            address: where to.
            part: one of `split`.
            key: the same when the same message is sent again, and no other message's. A platform
                that refuses to double a message is told it; others ignore it.
            anchor: the message that it replies to; sent without, where that is gone.
            mark: a line before the text: that the same may have been sent before.
        """
        ...

    def address_of_answers(self, address: ChatAddress, message: str) -> ChatAddress:
        """Return where people answer a message that was sent to an address, by its id.

        Mostly that is the address itself; where they answer in a thread, it is that.
        """
        ...

    async def send_buttons(
        self,
        address: ChatAddress,
        text: str,
        buttons: Sequence[Button],
        *,
        key: str,
        anchor: str = "",
    ) -> Sent:
        """Send a message with buttons; the text is plain, and short enough."""
        ...

    async def close_buttons(self, address: ChatAddress, message: str, text: str) -> None:
        """Replace the text of a message, and take its buttons away."""
        ...

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        """Tell the person who has pressed a button what came of it, and no other person."""
        ...

    async def show_typing(self, address: ChatAddress) -> None:
        """Show for a few seconds that an answer is being written."""
        ...

    async def download(self, attachment: Attachment) -> bytes:
        """Fetch a file of at most `largest_download` bytes.

        Raises:
            GoneError: it cannot be had, or is larger than the sender said.
        """
        ...

    async def send_file(
        self, address: ChatAddress, name: str, content: bytes, *, key: str, anchor: str = ""
    ) -> Sent:
        """Send a file of at most `largest_upload` bytes."""
        ...
