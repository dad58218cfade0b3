"""The port of chat platforms, and its values.

A platform hears and sends, and decides nothing: the gateway knows who may talk, which session a
message belongs to, and which messages were sent. To add a platform, write a class with these
methods, and run `orchestrator.testing.chat_conformance` against a server that speaks its protocol.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs

from orchestrator.products.chat.chat_address import ChatAddress

MOST_BUTTON_BYTES: Final = 64
"""The most bytes of a button's data that all platforms accept."""


@attrs.frozen
class ChatUser:
    """A person on a platform."""

    id: str
    name: str = ""


@attrs.frozen(kw_only=True)
class Attachment:
    """A file of a message that has not been fetched yet."""

    name: str
    """The sender's name for the file: any text, not a path."""
    media_type: str = ""
    size: int | None = None
    """The size in bytes, if the platform states it."""
    reference: str = attrs.field(repr=False)
    """The platform's reference to fetch the file; it may contain a secret."""


@attrs.frozen(kw_only=True)
class IncomingMessage:
    """A message from a person that the bot reads, in private or in a group."""

    id: str
    """The id of the message, unique on the platform; a repeated message has the same id."""
    address: ChatAddress
    user: ChatUser
    text: str
    """The person's text, without the mention of the bot; "" if there are only files."""
    anchor: str = ""
    """The id that a reply refers to."""
    chat_name: str = ""
    is_private: bool
    """Whether no other person reads the chat."""
    is_addressed: bool = True
    """Whether the message is for the bot: private, with its mention, or a reply to it.

    Any other message in a thread is heard only if the thread already has a session.
    """
    attachments: tuple[Attachment, ...] = ()


@attrs.frozen(kw_only=True)
class ButtonPress:
    """A person has pressed a button."""

    id: str
    """The id of the press, like the id of a message; `Platform.answer_press` may need it."""
    address: ChatAddress
    user: ChatUser
    data: str
    """The data of the button, from `send_buttons`."""
    message: str
    """The id of the message with the button."""
    is_private: bool
    answer: str = attrs.field(default="", repr=False)
    """The data that the platform needs to answer the press, besides the id; it may be a secret."""


@attrs.frozen
class ChatMoved:
    """A chat has a new id; its conversation continues there."""

    old: ChatAddress
    new: ChatAddress


ChatEvent: TypeAlias = IncomingMessage | ButtonPress | ChatMoved


class Inbox(Protocol):
    """The receiver of a platform's events. The gateway has one for each platform."""

    async def receive(self, event: ChatEvent) -> None:
        """Take an event, and return when it is durable.

        Acknowledge the event only then: move the offset, answer the webhook, confirm the envelope.
        If this method raises, do not acknowledge it.
        """
        ...

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        """Return the last message that was heard at each address with a session.

        A platform that does not repeat missed messages reads its history from there.
        """
        ...

    def report(self, line: str) -> None:
        """Tell the operator about a trouble once: another bot polls, the network is gone."""
        ...


@attrs.frozen
class Button:
    """A button below a message."""

    text: str
    data: str
    """At most `MOST_BUTTON_BYTES` of UTF-8."""


@attrs.frozen
class TextPart:
    """A part of a text that fits into one message."""

    text: str
    formatting: Any = None
    """The formatting, in the platform's own form."""


@attrs.frozen
class Sent:
    """A message that the platform has taken."""

    id: str
    changed: str = ""
    """The parts that had to be left out, for the journal: the topic, the anchor, the formatting."""


@attrs.frozen
class WebhookCall:
    """An HTTP request from the platform."""

    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes


@attrs.frozen
class WebhookAnswer:
    """The answer to a webhook call."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"


Webhook: TypeAlias = Callable[[WebhookCall], Awaitable[WebhookAnswer]]


class Platform(Protocol):
    """An open chat platform, with its secret and its connections.

    Its sending methods raise the errors of `orchestrator.products.chat.errors`.
    """

    @property
    def name(self) -> str:
        """The name of the platform in addresses: `telegram`."""
        ...

    @property
    def command_prefix(self) -> str:
        """The sign before a command: `/`, unless the platform reserves it."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """The texts that must not appear in a log, journal or message."""
        ...

    @property
    def largest_download(self) -> int:
        """The most bytes of a file that a bot may fetch."""
        ...

    @property
    def largest_upload(self) -> int:
        """The most bytes of a file that a bot may send."""
        ...

    async def run(self, inbox: Inbox) -> None:
        """Hear events until this is cancelled; a platform that has only webhooks returns.

        A temporary fault (no network, 5xx, another poller) is reported once, and retried with
        pauses.

        Raises:
            RevokedError: the platform refuses the secret.
        """
        ...

    def webhooks(self, inbox: Inbox) -> Mapping[str, Webhook]:
        """Return the handlers of HTTP requests by path; empty without webhooks."""
        ...

    def split(self, text: str) -> Sequence[TextPart]:
        """Return a Markdown text as messages of this platform.

        The same text always gives the same parts, since the rest is sent after a crash. No part
        cuts a character, and cut formatting continues in the next part.
        """
        ...

    async def send(
        self, address: ChatAddress, part: TextPart, *, key: str, anchor: str = "", mark: str = ""
    ) -> Sent:
        """Send one message.

        Args:
            address: the address of the chat.
            part: a part from `split`.
            key: the key of the message, the same when it is sent again. Platforms that can refuse
                duplicates use it; others ignore it.
            anchor: the message to reply to; left out if that message is gone.
            mark: a line before the text, which states that the message may be a repetition.
        """
        ...

    def address_of_answers(self, address: ChatAddress, message: str) -> ChatAddress:
        """Return the address where people answer a message that was sent to an address.

        Usually it is the same address; on a platform that answers in threads, it is the thread.
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
        """Send a message with buttons; the text is plain, and fits into one message."""
        ...

    async def close_buttons(self, address: ChatAddress, message: str, text: str) -> None:
        """Replace the text of a message, and remove its buttons."""
        ...

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        """Tell the result of a press to the person who pressed, and to no other person."""
        ...

    async def show_typing(self, address: ChatAddress) -> None:
        """Show for a few seconds that an answer is being written."""
        ...

    async def download(self, attachment: Attachment) -> bytes:
        """Fetch a file of at most `largest_download` bytes.

        Raises:
            GoneError: the file is not available, or is larger than its stated size.
        """
        ...

    async def send_file(
        self, address: ChatAddress, name: str, content: bytes, *, key: str, anchor: str = ""
    ) -> Sent:
        """Send a file of at most `largest_upload` bytes."""
        ...
