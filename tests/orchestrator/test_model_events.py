"""Models can be heard as they answer, and nobody who listens slows them."""

import trio

from agents import Agent, ScriptedModel, TextDelta
from orchestrator import TaskModelEvent, open_orchestrator
from orchestrator.engine.model_events import MAX_BUFFERED_EVENTS
from orchestrator.testing import StreamingModel
from tests.kit import hand_on, worker


async def test_whoever_listens_hears_every_task_of_a_tree() -> None:
    model = ScriptedModel([hand_on("a"), "merged"])
    editor = Agent("editor", model=model, delegates=[worker(says="found")])
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            run = await orchestrator.run(editor, "go")
            heard = [events.receive_nowait() for _ in range(2)]

    assert [said.event for said in heard] == [TextDelta("found"), TextDelta("merged")]
    assert [run.tree[said.task]["agent"] for said in heard] == ["worker", "editor"]


async def test_a_listener_that_falls_behind_misses_some_and_is_told_how_many() -> None:
    deltas = [TextDelta(str(number)) for number in range(MAX_BUFFERED_EVENTS + 7)]
    model = StreamingModel([[*deltas, "one"], [*deltas, "two"]])
    agent = Agent("talkative", model=model)
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            await orchestrator.run(agent, "go")
            heard: list[TaskModelEvent] = [
                events.receive_nowait() for _ in range(MAX_BUFFERED_EVENTS)
            ]
            with trio.fail_after(1):
                await orchestrator.run(agent, "go")
            after = events.receive_nowait()

    assert [said.missed for said in heard] == [0] * MAX_BUFFERED_EVENTS
    assert after.missed == 8


async def test_nobody_hears_anything_after_the_block() -> None:
    agent = Agent("a", model=ScriptedModel(["one"]))
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            pass
        await orchestrator.run(agent, "go")

    assert [heard async for heard in events] == []
