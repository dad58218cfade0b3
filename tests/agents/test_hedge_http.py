"""A slow call is repeated over real connections, in the protocol of each provider."""

import h11
import pytest
import trio

from orchestrator import Machine, MemoryJournal, Run, open_orchestrator
from orchestrator.agents import Agent, Budget
from orchestrator.agents.models.registry import CloseableModel, model_named
from orchestrator.delegation.events import ModelCalled, ModelFailed
from orchestrator.models import with_hedge
from orchestrator.products.history.replay.run import replay
from orchestrator.testing import assert_laws
from tests.fake_provider import FakeProvider, Heard, Say, Then, send_reply, serving
from tests.kit import facts

NAMES = ["openai:m", "openai-responses:m", "anthropic:m"]
ANSWER = Say(text="hello", read=9, wrote=3)

pytestmark = pytest.mark.realtime


class SlowProvider(FakeProvider):
    """Answers one of two requests, after it has got both, and is silent to the other one."""

    def __init__(self, answered: int) -> None:
        super().__init__()
        self._answered = answered

    async def answer(
        self, http: h11.Connection, connection: trio.SocketStream, heard: Heard
    ) -> Then:
        reply = ANSWER if len(self.heard) == self._answered else Then.SILENCE
        await self.wait_asked(2)
        return await send_reply(http, connection, heard, reply)


def model_at(name: str, url: str) -> CloseableModel:
    base = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    return model_named(name, {**base, "OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-1"})


@pytest.mark.parametrize("answered", [1, 2])
@pytest.mark.parametrize("name", NAMES)
async def test_the_connection_of_the_slower_call_is_closed_and_both_are_paid(
    name: str, answered: int
) -> None:
    journal = MemoryJournal()
    async with serving(SlowProvider(answered)) as provider:
        model = model_at(name, provider.url)
        hedged = with_hedge(model, first_seconds=0.01)
        agent = Agent("worker", model=hedged, budget=Budget(calls=2, tokens=100_000))
        async with open_orchestrator(journal, machine=Machine(environ={})) as orchestrator:
            run: Run[str] = await orchestrator.run(agent, "go")
            # The answering connection stays open for the next call.
            await provider.was_left.wait()
        replayed = await replay(journal.entries, agent)
        await model.aclose()

    assert run.output == "hello"
    assert provider.connections == len(provider.heard) == 2
    assert provider.heard[0].body == provider.heard[1].body
    first, both, *_ = facts(journal.entries, ModelCalled)
    assert both.reserved == first.reserved + first.reserved
    (lost,) = facts(journal.entries, ModelFailed)
    assert lost.charged is not None
    assert lost.charged.tokens == first.reserved.tokens
    assert run.usage.calls == 2
    assert_laws(journal.entries)
    # The replay has called no provider.
    assert replayed.difference is None, replayed.difference
