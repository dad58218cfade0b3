"""A gateway on a fake Telegram, for tests."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from orchestrator.agents import Agent, ScriptedModel, Transcript, UserMessage
from orchestrator.chat import Gateway, GatewaySettings, open_gateway
from orchestrator.products.chat.settings import Limits
from orchestrator.products.chat.telegram import open_telegram
from orchestrator.testing import Harness
from tests.chat.fakes.telegram import TOKEN, FakeTelegram

ADA, GROUP, TOPIC = 7, -100_200, 12
"""A person, a group, and a topic of it."""
SETTINGS = GatewaySettings(allow=(f"telegram:{ADA}",), limits=Limits(messages_per_minute=None))


def echoing(**given: Any) -> Agent[Any]:
    """Return an agent that says what it was told last."""
    return Agent("helper", model=ScriptedModel.always(last_message), **given)


def last_message(transcript: Transcript) -> str:
    found = [it for it in transcript if isinstance(it, UserMessage)]
    return f"You said: {found[-1].text}"


class Talk:
    """One gateway after another, on one journal and one Telegram."""

    def __init__(
        self, fake: FakeTelegram, agent: Agent[Any], settings: GatewaySettings = SETTINGS
    ) -> None:
        self.fake = fake
        self.agent = agent
        self.settings = settings
        self.harness = Harness()
        self.reports: list[str] = []

    @asynccontextmanager
    async def open(
        self, *, crash_after: int | None = None, has_telegram: bool = True, **given: Any
    ) -> AsyncGenerator[Gateway]:
        """Open a gateway, as a process would."""
        async with AsyncExitStack() as opened:
            telegram = await opened.enter_async_context(
                open_telegram(TOKEN, address=self.fake.address)
            )
            orchestrator = await opened.enter_async_context(
                self.harness.open(crash_after=crash_after)
            )
            self.orchestrator = orchestrator
            yield await opened.enter_async_context(
                open_gateway(
                    orchestrator,
                    self.agent,
                    [telegram] if has_telegram else [],
                    settings=self.settings,
                    report=self.reports.append,
                    **given,
                )
            )

    def facts_text(self) -> str:
        """Return all facts as the journal has them."""
        return "\n".join(repr(it.event) for it in self.harness.entries)


@asynccontextmanager
async def talking(
    agent: Agent[Any], settings: GatewaySettings = SETTINGS, **given: Any
) -> AsyncGenerator[tuple[Talk, FakeTelegram]]:
    """Open a gateway on a new Telegram."""
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent, settings)
        async with talk.open(**given):
            yield talk, fake
        talk.harness.assert_laws()


def with_settings(**given: Any) -> GatewaySettings:
    """Return the settings of tests with some of them changed."""
    return msgspec.structs.replace(SETTINGS, **given)
