"""Model events reach subscribers while models answer, and no subscriber slows a model."""

import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, TextDelta
from orchestrator.journals import TaskModelEvent
from orchestrator.kernel.engine.model_events import MAX_BUFFERED_EVENTS
from orchestrator.testing import StreamingModel
from tests.kit import hand_on, worker


async def test_a_subscriber_receives_the_events_of_every_task_of_a_tree() -> None:
    model = ScriptedModel([hand_on("a"), "merged"])
    editor = Agent("editor", model=model, delegates=[worker(says="found")])
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            run = await orchestrator.run(editor, "go")
            received = [events.receive_nowait() for _ in range(2)]

    assert [it.event for it in received] == [TextDelta("found"), TextDelta("merged")]
    assert [run.tree[it.task].agent for it in received] == ["worker", "editor"]


async def test_a_subscriber_that_falls_behind_misses_events_and_receives_how_many() -> None:
    deltas = [TextDelta(str(number)) for number in range(MAX_BUFFERED_EVENTS + 7)]
    model = StreamingModel([[*deltas, "one"], [*deltas, "two"]])
    agent = Agent("talkative", model=model)
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            await orchestrator.run(agent, "go")
            received: list[TaskModelEvent] = [
                events.receive_nowait() for _ in range(MAX_BUFFERED_EVENTS)
            ]
            with trio.fail_after(1):
                await orchestrator.run(agent, "go")
            after = events.receive_nowait()

    assert [it.missed for it in received] == [0] * MAX_BUFFERED_EVENTS
    assert after.missed == 8


async def test_events_after_the_listen_block_are_not_received() -> None:
    agent = Agent("a", model=ScriptedModel(["one"]))
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            pass
        await orchestrator.run(agent, "go")

    assert [received async for received in events] == []
