"""The agents of a soak: some work, one beats in the event loop, and one measures it."""

import os
from typing import Any

import msgspec
import trio

from orchestrator.agents import Agent, AssistantMessage, Limits, ModelRequest, ScriptedModel, Usage
from orchestrator.agents.messages import UserMessage
from orchestrator.kernel.journal import session_cache
from orchestrator.products.server import run_summaries
from tests.kit import hand_on
from tests.soak.probe import Probe

if resting := os.environ.get("SOAK_RESTING_TASKS"):
    # In a short soak the cache of sessions has to be full soon, or it looks like a leak.
    session_cache.MAX_RESTING_TASKS = int(resting)  # type: ignore[misc]

# The summaries for lists of runs would take 75,000 sessions to fill their share of memory.
run_summaries.MAX_BYTES = 200_000  # type: ignore[misc]

probe = Probe()


class Beating:
    """A model that never answers, and beats in the event loop meanwhile."""

    name = "beating"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await probe.beat_forever()


class Measuring:
    """A model that answers with a measurement of its process."""

    name = "measuring"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        text = msgspec.json.encode(probe.measure()).decode()
        return AssistantMessage(text, usage=Usage(calls=1), model=self.name)


def lead_on(transcript: Any) -> Any:
    """Delegate two tasks for each message, and answer when they are done."""
    is_asked = isinstance(transcript[-1], UserMessage)
    is_news = is_asked and "[" in transcript[-1].text
    return hand_on("one", "two") if is_asked and not is_news else "done"


helper = Agent("helper", model=ScriptedModel.always("here it is"))
lead = Agent("lead", model=ScriptedModel.always(lead_on), delegates=[helper])
beating = Agent("beating", model=Beating(), limits=Limits(seconds=None))
measuring = Agent("measuring", model=Measuring())
