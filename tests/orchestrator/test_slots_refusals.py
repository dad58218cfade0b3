"""A task over a limit of kind is refused, and the model reads why."""

import json
from typing import Any

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation import Rules
from orchestrator.testing import SpyModel
from tests.kit import editor, hand_on, last_text, worker, worker_on
from tests.orchestrator.slots_kit import counting, goals, paths, run_under


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"depth": 0}, "0 levels deep"),
        ({"children_per_call": 0}, "one call may ask for 0 tasks at most"),
        ({"live_children": 0}, "the rules allow no task to run at all"),
        ({"live_tasks": 0}, "the rules allow no task to run at all"),
    ],
)
async def test_a_rule_of_zero_refuses_delegation_and_the_model_continues(
    rules: dict[str, int], why: str
) -> None:
    read: list[str] = []

    def alone(transcript: Transcript) -> str:
        read.append(last_text(transcript))
        return "did it myself"

    counter = counting()
    finished = await run_under(
        editor(hand_on("part"), alone, delegates=[worker_on(counter)]), **rules
    )

    assert finished.output == "did it myself"
    assert why in read[0]
    assert (counter.goals, len(finished.tree)) == ([], 1)


async def test_a_background_limit_of_zero_joins_the_task_with_a_note() -> None:
    counter = counting(10)
    agent = editor(hand_on("part", background=True), last_text, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(detached=0)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            answer = json.loads((await session.ask("go")).text)

    assert answer["status"] == "completed"
    assert "the rules allow nothing in the background" in answer["note"]
    assert trio.current_time() >= 10


async def test_too_many_in_one_call_are_refused_as_a_whole() -> None:
    """Never truncated in silence."""
    counter = counting()
    read: list[str] = []

    def again(transcript: Transcript) -> ToolCall:
        read.append(last_text(transcript))
        return hand_on(*goals(3))

    agent = editor(hand_on(*goals(4)), again, "end", delegates=[worker_on(counter)])
    finished = await run_under(agent, children_per_call=3)

    assert read == [
        "one call may ask for 3 tasks at most, and this one asks for 4; no task was started"
    ]
    assert finished.tree.counts() == {"succeeded": 4}
    assert sorted(counter.goals) == goals(3)


async def test_the_deepest_level_is_refused_and_the_one_above_is_not() -> None:
    read: list[str] = []

    def dig(transcript: Transcript) -> Any:
        if len(transcript) == 1:
            return hand_on("dig")
        if "levels deep" in last_text(transcript):
            read.append(last_text(transcript))
        return "up"

    digger = Agent("digger", model=ScriptedModel.always(dig), copies=True)
    finished = await run_under(digger, depth=3)

    assert len(read) == 1
    assert "3 levels deep" in read[0]
    assert max(path.count("/") for path in paths(finished.tree)) == 4


async def test_the_tool_shows_the_limits_that_hold() -> None:
    lower, upper = SpyModel("x"), SpyModel([hand_on("a", background=False), "x"])
    below = Agent("below", model=lower, delegates=[worker()])
    agent = Agent("editor", model=upper, delegates=[below])
    await run_under(agent, depth=4, children_per_call=9, live_children=5, live_tasks=6, detached=7)

    above, under = (it.requests[0].tools[0].description for it in (upper, lower))
    assert "at most 9 in one call" in above
    assert "there may be 4 more levels" in above
    assert "there may be 3 more levels" in under
    for limit in (
        "5 of its tasks run at once",
        "6 of the whole tree work at once",
        "7 of the session in the background",
        "others wait for their turn",
    ):
        assert limit in above
