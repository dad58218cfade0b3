"""Coordination metrics are counted from the facts of a run."""

from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    Limits,
    ModelError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    tool,
)
from orchestrator.evaluation import Coordination, coordination
from tests.kit import hand_on


@tool
async def look(at: str) -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return f"seen {at}"


async def metrics_of(team: Agent[Any]) -> Coordination:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(team, "go")
    return coordination(journal.entries)


def lead(*steps: Any, delegates: list[Agent[Any]]) -> Agent:
    return Agent("lead", model=ScriptedModel([*steps]), delegates=delegates)


async def test_overhead_and_messages_count_answers_of_models() -> None:
    def work(transcript: Transcript) -> Any:
        looked = sum(isinstance(it, ToolMessage) for it in transcript)
        return ToolCall("look", {"at": "x"}) if looked < 2 else "red green"

    worker = Agent("worker", model=ScriptedModel.always(work), tools=[look])
    found = await metrics_of(lead(hand_on("a", "b"), "done", delegates=[worker]))

    assert (found.calls, found.single_agent_calls) == (8, 5)
    assert found.overhead == pytest.approx(0.6)
    assert found.messages_per_answer == pytest.approx(4 / 8), "two requests and two results"
    assert found.redundancy == pytest.approx(1.0)
    assert (found.repeated_steps, found.steps) == (2, 5)
    assert found.error_amplification is None
    assert found.premature_ends == ()
    assert found.lines()[0] == "overhead +60% (8 model answers, one agent needs about 5)"


async def test_redundancy_is_the_mean_over_pairs_of_siblings() -> None:
    answers = {"a": "red green", "b": "red blue", "c": "black white"}
    model = ScriptedModel.always(lambda said: answers[said[0].text.splitlines()[-1]])
    found = await metrics_of(
        lead(hand_on("a", "b", "c"), "done", delegates=[Agent("worker", model=model)])
    )

    assert found.redundancy == pytest.approx((0.5 + 0 + 0) / 3)


async def test_an_error_that_takes_dependents_along_is_amplified() -> None:
    tasks = [
        {"label": "one", "agent": "worker", "goal": "1"},
        {"label": "two", "agent": "worker", "goal": "2", "depends_on": ["one"]},
        {"label": "tri", "agent": "worker", "goal": "3", "depends_on": ["two"]},
    ]
    worker = Agent("worker", model=ScriptedModel.always(ModelError("no")))
    chain = ToolCall("delegate_task", {"tasks": tasks, "background": False})
    found = await metrics_of(lead(chain, "sorry", delegates=[worker]))

    assert (found.error_origins, found.unsuccessful) == (1, 3)
    assert found.error_amplification == pytest.approx(3.0)


async def test_ends_by_a_limit_or_without_an_answer_are_premature() -> None:
    limited = Agent(
        "limited",
        model=ScriptedModel.always(ToolCall("look", {"at": "x"})),
        tools=[look],
        limits=Limits(calls=2),
    )
    silent = Agent("silent", model=ScriptedModel.always(""))
    call = ToolCall(
        "delegate_task",
        {
            "tasks": [{"agent": "limited", "goal": "a"}, {"agent": "silent", "goal": "b"}],
            "background": False,
        },
    )
    found = await metrics_of(lead(call, "done", delegates=[limited, silent]))

    assert set(found.premature_ends) <= {"/lead/limited[1]", "/lead/silent[1]"}
    assert "/lead/limited[1]" in found.premature_ends
