"""Queued tasks survive a crash, and run once, also under other rules."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Model, ScriptedModel, ToolMessage, Transcript
from orchestrator.delegation import Ending, Rules, SessionId, Tree
from orchestrator.delegation.events import (
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.testing import CountingModel, GatedModel
from tests.kit import facts, hand_on, statuses, worker, worker_on
from tests.orchestrator.slots_kit import LIST, counting, goals, going_on


def in_line(model: Model, count: int = 5) -> Agent:
    return Agent(
        "lead",
        model=going_on(hand_on(*goals(count), background=True)),
        delegates=[worker_on(model)],
    )


async def crash_when_one_runs(path: Path, count: int, rules: Rules) -> SessionId:
    """Ask for tasks, and close everything while the first of them runs."""
    model = GatedModel()
    agent = in_line(model, count)
    scope = trio.CancelScope()
    ids: list[SessionId] = []
    with scope:
        async with open_orchestrator(path, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                ids.append(session.id)
                await session.ask("go")
                await model.wait_called()
                scope.cancel()
                await trio.sleep_forever()
    return ids[0]


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_queued_tasks_survive_a_crash_and_run_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    rules = Rules(detached=1)
    session_id = await crash_when_one_runs(path, 5, rules)
    model = CountingModel()
    async with open_orchestrator(path, rules=rules) as orchestrator:
        async with orchestrator.open_session(in_line(model), session=session_id) as session:
            await session.wait_idle()
            tree = session.tree

    assert tree.counts() == {"succeeded": 6}
    assert model.goals == goals(5)
    assert model.most_at_once == 1
    entries = await read_sqlite_journal(path)
    settled = Counter(fact.task for fact in facts(entries, TaskSettled))
    assert set(settled.values()) == {1}
    started = Counter(fact.task for fact in facts(entries, TaskStarted))
    # The first was interrupted while it ran, and no other.
    assert sorted(started.values()) == [1, 1, 1, 1, 2]


@pytest.mark.realtime
async def test_a_restart_under_tighter_rules_keeps_queued_tasks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session_id = await crash_when_one_runs(path, 9, Rules(detached=4))
    model = CountingModel()
    tighter = Rules(
        detached=1, live_tasks=1, live_children=1, queue=0, children_per_call=1, depth=1
    )
    async with open_orchestrator(path, rules=tighter) as orchestrator:
        async with orchestrator.open_session(in_line(model, 9), session=session_id) as session:
            await session.wait_idle()
            tree = session.tree

    assert tree.counts() == {"succeeded": 10}
    assert sorted(model.goals) == goals(9)
    assert model.most_at_once == 1


@pytest.mark.realtime
async def test_a_restart_under_wider_rules_lets_all_in(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session_id = await crash_when_one_runs(path, 5, Rules(detached=1))
    gate = GatedModel()
    model = CountingModel(gate)
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(in_line(model), session=session_id) as session:
            await gate.wait_called(5)
            gate.release()
            await session.wait_idle()

    assert model.most_at_once == 5
    assert sorted(model.goals) == goals(5)


@pytest.mark.parametrize("none", ["detached", "live_tasks", "live_children"])
async def test_a_restart_under_rules_of_zero_keeps_tasks_for_the_next_one(none: str) -> None:
    journal = MemoryJournal()
    gate = GatedModel()
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=Rules(detached=1)) as orchestrator:
            async with orchestrator.open_session(in_line(gate)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    closed: dict[str, Any] = {none: 0}
    model = CountingModel()
    async with open_orchestrator(journal, rules=Rules(**closed)) as orchestrator:
        async with orchestrator.open_session(in_line(model), session=session.id) as session:
            await trio.testing.wait_all_tasks_blocked()
            assert model.goals == []
            assert "succeeded" not in set(statuses(session.tree).values())
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(in_line(model), session=session.id) as session:
            await session.wait_idle()

    assert sorted(model.goals) == goals(5)


async def interrupted_in_line(journal: MemoryJournal, rules: Rules) -> SessionId:
    """Leave four tasks behind, one of which ran while the others waited in line."""
    agent = Agent(
        "lead", model=going_on(hand_on(*goals(4), background=True)), delegates=[worker(seconds=100)]
    )
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await trio.sleep_forever()
    return facts(journal.entries, SessionOpened)[0].session


async def test_after_a_restart_a_list_shows_queued_tasks_and_positions() -> None:
    journal = MemoryJournal()
    rules = Rules(detached=1)
    session_id = await interrupted_in_line(journal, rules)

    def look(transcript: Transcript) -> Any:
        last = transcript[-1]
        return last.text if isinstance(last, ToolMessage) else LIST

    agent = Agent("lead", model=ScriptedModel.always(look), delegates=[worker(seconds=100)])
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent, session=session_id) as session:
            listed = json.loads((await session.ask("look")).text)["tasks"]

    assert [(task["status"], task.get("position")) for task in listed] == [
        ("running", None),
        ("queued", 1),
        ("queued", 2),
        ("queued", 3),
    ]


async def test_a_session_opened_again_and_again_waits_in_line_once() -> None:
    """A task that is counted twice would keep others out for ever."""
    journal = MemoryJournal()
    rules = Rules(detached=1, queue=3)
    session_id = await interrupted_in_line(journal, rules)

    def once_more(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return last.text
        is_asked = last.text == "once more"
        return hand_on(*goals(4), background=True) if is_asked else "news"

    counter = counting()
    agent = Agent("lead", model=ScriptedModel.always(once_more), delegates=[worker_on(counter)])
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        for _ in range(3):
            async with orchestrator.open_session(agent, session=session_id):
                pass
        async with orchestrator.open_session(agent, session=session_id) as session:
            await session.wait_idle()
            reply = await session.ask("once more")
            await session.wait_idle()

    assert reply.text.startswith('{"status":"dispatched"')
    assert counter.most_at_once == 1
    assert len(counter.goals) == 8


async def joined_under_other_rules(length: int, before: Rules, after: Rules) -> Tree:
    """Cut the journal of a joined batch after so many entries, and go on under other rules."""
    lead = Agent(
        "lead",
        model=going_on(hand_on(*goals(4), background=False), then="end"),
        delegates=[worker(seconds=10)],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal, rules=before) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
    whole = journal.entries
    requested = [
        place for place, entry in enumerate(whole) if isinstance(entry.event, TaskRequested)
    ]
    cut = MemoryJournal(whole[: requested[-1] + 1 + length])
    async with open_orchestrator(cut, rules=after) as orchestrator:
        async with orchestrator.open_session(lead, session=session.id) as again:
            await again.wait_idle()
            return again.tree


@pytest.mark.parametrize(
    "after",
    [
        Rules(live_tasks=1),
        Rules(live_children=1, queue=0),
        Rules(depth=0),
        Rules(children_per_call=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [0, 2, 4])
async def test_a_joined_batch_goes_on_under_tighter_rules(length: int, after: Rules) -> None:
    """It was requested, and its parent still waits for it."""
    tree = await joined_under_other_rules(length, Rules(), after)

    assert tree.counts() == {"succeeded": 5}


async def test_a_crash_after_any_entry_leaves_no_task_queued() -> None:
    """Joined and detached in line for one place, and a nested batch: all of it comes through."""

    def lead() -> Agent:
        middle = Agent(
            "middle",
            model=going_on(hand_on("x", "y"), then="up"),
            delegates=[worker("leaf", seconds=1)],
        )
        return Agent(
            "lead",
            model=going_on(
                [
                    hand_on("a", "b", agent="middle", background=False),
                    hand_on("c", "d", agent="slow", background=True),
                ]
            ),
            delegates=[middle, worker("slow", seconds=3)],
        )

    async def finish(journal: MemoryJournal) -> Tree:
        opened = facts(journal.entries, SessionOpened)
        said = opened[0].session if opened else None
        async with open_orchestrator(journal, rules=Rules(live_tasks=1)) as orchestrator:
            async with orchestrator.open_session(lead(), session=said) as session:
                if len(journal.entries) < 5:
                    await session.ask("go")
                await session.wait_idle()
                return session.tree

    journal = MemoryJournal()
    await finish(journal)
    whole = journal.entries
    for length in range(6, len(whole)):
        cut = MemoryJournal(whole[:length])
        tree = await finish(cut)

        assert tree.counts() == {"succeeded": 9}, length
        settled = Counter(fact.task for fact in facts(cut.entries, TaskSettled))
        assert set(settled.values()) == {1}, length
        assert facts(cut.entries, TurnEnded)[-1].outcome.ending is Ending.SUCCEEDED
