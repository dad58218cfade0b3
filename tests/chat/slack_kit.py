"""A bot in the fake workspace, and an inbox that keeps what it hears."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio
from starlette.types import Receive, Scope, Send

from orchestrator.chat import ChatEvent, IncomingMessage, WebhookCall
from orchestrator.chat.slack.platform import SlackPlatform, open_slack
from orchestrator.server.transport.connections import Connections
from orchestrator.server.transport.listener import Listening, bind
from tests.chat.fakes.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    SIGNING_SECRET,
    FakeSlack,
    open_fake_slack,
)


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
        bound = bind(Listening(port=0))
        webhooks = slack.webhooks(inbox)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            body = b""
            while (piece := await receive()).get("more_body"):
                body += piece["body"]
            headers = {
                name.decode(): value.decode() for name, value in scope["headers"]
            }
            call = WebhookCall(headers, body + piece.get("body", b""))
            found = await webhooks[scope["path"]](call)
            length = str(len(found.body)).encode()
            await send(
                {
                    "type": "http.response.start",
                    "status": found.status,
                    "headers": [(b"content-length", length)],
                }
            )
            await send({"type": "http.response.body", "body": found.body})

        log = logging.getLogger("tests.slack_bot")
        log.disabled = True
        await nursery.start(Connections(answer, log).serve, bound, trio.Event())
        fake.request_url = f"http://127.0.0.1:{bound.getsockname()[1]}/slack"
        yield Bot(fake, slack, inbox)
        nursery.cancel_scope.cancel(reason="the test is over")
        assert fake.violations == []
