"""The fake Slack, as the conformance tests of platforms want it: by Socket Mode."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import assert_never

import trio

from orchestrator.chat import Button, ChatAddress, ChatUser, Platform
from orchestrator.products.chat.slack.platform import open_slack
from orchestrator.testing.chat_conformance import NO_FILES, ChatFault, ShownMessage
from tests.chat.fakes.slack import (
    ADA,
    APP_TOKEN,
    BOB,
    BOT_TOKEN,
    BOT_USER,
    DIRECT,
    GENERAL,
    FakeSlack,
    Message,
    open_fake_slack,
)

QUESTION, DISCUSSION = "1700000001.000100", "1700000002.000100"
"""A message of Ada to the bot, whose answers are its thread, and a thread of Bob."""


class SlackStandIn:
    user = ChatUser(ADA, "Ada")
    addresses = (
        ChatAddress("slack", DIRECT),
        ChatAddress("slack", GENERAL, QUESTION),
        ChatAddress("slack", GENERAL, DISCUSSION),
    )

    def __init__(self, fake: FakeSlack) -> None:
        self.fake = fake
        # The kit counts what is heard; that a mention is told twice has tests of its own.
        fake.reads_channels = False
        fake.messages.append(
            Message(channel=GENERAL, ts=DISCUSSION, user=BOB, text="What do you think?")
        )

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        return open_slack(BOT_TOKEN, app_token=APP_TOKEN, url=self.fake.api_url)

    def say(self, address: ChatAddress, text: str, files: Mapping[str, bytes] = NO_FILES) -> str:
        if address.thread:
            text = f"<@{BOT_USER}> {text}"
        is_begun = bool(self.fake.find(address.chat, address.thread))
        said = self.fake.say(
            text,
            channel=address.chat,
            thread_ts=address.thread if is_begun else "",
            ts="" if is_begun else address.thread,
            files=[self.fake.add_file(*it) for it in files.items()],
        )
        return said.ts

    def say_again(self) -> None:
        self.fake.say_again()

    def press(self, message: ShownMessage, data: str) -> None:
        shown = self.fake.find(message.address.chat, message.id)
        assert shown is not None
        (label,) = (it.text for it in message.buttons if it.data == data)
        self.fake.press(shown, label)

    def fail(self, fault: ChatFault) -> None:
        match fault:
            case ChatFault.PAUSE:
                self.fake.fail("chat.postMessage", status=429, retry_after="30")
            case ChatFault.LOST_ANSWER:
                self.fake.fail("chat.postMessage", lost="after")
            case ChatFault.GONE:
                self.fake.channels[DIRECT].is_archived = True
            case ChatFault.NOT_HEARD:
                self.fake.fail("apps.connections.open", status=502)
                self.fake.fail("apps.connections.open", lost="before")
                self.fake.drop_sockets()
            case ChatFault.REVOKED:
                self.fake.is_revoked = True
            case _:
                assert_never(fault)

    @property
    def messages(self) -> Sequence[ShownMessage]:
        return [self._shown(it) for it in self.fake.replies()]

    async def wait_messages(self, count: int) -> Sequence[ShownMessage]:
        await self.fake.wait_for(lambda: len(self.fake.replies()) >= count)
        return self.messages

    async def wait_acknowledged(self) -> None:
        await self.fake.wait_told()

    def _shown(self, message: Message) -> ShownMessage:
        files = [self.fake.files[it].content or b"" for it in message.files]
        return ShownMessage(
            id=message.ts,
            address=ChatAddress("slack", message.channel, message.thread_ts),
            text=message.shown,
            buttons=tuple(Button(label, it["value"]) for label, it in message.buttons.items()),
            file=b"".join(files),
        )


@asynccontextmanager
async def open_slack_stand_in() -> AsyncGenerator[SlackStandIn]:
    async with open_fake_slack() as fake:
        yield SlackStandIn(fake)
        await trio.lowlevel.checkpoint()
        assert fake.violations == []
