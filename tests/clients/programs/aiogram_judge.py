"""aiogram talks to the fake Telegram: address and token are the arguments."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramConflictError,
    TelegramForbiddenError,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    MessageEntity,
    ReplyParameters,
)
from judge_kit import run_checks

ADDRESS, TOKEN = sys.argv[1:]


def control(what: str, **given: object) -> object:
    body = json.dumps(given).encode()
    with urllib.request.urlopen(f"{ADDRESS}/control/{what}", body) as answer:
        return json.load(answer)


def bot(token: str = TOKEN) -> Bot:
    server = TelegramAPIServer.from_base(ADDRESS)
    return Bot(token, session=AiohttpSession(api=server))


async def expect(kind: type[Exception], call: object) -> Exception:
    try:
        await call  # type: ignore[misc]
    except kind as exc:
        return exc
    raise AssertionError(f"no {kind.__name__}")


async def updates_of(it: Bot, count: int) -> list:
    found: list = []
    while len(found) < count:
        offset = found[-1].update_id + 1 if found else None
        found += await it.get_updates(offset=offset, timeout=5)
    await it.get_updates(offset=found[-1].update_id + 1, timeout=0)
    return found


async def check_me(it: Bot) -> None:
    assert (await it.get_me()).username == "helper_bot"


async def check_a_message_and_its_answer(it: Bot) -> None:
    control("say", text="Hello @helper_bot", chat=-100500, topic=3)
    (update,) = await updates_of(it, 1)
    message = update.message
    assert message.is_topic_message
    assert message.message_thread_id == 3
    sent = await message.as_(it).reply("Hi")
    assert sent.reply_to_message.message_id == message.message_id
    assert sent.message_thread_id == 3


async def check_formatting(it: Bot) -> None:
    bold = MessageEntity(type="bold", offset=0, length=2)
    sent = await it.send_message(7, "Hi", entities=[bold])
    assert sent.entities[0].type == "bold"


async def check_typing(it: Bot) -> None:
    assert await it.send_chat_action(7, "typing")


async def check_buttons(it: Bot) -> None:
    key = InlineKeyboardButton(text="Yes", callback_data="y")
    keys = InlineKeyboardMarkup(inline_keyboard=[[key]])
    sent = await it.send_message(7, "May I?", reply_markup=keys)
    control("press", message=sent.message_id, data="y")
    (update,) = await updates_of(it, 1)
    query = update.callback_query
    assert query.data == "y"
    assert await it.answer_callback_query(query.id, text="Thanks")
    edited = await it.edit_message_text("Yes", chat_id=7, message_id=query.message.message_id)
    assert edited.reply_markup is None


async def check_files(it: Bot) -> None:
    file = control("file", name="a.txt", text="content")
    control("say", document=file, caption="Look")
    (update,) = await updates_of(it, 1)
    document = await it.get_file(update.message.document.file_id)
    assert (await it.download_file(document.file_path)).read() == b"content"
    sent = await it.send_document(7, BufferedInputFile(b"1,2", "b.csv"))
    assert sent.document.file_name == "b.csv"


async def check_refusals(it: Bot) -> None:
    await expect(TelegramBadRequest, it.send_message(999, "x"))
    await expect(TelegramBadRequest, it.send_message(7, "x" * 4097))
    await expect(TelegramBadRequest, it.send_message(7, "x", message_thread_id=5))
    gone = ReplyParameters(message_id=12345)
    await expect(TelegramBadRequest, it.send_message(7, "x", reply_parameters=gone))
    async with bot("42:wrong") as other:
        await expect(TelegramUnauthorizedError, other.get_me())


async def check_faults(it: Bot) -> None:
    control("fail", method="sendMessage", code=429, retry_after=7)
    error = await expect(TelegramRetryAfter, it.send_message(7, "x"))
    assert error.retry_after == 7
    control("fail", method="sendMessage", code=502, description="Bad Gateway")
    await expect(TelegramServerError, it.send_message(7, "x"))
    control("fail", method="sendMessage")
    await expect(TelegramNetworkError, it.send_message(7, "x"))
    control("say", text="x", user=8)
    await updates_of(it, 1)
    control("block", chat=8)
    await expect(TelegramForbiddenError, it.send_message(8, "x"))


async def check_two_pollers(it: Bot) -> None:
    first = asyncio.create_task(it.get_updates(timeout=5))
    await asyncio.sleep(0.3)
    async with bot() as other:
        await other.get_updates(timeout=0)
    await expect(TelegramConflictError, first)


async def main() -> None:
    checks = [it for name, it in globals().items() if name.startswith("check_")]
    async with bot() as it:
        control("say", text="x")
        await updates_of(it, 1)
        await run_checks(*(named(check, it) for check in checks))


def named(check: Callable[[Bot], Awaitable[None]], it: Bot) -> Callable[[], Awaitable[None]]:
    """Return a check of this bot, under its name."""
    bound = partial(check, it)
    bound.__name__ = check.__name__.removeprefix("check_")
    return bound


asyncio.run(main())
