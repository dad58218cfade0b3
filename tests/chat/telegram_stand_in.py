"""The fake Telegram, as the conformance tests of platforms want it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, assert_never

from orchestrator.chat import Button, ChatAddress, ChatUser, Platform
from orchestrator.products.chat.telegram import open_telegram
from orchestrator.testing.chat_conformance import NO_FILES, ChatFault, ShownMessage
from tests.chat.fakes.telegram import TOKEN, FakeTelegram, Fault

USER, GROUP, TOPIC = 7, -100_123, 12


class TelegramStandIn:
    user = ChatUser(str(USER), f"Person {USER}")
    addresses = (
        ChatAddress("telegram", str(USER)),
        ChatAddress("telegram", str(GROUP)),
        ChatAddress("telegram", str(GROUP), str(TOPIC)),
    )

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake
        fake.chat(USER)
        fake.chat(GROUP, topics={TOPIC})

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        return open_telegram(TOKEN, address=self.fake.address)

    def say(self, address: ChatAddress, text: str, files: Mapping[str, bytes] = NO_FILES) -> str:
        fields: dict[str, Any] = {}
        for name, content in files.items():
            fields["document"] = self.fake.add_file(name, content)
            fields["caption"] = text
        is_private = address == self.addresses[0]
        shown = text if is_private else f"@helper_bot {text}"
        topic = int(address.thread) if address.thread else None
        said = "" if files else shown
        return str(self.fake.say(said, user=USER, chat=int(address.chat), topic=topic, **fields))

    def say_again(self) -> None:
        self.fake.send_last_again()

    def press(self, message: ShownMessage, data: str) -> None:
        self.fake.press(int(message.id), data, user=USER, chat=int(message.address.chat))

    def fail(self, fault: ChatFault) -> None:
        match fault:
            case ChatFault.PAUSE:
                self.fake.fail("sendMessage", Fault(429, retry_after=30))
            case ChatFault.LOST_ANSWER:
                self.fake.fail("sendMessage", Fault(is_done=True))
            case ChatFault.GONE:
                self.fake.chat(USER).is_blocked = True
            case ChatFault.NOT_HEARD:
                faults = (Fault(502, "Bad Gateway"), Fault(), Fault(500))
                self.fake.fail("getUpdates", *faults)
            case ChatFault.REVOKED:
                self.fake.is_revoked = True
            case _:
                assert_never(fault)

    @property
    def messages(self) -> Sequence[ShownMessage]:
        return [_shown(it, self.fake) for it in self.fake.sent]

    async def wait_messages(self, count: int) -> Sequence[ShownMessage]:
        await self.fake.wait_sent(count)
        return self.messages

    async def wait_acknowledged(self) -> None:
        await self.fake.wait_heard()


def _shown(message: Mapping[str, Any], fake: FakeTelegram) -> ShownMessage:
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    topic = message.get("message_thread_id", "")
    file = message.get("document", {}).get("file_id", "")
    return ShownMessage(
        id=str(message["message_id"]),
        address=ChatAddress("telegram", str(message["chat"]["id"]), str(topic)),
        text=message.get("text", ""),
        anchor=str(message.get("reply_to_message", {}).get("message_id", "")),
        buttons=tuple(Button(it["text"], it["callback_data"]) for row in rows for it in row),
        file=fake.files.get(file, b""),
    )


@asynccontextmanager
async def open_telegram_stand_in() -> AsyncGenerator[TelegramStandIn]:
    async with FakeTelegram().open() as fake:
        yield TelegramStandIn(fake)
