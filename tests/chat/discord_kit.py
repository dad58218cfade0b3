"""Helpers for tests of Discord: the platform on the fake, and an inbox that records."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from orchestrator.agents import raising_one_error
from orchestrator.chat import ButtonPress, ChatAddress, ChatEvent, IncomingMessage
from orchestrator.products.chat.discord.platform import DiscordPlatform, open_discord
from tests.chat.fakes.discord import TOKEN, FakeDiscord, open_fake_discord


class Inbox:
    """Records what a platform has heard."""

    def __init__(self) -> None:
        self.events: list[ChatEvent] = []
        self.reports: list[str] = []
        self.anchors: dict[ChatAddress, str] = {}
        self.gate = trio.Event()
        """No event is durable before."""
        self.gate.set()
        self._changed = trio.lowlevel.ParkingLot()

    async def receive(self, event: ChatEvent) -> None:
        await self.gate.wait()
        self.events.append(event)
        self._changed.unpark_all()

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        await trio.lowlevel.checkpoint()
        return self.anchors

    def report(self, line: str) -> None:
        self.reports.append(line)
        self._changed.unpark_all()

    @property
    def messages(self) -> list[IncomingMessage]:
        return [it for it in self.events if isinstance(it, IncomingMessage)]

    @property
    def texts(self) -> list[str]:
        return [it.text for it in self.messages]

    @property
    def presses(self) -> list[ButtonPress]:
        return [it for it in self.events if isinstance(it, ButtonPress)]

    async def wait_events(self, count: int) -> list[ChatEvent]:
        await trio.lowlevel.checkpoint()
        while len(self.events) < count:
            await self._changed.park()
        return self.events

    async def wait_reports(self, count: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        while len(self.reports) < count:
            await self._changed.park()
        return self.reports


@attrs.frozen
class Connected:
    """A platform that hears a fake."""

    fake: FakeDiscord
    platform: DiscordPlatform
    inbox: Inbox


@asynccontextmanager
async def within_an_hour() -> AsyncGenerator[None]:
    """Fail what waits for ever: with heartbeats the jumping clock takes long for its year."""
    with trio.fail_after(3600):
        yield


@asynccontextmanager
async def open_platform(token: str = TOKEN) -> AsyncGenerator[tuple[FakeDiscord, DiscordPlatform]]:
    """Open the platform on a fake; it does not hear yet."""
    async with within_an_hour(), open_fake_discord() as fake:
        async with open_discord(token, url=fake.url) as platform:
            yield fake, platform
            assert fake.violations == []


@asynccontextmanager
async def connected(**settings: Any) -> AsyncGenerator[Connected]:
    """Open the platform on a fake, and let it hear."""
    async with open_platform() as (fake, platform):
        for name, value in settings.items():
            setattr(fake, name, value)
        inbox = Inbox()
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(platform.run, inbox)
                await fake.wait_connected()
                yield Connected(fake, platform, inbox)
                nursery.cancel_scope.cancel(reason="the test is over")
