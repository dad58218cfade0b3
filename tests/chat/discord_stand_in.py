"""The fake Discord, as the conformance checks of platforms want it.

Discord keeps nothing for a bot that was never there: a person writes once the bot has a session.
"""

import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import assert_never

import trio

from orchestrator.agents import raising_one_error
from orchestrator.chat import Button, ChatAddress, ChatUser, Platform
from orchestrator.products.chat.discord import open_discord
from orchestrator.testing.chat_conformance import NO_FILES, ChatFault, ShownMessage
from tests.chat.fakes.discord import (
    ADA,
    BOT,
    DIRECT,
    GENERAL,
    NAMES,
    THREAD,
    TOKEN,
    FakeDiscord,
    Message,
    open_fake_discord,
)
from tests.chat.fakes.discord_bodies import RefusedError


class DiscordStandIn:
    user = ChatUser(ADA, NAMES[ADA])
    addresses = (
        ChatAddress("discord", DIRECT),
        ChatAddress("discord", GENERAL),
        ChatAddress("discord", GENERAL, THREAD),
    )

    def __init__(self, fake: FakeDiscord, nursery: trio.Nursery, folder: Path) -> None:
        self.fake = fake
        self._nursery = nursery
        self._folder = folder
        # The checks send many messages at once, and wait for none.
        fake.limit = (1_000, 1.0)

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        file = self._folder / "session"
        return open_discord(TOKEN, session_file=file, url=self.fake.url)

    def say(self, address: ChatAddress, text: str, files: Mapping[str, bytes] = NO_FILES) -> str:
        mention = "" if address == self.addresses[0] else f"<@{BOT}> "
        said = self.fake.write(mention + text, channel=address.thread or address.chat, files=files)
        self._nursery.start_soon(self._announce, said)
        return said.id

    def say_again(self) -> None:
        last = [it for it in self.fake.messages.values() if it.author == ADA][-1]
        self._nursery.start_soon(self._announce, last)

    def press(self, message: ShownMessage, data: str) -> None:
        pressed = self.fake.messages[message.id]
        label = next(it for it, found in pressed.buttons.items() if found == data)
        self._nursery.start_soon(self.fake.press, pressed, label)

    def fail(self, fault: ChatFault) -> None:
        match fault:
            case ChatFault.PAUSE:
                self.fake.fail("POST /channels/{}/messages", status=429, retry_after=30)
            case ChatFault.LOST_ANSWER:
                self.fake.fail("POST /channels/{}/messages", lost="after")
            case ChatFault.GONE:
                refusal = RefusedError(403, 50007, "Cannot send messages to this user")
                self.fake.channels[DIRECT].refusal = refusal
            case ChatFault.NOT_HEARD:
                self.fake.refuses_sockets = 2
                self._nursery.start_soon(self.fake.cut_sockets)
            case ChatFault.REVOKED:
                self.fake.token = "another token"
            case _:
                assert_never(fault)

    @property
    def messages(self) -> Sequence[ShownMessage]:
        return [self._shown(it) for it in self.fake.sent()]

    async def wait_messages(self, count: int) -> Sequence[ShownMessage]:
        await self.fake.wait_sent(count)
        return self.messages

    async def wait_acknowledged(self) -> None:
        await self.fake.wait_handled()

    async def _announce(self, message: Message) -> None:
        await self.fake.wait_until(lambda: self.fake.has_session)
        await self.fake.announce(message)

    def _shown(self, message: Message) -> ShownMessage:
        channel = self.fake.channels[message.channel]
        thread = channel.id if channel.parent else ""
        return ShownMessage(
            id=message.id,
            address=ChatAddress("discord", channel.parent or channel.id, thread),
            text=message.content,
            anchor=message.reply_to,
            buttons=tuple(Button(*it) for it in message.buttons.items()),
            file=message.files[0].content if message.files else b"",
        )


@asynccontextmanager
async def open_discord_stand_in() -> AsyncGenerator[DiscordStandIn]:
    with tempfile.TemporaryDirectory() as folder, raising_one_error():
        async with open_fake_discord() as fake, trio.open_nursery() as nursery:
            yield DiscordStandIn(fake, nursery, Path(folder))
            nursery.cancel_scope.cancel(reason="the check is over")
            assert fake.violations == []
