"""A bot in the fake workspace, and an inbox that keeps what it hears."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.chat import ChatAddress, ChatEvent, IncomingMessage
from orchestrator.products.chat.slack.platform import SlackPlatform, open_slack
from orchestrator.products.server.chat_webhooks import open_chat_webhooks
from orchestrator.products.server.transport.listener import Listening
from tests.chat.fakes.slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, FakeSlack, open_fake_slack


@attrs.define
class KeptInbox:
    """Takes all events, unless it is told to take its time, or to raise."""

    events: list[ChatEvent] = attrs.field(factory=list)
    lines: list[str] = attrs.field(factory=list)
    seconds: float = 0
    errors: list[Exception] = attrs.field(factory=list)

    async def receive(self, event: ChatEvent) -> None:
        await trio.sleep(self.seconds)
        if self.errors:
            raise self.errors.pop()
        self.events.append(event)

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        await trio.lowlevel.checkpoint()
        return {}

    def report(self, line: str) -> None:
        self.lines.append(line)

    @property
    def messages(self) -> list[IncomingMessage]:
        return [it for it in self.events if isinstance(it, IncomingMessage)]


@attrs.frozen
class Bot:
    """A bot in the workspace."""

    fake: FakeSlack
    slack: SlackPlatform
    inbox: KeptInbox


@asynccontextmanager
async def bot_by_socket() -> AsyncGenerator[Bot]:
    """Run a bot that hears by Socket Mode, as long as the block lasts."""
    inbox = KeptInbox()
    async with (
        open_fake_slack() as fake,
        open_slack(BOT_TOKEN, app_token=APP_TOKEN, url=fake.api_url) as slack,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(slack.run, inbox)
        yield Bot(fake, slack, inbox)
        nursery.cancel_scope.cancel(reason="the test is over")
        assert fake.violations == []


@asynccontextmanager
async def bot_by_requests() -> AsyncGenerator[Bot]:
    """Run a bot that hears by the Events API, as long as the block lasts."""
    inbox = KeptInbox()
    async with (
        open_fake_slack() as fake,
        open_slack(BOT_TOKEN, signing_secret=SIGNING_SECRET, url=fake.api_url) as slack,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(slack.run, inbox)
        listening, redactor = Listening(port=0), Redactor()
        async with open_chat_webhooks(slack.webhooks(inbox), listening, redactor) as address:
            fake.request_url = f"{address}/slack"
            yield Bot(fake, slack, inbox)
        nursery.cancel_scope.cancel(reason="the test is over")
        assert fake.violations == []
