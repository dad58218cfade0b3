"""`python -m tests.chat.judges`: let clients that others wrote judge the fakes of chat platforms.

Each client runs in an environment of its own, talks to the fake as its users would, and says what
it thinks of it: a line for each check. A player on our side does what people do meanwhile.
"""

import argparse
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import time
from typing import Final, TypeAlias

import attrs
import trio

from orchestrator.products.chat.slack.signature import sign
from tests.chat.fakes import slack, telegram
from tests.chat.fakes.discord import GENERAL, TOKEN, FakeDiscord, Message, open_fake_discord
from tests.chat.fakes.discord_bodies import RefusedError
from tests.chat.fakes.telegram import FakeTelegram
from tests.clients.environments import Client, prepare

PATIENCE: Final = 120
"""How many seconds one client may take."""
OpenFake: TypeAlias = Callable[[], AbstractAsyncContextManager[Sequence[str]]]
"""Plays a platform and its people, and gives what the program of a client is told."""


@attrs.frozen
class Judge:
    """A client, and the fake that it judges."""

    client: Client
    open_fake: OpenFake


@asynccontextmanager
async def play_discord() -> AsyncGenerator[Sequence[str]]:
    async with open_fake_discord() as fake, trio.open_nursery() as nursery:
        refusal = RefusedError(403, 50001, "Missing Access")
        fake.channels["7999"] = attrs.evolve(
            fake.channels[GENERAL], id="7999", name="closed", refusal=refusal
        )
        nursery.start_soon(_obey, fake)
        yield fake.url, fake.gateway_url, TOKEN
        nursery.cancel_scope.cancel(reason="the judge has spoken")


async def _obey(fake: FakeDiscord) -> None:
    """Do what a person would do at the messages of the bot."""
    seen = 0
    while True:
        for message in (await fake.wait_sent(seen + 1))[seen:]:
            seen += 1
            await _react(fake, message)


async def _react(fake: FakeDiscord, message: Message) -> None:
    await trio.lowlevel.checkpoint()
    match message.content:
        case "press the button":
            *_, last = (it for it in fake.sent() if it.buttons)
            await fake.press(last, next(iter(last.buttons)))
        case "say hello":
            await fake.say("hello", channel=message.channel, reply_to=message.id)
        case "send a file":
            await fake.say("", channel=message.channel, files={"note.txt": b"a note"})
        case "cut the connection":
            await fake.cut_sockets()
            await fake.say("said meanwhile", channel=message.channel)
        case "ask for another connection":
            await fake.send_to_all({"op": 7, "d": None})
            await fake.say("said meanwhile", channel=message.channel)
        case _:
            pass


@asynccontextmanager
async def play_telegram() -> AsyncGenerator[Sequence[str]]:
    """Play Telegram: its people do what the client asks for by a path of the server's own."""
    async with FakeTelegram().open() as fake:
        yield fake.address, telegram.TOKEN


@asynccontextmanager
async def play_slack() -> AsyncGenerator[Sequence[str]]:
    async with slack.open_fake_slack() as fake, trio.open_nursery() as nursery:
        nursery.start_soon(_talk_on_slack, fake)
        body, now = '{"type":"event_callback","event":{"text":"é"}}', str(int(time()))
        told = {
            "url": fake.api_url,
            "token": slack.BOT_TOKEN,
            "app_token": slack.APP_TOKEN,
            "secret": slack.SIGNING_SECRET,
            "bot": slack.BOT_USER,
            "user": slack.ADA,
            "channel": slack.GENERAL,
            "body": body,
            "timestamp": now,
            "signature": sign(slack.SIGNING_SECRET, now, body.encode()),
        }
        yield (json.dumps(told),)
        nursery.cancel_scope.cancel(reason="the judge has spoken")
        assert fake.violations == []


async def _talk_on_slack(fake: slack.FakeSlack) -> None:
    """Limit the rate after a first call, and talk to the bot when it is connected."""
    await fake.wait_for(lambda: any(it.method == "users.info" for it in fake.calls))
    fake.fail("users.info", times=2, status=429, retry_after="1")
    await fake.wait_for(lambda: bool(fake.sockets))
    before = len(fake.replies())
    fake.say(f"<@{slack.BOT_USER}> look", channel=slack.GENERAL)
    await fake.wait_for(lambda: len(fake.replies()) > before)
    asked = fake.replies()[-1]
    fake.press(asked, "Yes")
    await fake.wait_for(lambda: asked.text == "ok")
    (old,) = fake.sockets
    await fake.refresh_sockets()
    await old.socket.aclose()
    await fake.wait_for(lambda: bool(fake.sockets) and old not in fake.sockets)
    fake.say("hello")


JUDGES: Final = (
    Judge(
        Client("python-telegram-bot", "python-telegram-bot", "telegram_bot_judge.py"), play_telegram
    ),
    Judge(Client("aiogram", "aiogram", "aiogram_judge.py"), play_telegram),
    Judge(Client("slack-sdk and Bolt", "slack", "slack_judge.py"), play_slack),
    Judge(Client("discord.py", "discord-py", "discord_py_judge.py"), play_discord),
    Judge(Client("hikari", "hikari", "hikari_judge.py"), play_discord),
)


async def judge_all(judges: Sequence[Judge]) -> bool:
    """Run the judges, and return whether all were content."""
    is_fine = True
    for judge in judges:
        command = await prepare(judge.client)
        async with judge.open_fake() as told:
            # Nothing of this repository is on its path.
            environ = {"PATH": "/usr/bin:/bin", "HOME": str(judge.client.folder)}
            with trio.fail_after(PATIENCE):
                done = await trio.run_process(
                    [*command, *told],
                    cwd=judge.client.folder,
                    env=environ,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                )
        checks = [json.loads(line) for line in done.stdout.splitlines()]
        for it in checks:
            verdict = "ok" if it["works"] else f"NO: {it['error']}"
            print(f"{judge.client.title}: {it['check']}: {verdict}", flush=True)
        if done.returncode or not checks or not all(it["works"] for it in checks):
            print(done.stderr.decode()[-3000:], file=sys.stderr)
            is_fine = False
    return is_fine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chat.judges", description=__doc__)
    names = [it.client.pins for it in JUDGES]
    parser.add_argument("judges", nargs="*", metavar="judge", help=", ".join(names))
    asked = parser.parse_args()
    if unknown := set(asked.judges) - set(names):
        parser.error(f"no such judge: {', '.join(sorted(unknown))}")
    chosen = [it for it in JUDGES if not asked.judges or it.client.pins in asked.judges]
    return 0 if trio.run(partial(judge_all, chosen)) else 1


if __name__ == "__main__":
    sys.exit(main())
