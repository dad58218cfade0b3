"""A queued task that is cancelled settles at once and never runs."""

import json
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Limits, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation import Rules
from orchestrator.delegation.events import TaskSettled
from tests.kit import editor, facts, hand_on, last_text, statuses, worker_on
from tests.orchestrator.slots_kit import counting, goals, going_on, paths, run_under


async def test_a_queued_task_that_is_cancelled_settles_at_once_and_never_runs() -> None:
    counter = counting(100)
    lead = editor(hand_on(*goals(3), background=False), last_text, delegates=[worker_on(counter)])
    rules = Rules(live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        outputs: list[str] = []

        async def go() -> None:
            outputs.append((await orchestrator.run(lead, "go")).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/worker[2]"])

            assert trio.current_time() == pytest.approx(10)
            assert statuses(tree) == {
                "/editor": "running",
                "/editor/worker[1]": "running",
                "/editor/worker[2]": "cancelled",
                "/editor/worker[3]": "queued",
            }

    results = json.loads(outputs[0])["results"]
    assert [one["status"] for one in results] == ["succeeded", "cancelled", "succeeded"]
    assert counter.goals == ["part 1", "part 3"]


async def test_a_queued_task_in_the_background_is_cancelled_alike_and_told() -> None:
    counter = counting(100)
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told.append(last_text(transcript))
        return "heard"

    model = ScriptedModel([hand_on(*goals(3), background=True), "ok", *[hear] * 9])
    lead = Agent("lead", model=model, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await trio.sleep(10)
            await orchestrator.cancel(paths(session.tree)["/lead/worker[2]"])
            assert trio.current_time() == pytest.approx(10)
            await session.replies.receive()

            assert "/lead/worker[2]" in told[0]
            assert "Outcome: cancelled" in told[0]
            assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

    assert counter.goals == ["part 1", "part 3"]


async def test_a_model_can_cancel_a_queued_task() -> None:
    counter = counting(100)
    read: list[Any] = []

    def cancel_the_last(transcript: Transcript) -> ToolCall:
        receipt = json.loads(last_text(transcript))
        last = receipt["tasks"][-1]["task_id"]
        return ToolCall("task", {"action": "cancel", "ids": [last]})

    def note(transcript: Transcript) -> str:
        read.append(json.loads(last_text(transcript)))
        return "ok"

    model = ScriptedModel(
        [hand_on(*goals(2), background=True), cancel_the_last, note, *["news"] * 9]
    )
    lead = Agent("lead", model=model, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            assert trio.current_time() == 0
            await session.wait_idle()

    assert [one["status"] for one in read[0]["results"]] == ["cancelled"]
    assert counter.goals == ["part 1"]


async def test_cancelling_a_parent_ends_its_queued_tasks() -> None:
    counter = counting(100)
    middle = Agent(
        "middle", model=going_on(hand_on(*goals(5)), then="up"), delegates=[worker_on(counter)]
    )
    lead = editor(hand_on("a", "b"), "end", delegates=[middle])
    rules = Rules(live_children=2, live_tasks=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/middle[1]"])

            assert trio.current_time() == pytest.approx(10)
            below = {
                path: status
                for path, status in statuses(tree).items()
                if path.startswith("/editor/middle[1]")
            }
            assert len(below) == 6
            assert set(below.values()) == {"cancelled"}

    # Its place went to the other, who had five to do.
    assert tree.counts() == {"succeeded": 1 + 1 + 5, "cancelled": 6}
    assert counter.most_at_once == 2


async def test_cancelling_a_session_with_its_tree_ends_queued_tasks() -> None:
    counter = counting(100)
    model = ScriptedModel(
        [
            hand_on(*goals(4), background=True),
            hand_on(*goals(4, 5), background=False),
            *["news"] * 9,
        ]
    )
    lead = Agent("lead", model=model, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=2)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id, tree=True)

                children = session.tree.children(session.tree.root)
                assert {session.tree[task].status for task in children} == {"cancelled"}
            await session.wait_idle()

    assert len(counter.goals) == 2


async def test_a_timed_out_task_takes_its_queued_tasks_along() -> None:
    counter = counting(10)
    lead = Agent(
        "editor",
        model=ScriptedModel([hand_on(*goals(4)), "never"]),
        delegates=[worker_on(counter)],
        limits=Limits(seconds=15),
    )
    before = trio.current_time()

    finished = await run_under(lead, live_children=1)

    assert trio.current_time() - before == pytest.approx(15)
    assert finished.tree.counts() == {"timed_out": 1, "succeeded": 1, "cancelled": 3}
    assert counter.goals == goals(2)


async def test_cancelling_a_run_from_outside_ends_queued_tasks() -> None:
    counter = counting(100)
    lead = editor(hand_on(*goals(4)), "end", delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(lead, "go")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree.counts() == {"cancelled": 5}
    assert counter.goals == ["part 1"]


@pytest.mark.parametrize("ticks", range(8))
async def test_cancel_and_room_may_come_together(ticks: int) -> None:
    """A task that is cancelled just when it gets its slot runs or does not; all ends."""
    counter = counting(10)
    lead = editor(hand_on(*goals(4)), "end", delegates=[worker_on(counter)])
    journal = MemoryJournal()
    rules = Rules(live_tasks=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(10)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/worker[2]"])
            assert statuses(tree)["/editor/worker[2]"] == "cancelled"

    assert tree.counts() == {"succeeded": 4, "cancelled": 1}
    assert len(facts(journal.entries, TaskSettled)) == 4
