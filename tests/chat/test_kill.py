"""kill -9 in the midst of many chats: each message is answered in its chat, and a double is marked.

`make chaos` kills oftener, in a hundred chats: CHATS=100 KILLS=8.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from orchestrator.products.chat.replies import MARK
from tests.chat.fakes.telegram import TOKEN, FakeTelegram

CHATS = int(os.environ.get("CHATS", "10"))
KILLS = int(os.environ.get("KILLS", "1"))
GROUP = -100_777
PROGRAM = Path(__file__).with_name("gateway_program.py")


@asynccontextmanager
async def running(fake: FakeTelegram, journal: Path) -> AsyncGenerator[trio.Process]:
    """Run a gateway as a process of its own, and kill it at the end."""
    process = await trio.lowlevel.open_process(
        [
            *(sys.executable, "-m", "orchestrator", "gateway", f"{PROGRAM}:lead"),
            *("--telegram", "--allow", "telegram:*", "--journal", str(journal)),
        ],
        env={**os.environ, "TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_URL": fake.address},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()


@pytest.mark.realtime
async def test_kill_9_amid_chats_with_detached_children(tmp_path: Path) -> None:
    chance = random.Random(CHATS * 1000 + KILLS)
    async with FakeTelegram().open() as fake:
        said: dict[int, tuple[str, int, int | None]] = {}
        for number in range(CHATS):
            # Half of them in private, half in topics of groups, of which each takes twenty
            # messages a minute.
            topic = 100 + number if number % 2 else None
            chat = GROUP - number // 12 if topic else 1000 + number
            words = f"count item{number}"
            text = f"@helper_bot {words}" if topic else words
            message = fake.say(text, user=1000 + number, chat=chat, topic=topic)
            said[message] = (f"item{number}", chat, topic)
        wanted = 2 * CHATS
        for round_ in range(KILLS):
            async with running(fake, tmp_path / "gateway.db"):
                # After a share of the answers, at any moment.
                await fake.wait_sent(wanted * (round_ + 1) // (KILLS + 1))
                await trio.sleep(chance.random() / 10)
        async with running(fake, tmp_path / "gateway.db"):
            with trio.fail_after(120):
                while len(_answers(fake)) < wanted:
                    await fake.wait_sent(len(fake.sent) + 1)
                await fake.wait_heard()
        for answer in fake.sent:
            anchor = answer["reply_to_message"]["message_id"]
            item, chat, topic = said[anchor]
            assert answer["text"].endswith(item), "it answers another message"
            assert answer["chat"]["id"] == chat
            assert answer.get("message_thread_id") == topic
        plain = Counter(it for it in fake.texts() if MARK not in it)
        doubled = [it for it, count in plain.items() if count > 1]
        assert not doubled, f"doubled without a mark: {doubled}"
        marked = [it for it in fake.texts() if MARK in it]
        assert len(marked) <= KILLS * CHATS


def _answers(fake: FakeTelegram) -> set[str]:
    return {it.replace(MARK, "").strip() for it in fake.texts()}
