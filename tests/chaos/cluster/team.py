"""The team of a round: loaded by its writers, and by `orchestrator worker`.

Every tool call is lent, and writes to a log what it does to the world. A model answers by the
conversation alone, and writes down that it was asked: so the provider's count is outside, too.
"""

import os
import random
import re
from collections.abc import Callable
from typing import Final

import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    CallKey,
    ScriptedModel,
    ToolCall,
    Transcript,
    tool,
)
from tests.chaos.cluster.home import Home
from tests.chaos.cluster.work import BUYERS, DETACHED, JOINED, SHOP_CALLS

NOTICE: Final = re.compile(r"has ended: \S+ \((\S+?), '([^']+)'\)")

_home = Home.of_process()


@tool(place="gpu")
async def launch(tag: str) -> str:
    """Do what must not be done twice."""
    _home.write(_home.effects, "launch", tag=tag, pid=os.getpid())
    await trio.sleep(random.uniform(0.05, 0.3))
    _home.write(_home.effects, "launched", tag=tag, pid=os.getpid())
    return f"launched {tag}"


@tool(place="gpu", idempotent=True)
async def measure(tag: str, key: CallKey) -> str:
    """Do what may be done twice."""
    _home.write(_home.effects, "measure", tag=tag, key=key, pid=os.getpid())
    await trio.sleep(random.uniform(0.02, 0.1))
    return f"measured {tag}"


def _model(answer: "Callable[[Transcript, int], str | ToolCall]") -> ScriptedModel:
    def step(transcript: Transcript) -> str | ToolCall:
        answers = sum(isinstance(it, AssistantMessage) for it in transcript)
        _home.write(
            _home.requests,
            "asked",
            tag=transcript[0].text,
            step=answers,
            told=[it for text in transcript for it in NOTICE.findall(text.text)],
        )
        return answer(transcript, answers)

    return ScriptedModel.always(step, 0.01)


def _leaf(transcript: Transcript, answers: int) -> str | ToolCall:
    tag = transcript[0].text
    match answers:
        case 0:
            return ToolCall("launch", {"tag": tag})
        case 1:
            return ToolCall("measure", {"tag": tag})
        case _:
            return " and ".join(it.text for it in transcript if it.text.strip())


def _delegations(agent: str, tags: list[str], *, background: bool) -> ToolCall:
    tasks = [{"agent": agent, "goal": tag, "label": tag} for tag in tags]
    return ToolCall("delegate_task", {"tasks": tasks, "background": background})


def _shop(_: Transcript, answers: int) -> str | ToolCall:
    if answers:
        return "shopped"
    tags = [f"buy-{number}" for number in range(BUYERS)]
    return _delegations("leaf", tags, background=False)


def _boss(_: Transcript, answers: int) -> str | ToolCall:
    match answers:
        case 0:
            tags = [f"detached-{number}" for number in range(DETACHED)]
            return _delegations("leaf", tags, background=True)
        case 1:
            return _delegations("shop", ["shop"], background=True)
        case 2:
            tags = [f"joined-{number}" for number in range(JOINED)]
            return _delegations("leaf", tags, background=False)
        case _:
            return "noted"


leaf = Agent("leaf", model=_model(_leaf), tools=[launch, measure])
shop = Agent("shop", model=_model(_shop), delegates=[leaf], budget=Budget(calls=SHOP_CALLS))
boss = Agent("boss", model=_model(_boss), delegates=[leaf, shop])
