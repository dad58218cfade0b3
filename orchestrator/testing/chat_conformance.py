"""Checks that every chat platform must pass, run against a stand-in server.

To check your own platform, write a `StandIn`, and run all of `CHECKS` with it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda it: it.__name__)
    async def test_it_conforms(check: Check) -> None:
        await check(open_stand_in)

A check raises `AssertionError`. This module does not import pytest.
"""

import enum
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.products import chat
from orchestrator.products.chat.replies import MARK
from orchestrator.testing.harness import Harness

NO_FILES: Final[Mapping[str, bytes]] = {}
NO_ANCHORS: Final[Mapping[chat.ChatAddress, str]] = {}
SECONDS: Final = 60.0
"""A timeout longer than any check takes; with trio's jumping clock it costs no time."""
PICTURE: Final = b"\x89PNG\r\n\x1a\n" + bytes(64)


class ChatFault(enum.Enum):
    """A fault of the next sent message, or of the next attempt to hear."""

    PAUSE = "the platform asks to wait before the next message"
    LOST_ANSWER = "the message is taken, and the connection breaks before the answer"
    GONE = "the user has blocked us, or the chat is gone"
    NOT_HEARD = "the connection by which we hear breaks, or the platform answers 5xx"
    REVOKED = "the platform refuses our secret, until further notice"


@attrs.frozen(kw_only=True)
class ShownMessage:
    """A message of the bot, as the platform shows it."""

    id: str
    address: chat.ChatAddress
    text: str = ""
    anchor: str = ""
    buttons: tuple[chat.Button, ...] = ()
    file: bytes = b""


class StandIn(Protocol):
    """A server on loopback that speaks the protocol of a platform, and that a check controls."""

    @property
    def user(self) -> chat.ChatUser:
        """The person who writes to the bot."""
        ...

    @property
    def addresses(self) -> Sequence[chat.ChatAddress]:
        """A private chat, a group, and a thread or topic of a group, in this order."""
        ...

    def connect(self) -> AbstractAsyncContextManager[chat.Platform]:
        """Connect to the server as one process would; a check may connect again later."""
        ...

    def say(
        self, address: chat.ChatAddress, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> str:
        """Let the person write to the bot, and return the anchor for a reply."""
        ...

    def say_again(self) -> None:
        """Let the platform repeat the last message, as if it had not been acknowledged."""
        ...

    def press(self, message: ShownMessage, data: str) -> None:
        """Let the person press a button."""
        ...

    def fail(self, fault: ChatFault) -> None:
        """Set the next fault."""
        ...

    @property
    def messages(self) -> Sequence[ShownMessage]:
        """The messages that the bot has sent, in their current form, oldest first."""
        ...

    async def wait_messages(self, count: int) -> Sequence[ShownMessage]:
        """Wait until the bot has sent this number of messages."""
        ...

    async def wait_acknowledged(self) -> None:
        """Wait until the bot has acknowledged all messages of the person."""
        ...


OpenStandIn: TypeAlias = Callable[[], AbstractAsyncContextManager[StandIn]]
Check: TypeAlias = Callable[[OpenStandIn], Any]


class RecordingInbox:
    """An inbox that records its events."""

    def __init__(
        self, *, takes: bool = True, anchors: Mapping[chat.ChatAddress, str] = NO_ANCHORS
    ) -> None:
        """Create an empty inbox.

        Args:
            takes: whether events become durable; if not, they wait for ever.
            anchors: the last messages that an earlier process has taken.
        """
        self.anchors = dict(anchors)
        self.events: list[chat.ChatEvent] = []
        self.reports: list[str] = []
        self._takes = takes
        self._changed = trio.Event()

    async def receive(self, event: chat.ChatEvent) -> None:
        """Record an event."""
        self.events.append(event)
        self._changed.set()
        self._changed = trio.Event()
        await trio.lowlevel.checkpoint()
        if not self._takes:
            await trio.sleep_forever()
        if isinstance(event, chat.IncomingMessage):
            self.anchors[event.address] = event.anchor

    async def last_anchors(self) -> Mapping[chat.ChatAddress, str]:
        """Return the last taken message of each address."""
        await trio.lowlevel.checkpoint()
        return self.anchors

    def report(self, line: str) -> None:
        """Record a line."""
        self.reports.append(line)

    async def wait_events(self, count: int) -> list[chat.ChatEvent]:
        """Wait for this number of events."""
        await trio.lowlevel.checkpoint()
        while len(self.events) < count:
            await self._changed.wait()
        return self.events


@asynccontextmanager
async def _heard(
    stand_in: StandIn, *, takes: bool = True, anchors: Mapping[chat.ChatAddress, str] = NO_ANCHORS
) -> AsyncGenerator[tuple[chat.Platform, RecordingInbox]]:
    """Hear a platform for the duration of the block."""
    inbox = RecordingInbox(takes=takes, anchors=anchors)
    with trio.fail_after(SECONDS * 60):
        async with stand_in.connect() as platform, trio.open_nursery() as nursery:
            nursery.start_soon(platform.run, inbox)
            yield platform, inbox
            nursery.cancel_scope.cancel(reason="the check is over")


async def a_message_is_heard_with_its_address_and_sender(open_stand_in: OpenStandIn) -> None:
    """Checked in a private chat, in a group that addresses the bot, and in a thread."""
    async with open_stand_in() as stand_in, _heard(stand_in) as (_, inbox):
        for number, address in enumerate(stand_in.addresses, 1):
            anchor = stand_in.say(address, f"Hello {number}")
            event = (await inbox.wait_events(number))[-1]
            assert isinstance(event, chat.IncomingMessage), event
            assert event.address == address, f"{event.address} is not {address}"
            assert event.user.id == stand_in.user.id
            assert event.text == f"Hello {number}", f"{event.text!r} has a mention"
            assert event.anchor == anchor
            assert event.is_private is (number == 1)
            assert event.is_addressed
        assert len({it.id for it in inbox.events if isinstance(it, chat.IncomingMessage)}) == 3


async def a_message_that_comes_twice_has_one_id(open_stand_in: OpenStandIn) -> None:
    """The gateway recognizes a repeated message by its id."""
    async with open_stand_in() as stand_in, _heard(stand_in) as (_, inbox):
        stand_in.say(stand_in.addresses[0], "Hello")
        await inbox.wait_events(1)
        stand_in.say_again()
        ids = {it.id for it in await inbox.wait_events(2) if isinstance(it, chat.IncomingMessage)}
        assert len(ids) == 1, f"it had the ids {ids}"


async def what_was_not_taken_comes_to_the_next_process(open_stand_in: OpenStandIn) -> None:
    """A message is acknowledged only when it is durable."""
    async with open_stand_in() as stand_in:
        address = stand_in.addresses[0]
        async with _heard(stand_in) as (_, first):
            stand_in.say(address, "One")
            await first.wait_events(1)
            await stand_in.wait_acknowledged()
        anchors = first.anchors
        async with _heard(stand_in, takes=False, anchors=anchors) as (_, second):
            stand_in.say(address, "Two")
            await second.wait_events(1)
        async with _heard(stand_in, anchors=anchors) as (_, third):
            # A platform without an acknowledgement may repeat a message more than once.
            events = await third.wait_events(1)
            expected = second.events[0]
            assert all(it == expected for it in events), "it came as another message"
            await stand_in.wait_acknowledged()


async def a_fault_is_reported_and_what_was_said_is_heard(open_stand_in: OpenStandIn) -> None:
    """A temporary fault never ends the hearing, and its report contains no secret."""
    async with open_stand_in() as stand_in, _heard(stand_in) as (platform, inbox):
        stand_in.say(stand_in.addresses[0], "One")
        await inbox.wait_events(1)
        await stand_in.wait_acknowledged()
        stand_in.fail(ChatFault.NOT_HEARD)
        stand_in.say(stand_in.addresses[0], "Two")
        events = [*await inbox.wait_events(2)]
        texts = [it.text for it in events if isinstance(it, chat.IncomingMessage)]
        assert texts == ["One", "Two"], texts
        _require_no_secrets("\n".join(inbox.reports), platform)


async def a_revoked_secret_ends_the_hearing(open_stand_in: OpenStandIn) -> None:
    """The error names the cause, but not the secret."""
    async with open_stand_in() as stand_in:
        stand_in.fail(ChatFault.REVOKED)
        async with stand_in.connect() as platform:
            error: Exception | None = None
            try:
                with trio.fail_after(SECONDS * 60):
                    await platform.run(RecordingInbox())
            except (chat.RevokedError, trio.TooSlowError) as exc:
                error = exc
            assert isinstance(error, chat.RevokedError), "it went on"
            _require_no_secrets(str(error), platform)


async def long_texts_are_split_as_the_platform_takes_them(open_stand_in: OpenStandIn) -> None:
    """All words arrive, no character is cut, and the same text always has the same parts."""
    words = [f"word{number}" for number in range(2_000)]
    lines = [f"line_{number} = {number}" for number in range(800)]
    texts: Mapping[str, Sequence[str]] = {
        " ".join(words): words,
        "\n".join(("```python", *lines, "```")): lines,
        "\N{SLOTH}" * 4_096: ["\N{SLOTH}" * 500],
        "*unclosed _marks `": ["unclosed", "marks"],
        "<b>&amp; no markup</b>": ["no markup"],
        "List<String> of <name>\n\n<p>\n" + "<i>x</i>\n" * 900: ["List<String>", "<name>", "<p>"],
    }
    async with open_stand_in() as stand_in, stand_in.connect() as platform:
        for text, pieces in texts.items():
            parts = platform.split(text)
            assert parts == platform.split(text), "the parts differ from time to time"
            before = len(stand_in.messages)
            for number, part in enumerate(parts):
                key = f"{len(text)}.{number}"
                await platform.send(stand_in.addresses[0], part, key=key)
            shown = [it.text for it in stand_in.messages[before:]]
            for piece in pieces:
                assert any(piece in it for it in shown), f"{piece} is missing"
            sloths = sum(it.count("\N{SLOTH}") for it in shown)
            assert sloths == text.count("\N{SLOTH}"), "a character was cut"


async def a_reply_is_anchored_and_a_repetition_marked(open_stand_in: OpenStandIn) -> None:
    """The reply goes to the address and the thread of its message."""
    async with open_stand_in() as stand_in, _heard(stand_in) as (platform, inbox):
        for number, address in enumerate(stand_in.addresses, 1):
            anchor = stand_in.say(address, "Hello")
            await inbox.wait_events(number)
            (part,) = platform.split("**Hello** back")
            sent = await platform.send(address, part, key=str(number), anchor=anchor, mark=MARK)
            shown = stand_in.messages[-1]
            assert shown.id == sent.id
            assert shown.address == address, f"it went to {shown.address}, not to {address}"
            assert shown.anchor in {anchor, ""}, f"it answers {shown.anchor}"
            assert MARK in shown.text
            assert "Hello back" in shown.text.replace("*", "")


async def a_pause_is_told_with_its_seconds(open_stand_in: OpenStandIn) -> None:
    """The gateway then waits as long as the platform asks for."""
    async with open_stand_in() as stand_in, stand_in.connect() as platform:
        stand_in.fail(ChatFault.PAUSE)
        error = await _error_of_send(platform, stand_in.addresses[0])
        assert isinstance(error, chat.RetryAfterError), repr(error)
        assert error.seconds > 0
        assert not stand_in.messages


async def a_lost_answer_is_no_certain_failure(open_stand_in: OpenStandIn) -> None:
    """The message may have arrived, so the gateway marks it when it sends it again.

    A platform that recognizes the key of the message may instead send it again itself.
    """
    async with open_stand_in() as stand_in, stand_in.connect() as platform:
        stand_in.fail(ChatFault.LOST_ANSWER)
        error = await _error_of_send(platform, stand_in.addresses[0])
        assert not isinstance(error, chat.NotSentError), repr(error)
        assert len(stand_in.messages) == 1, "it was doubled without a mark"
        _require_no_secrets(str(error), platform)


async def a_chat_that_is_gone_is_told_as_such(open_stand_in: OpenStandIn) -> None:
    """The gateway then gives up this chat, and no other."""
    async with open_stand_in() as stand_in, stand_in.connect() as platform:
        stand_in.fail(ChatFault.GONE)
        error = await _error_of_send(platform, stand_in.addresses[0])
        assert isinstance(error, chat.GoneError), repr(error)
        _require_no_secrets(str(error), platform)


async def buttons_are_shown_pressed_and_taken_away(open_stand_in: OpenStandIn) -> None:
    """Checked in each address."""
    data = "session:a_" + "0" * 16
    async with open_stand_in() as stand_in, _heard(stand_in) as (platform, inbox):
        for number, address in enumerate(stand_in.addresses, 1):
            stand_in.say(address, "Hello")
            await inbox.wait_events(2 * number - 1)
            buttons = [chat.Button("Approve", data), chat.Button("Deny", "deny:x")]
            sent = await platform.send_buttons(address, "May it?", buttons, key=f"b{number}")
            shown = stand_in.messages[-1]
            assert (shown.id, shown.address, shown.text) == (sent.id, address, "May it?")
            assert list(shown.buttons) == buttons
            stand_in.press(shown, data)
            press = (await inbox.wait_events(2 * number))[-1]
            assert isinstance(press, chat.ButtonPress), press
            assert (press.data, press.message, press.address) == (data, sent.id, address)
            assert press.user.id == stand_in.user.id
            await platform.answer_press(press, "Approved")
            await platform.close_buttons(address, sent.id, "Approved by Ada")
            closed = next(it for it in stand_in.messages if it.id == sent.id)
            assert (closed.text, closed.buttons) == ("Approved by Ada", ())


async def files_come_and_go_unchanged(open_stand_in: OpenStandIn) -> None:
    """The bytes and the names arrive, for any name that the sender chose."""
    name = "../a picture.png"
    async with open_stand_in() as stand_in, _heard(stand_in) as (platform, inbox):
        address = stand_in.addresses[0]
        anchor = stand_in.say(address, "Look", {name: PICTURE})
        (event,) = await inbox.wait_events(1)
        assert isinstance(event, chat.IncomingMessage)
        (attachment,) = event.attachments
        assert attachment.size in {None, len(PICTURE)}
        assert await platform.download(attachment) == PICTURE
        assert not any(it in repr(attachment) for it in platform.secrets)
        await platform.send_file(address, "copy.png", PICTURE, key="file", anchor=anchor)
        assert stand_in.messages[-1].file == PICTURE
        assert stand_in.messages[-1].address == address


async def an_answer_being_written_can_be_shown(open_stand_in: OpenStandIn) -> None:
    """Checked in each address."""
    async with open_stand_in() as stand_in, _heard(stand_in) as (platform, inbox):
        for number, address in enumerate(stand_in.addresses, 1):
            stand_in.say(address, "Hello")
            await inbox.wait_events(number)
            await platform.show_typing(address)


async def each_message_is_answered_once_at_its_address(open_stand_in: OpenStandIn) -> None:
    """A gateway answers a message once, even if the platform sends it twice."""
    harness = Harness()
    async with open_stand_in() as stand_in:
        async with _gateway(stand_in, harness, reply="Hello back."):
            anchors = {}
            for number, address in enumerate(stand_in.addresses, 1):
                anchors[address] = stand_in.say(address, "Hello")
                await stand_in.wait_messages(number)
                stand_in.say_again()
                await stand_in.wait_acknowledged()
        shown = list(stand_in.messages)
        assert [it.address for it in shown] == list(stand_in.addresses)
        assert all(it.anchor in {anchors[it.address], ""} for it in shown)
    harness.assert_laws()


async def a_crash_after_any_fact_loses_and_doubles_nothing_unmarked(
    open_stand_in: OpenStandIn,
) -> None:
    """The parts of a reply arrive in order; a part that may have arrived before is marked."""
    facts = 1
    while True:
        harness = Harness()
        async with open_stand_in() as stand_in:
            address = stand_in.addresses[0]
            stand_in.say(address, "Hello")
            async with stand_in.connect() as platform:
                whole = len(platform.split(LONG_REPLY))
            with trio.move_on_after(SECONDS):
                async with _gateway(stand_in, harness, crash_after=facts):
                    await trio.sleep_forever()
            has_crashed = len(harness.entries) == facts
            async with _gateway(stand_in, harness) as platform:
                await stand_in.wait_messages(whole)
                await stand_in.wait_acknowledged()
                await trio.sleep(SECONDS)
            texts = [it.text for it in stand_in.messages]
            marked = [_name(it) for it in texts if MARK in it]
            plain = [_name(it) for it in texts if MARK not in it]
            where = f"after fact {facts} came {plain}, and marked {marked}"
            assert len(marked) <= 1, where
            assert len(plain) == len(set(plain)), where
            wanted = {_name(it.text) for it in platform.split(LONG_REPLY)}
            assert {*plain, *marked} == wanted, where
        harness.assert_laws()
        if not has_crashed:
            return
        facts += 1


def _name(text: str) -> str:
    """Return the name at the beginning of a part of the long reply."""
    return text.replace(MARK, "").strip()[:9]


LONG_REPLY: Final = "\n\n".join(
    f"Part {number:04}. " + "Some words of it. " * 12 for number in range(40)
)


@asynccontextmanager
async def _gateway(
    stand_in: StandIn, harness: Harness, *, reply: str = LONG_REPLY, crash_after: int | None = None
) -> AsyncGenerator[chat.Platform]:
    user = stand_in.user.id
    settings = chat.GatewaySettings(
        allow=tuple(f"{address.platform}:{user}" for address in stand_in.addresses)
    )
    agent = Agent("helper", model=ScriptedModel.always(reply))
    async with (
        stand_in.connect() as platform,
        harness.open(crash_after=crash_after) as orchestrator,
        chat.open_gateway(orchestrator, agent, [platform], settings=settings),
    ):
        yield platform


async def _error_of_send(platform: chat.Platform, address: chat.ChatAddress) -> Exception | None:
    await trio.lowlevel.checkpoint()
    (part,) = platform.split("Hello")
    try:
        await platform.send(address, part, key="one")
    except Exception as exc:  # noqa: BLE001 (which one it is, is what is checked)
        return exc
    return None


def _require_no_secrets(text: str, platform: chat.Platform) -> None:
    for secret in platform.secrets:
        assert secret not in text, "it tells a secret"
    assert "://" not in text, f"it has a URL: {text}"


CHECKS: Final[Sequence[Check]] = (
    a_message_is_heard_with_its_address_and_sender,
    a_message_that_comes_twice_has_one_id,
    what_was_not_taken_comes_to_the_next_process,
    a_fault_is_reported_and_what_was_said_is_heard,
    a_revoked_secret_ends_the_hearing,
    long_texts_are_split_as_the_platform_takes_them,
    a_reply_is_anchored_and_a_repetition_marked,
    a_pause_is_told_with_its_seconds,
    a_lost_answer_is_no_certain_failure,
    a_chat_that_is_gone_is_told_as_such,
    buttons_are_shown_pressed_and_taken_away,
    files_come_and_go_unchanged,
    an_answer_being_written_can_be_shown,
    each_message_is_answered_once_at_its_address,
    a_crash_after_any_fact_loses_and_doubles_nothing_unmarked,
)
"""All checks, for a parametrized test."""
