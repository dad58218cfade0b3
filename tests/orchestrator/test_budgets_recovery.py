"""Budgets over restarts: what is spent stays spent."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import MemoryJournal, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    Budget,
    Message,
    ScriptedModel,
    ToolMessage,
    Transcript,
    UserMessage,
)
from orchestrator.delegation import Cause, Ending, Outcome
from orchestrator.delegation.events import ModelCalled, SessionOpened
from orchestrator.testing import GatedModel
from tests.kit import facts, hand_on, worker
from tests.orchestrator.budgets_kit import Meter, chatty, lead


@pytest.mark.realtime
async def test_after_a_restart_the_spent_part_is_spent(tmp_path: Path) -> None:
    meter = Meter()
    model = meter.on(ScriptedModel.always("ok"))
    agent = Agent("top", model=model, budget=Budget(calls=3))
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            await session.ask("two")
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            three = await again.ask("three")
            four = await again.ask("four")

    assert three.outcome.succeeded
    assert (four.outcome.ending, four.outcome.kind) == (Ending.OVER_BUDGET, "calls")
    assert (four.outcome.cause, four.outcome.kind) == (Cause.BUDGET, "calls")
    assert meter.calls == 3


@pytest.mark.realtime
async def test_a_closed_budget_block_still_bounds_its_session(tmp_path: Path) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=1, name="gone"):
            async with orchestrator.open_session(agent) as session:
                await session.ask("one")
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            two = await again.ask("two")

    assert two.outcome.ending is Ending.OVER_BUDGET
    assert "the budget 'gone' (calls=1) of /top" in two.outcome.error


@pytest.mark.realtime
async def test_one_block_over_several_processes_is_one_budget(tmp_path: Path) -> None:
    meter = Meter()
    path = tmp_path / "journal.db"
    outcomes: list[Outcome] = []
    with budget(calls=7, tasks=3, name="shared"):
        for _ in range(4):
            async with open_orchestrator(path) as orchestrator:
                run = await orchestrator.run(lead(meter, 1, meter.worker(seconds=0)), "go")
                outcomes.append(run.outcome)

    # Three calls each, until one is left; then none is.
    assert [outcome.ending.value for outcome in outcomes] == [
        "succeeded",
        "succeeded",
        "over_budget",
        "over_budget",
    ]
    assert meter.calls == 7
    assert "the budget 'shared' (calls=7, tasks=3) of /top" in outcomes[-1].error


@pytest.mark.realtime
async def test_a_restored_session_counts_its_use_once(tmp_path: Path) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    path = tmp_path / "journal.db"
    endings: list[Ending] = []
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=6):
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
            # Another session shares it.
            await orchestrator.run(agent, "go")
    for _ in range(5):
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(agent, session=session.id) as again:
                endings.append((await again.ask("go on")).outcome.ending)

    assert endings == [Ending.SUCCEEDED] * 4 + [Ending.OVER_BUDGET]
    assert meter.calls == 6


@pytest.mark.realtime
async def test_a_call_that_the_end_of_a_process_broke_off_counts_in_the_next(
    tmp_path: Path,
) -> None:
    gate = GatedModel()
    path = tmp_path / "journal.db"
    meter = Meter()
    task_budget = Budget(calls=1)
    stuck = Agent("worker", model=gate, budget=task_budget)
    quick = meter.worker(budget=task_budget)
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(chatty(meter, stuck)) as session:
            await session.ask("go")
            await gate.wait_called()
    calls = meter.calls
    async with open_orchestrator(path) as orchestrator:
        opened = orchestrator.open_session(chatty(meter, quick), session=session.id)
        async with opened as again:
            await again.wait_idle()
            (task,) = again.tree.children(again.tree.root)

    assert again.tree[task].status == "over_budget"
    # The turn that reads the news, and nothing else.
    assert meter.calls == calls + 1


async def test_a_crash_after_any_entry_never_books_more_than_the_budget() -> None:
    def team() -> Agent:
        def say(transcript: Transcript) -> Any:
            told = [said for said in transcript if isinstance(said, ToolMessage)]
            return "end" if told else hand_on("a", "b", "c", "d", background=True)

        model = ScriptedModel.always(say, 0.5)
        return Agent("top", model=model, delegates=[worker(seconds=1)])

    async def finish(journal: MemoryJournal) -> list[Any]:
        opened = facts(journal.entries, SessionOpened)
        async with open_orchestrator(journal) as orchestrator:
            id_ = opened[0].session if opened else None
            with budget(calls=5):
                async with orchestrator.open_session(team(), session=id_) as session:
                    if session.tree[session.tree.root].goal == "":
                        await session.ask("go")
                    await session.wait_idle()
        # Also those that the crash broke off: they may have been paid for.
        return facts(journal.entries, ModelCalled)

    whole = MemoryJournal()
    assert len(await finish(whole)) == 5
    for length in range(1, len(whole.entries)):
        calls = await finish(MemoryJournal(whole.entries[:length]))

        assert len(calls) == 5, length


async def test_the_result_of_a_child_over_budget_explains_the_budget() -> None:
    heard: list[Any] = []

    def end(transcript: Transcript) -> str:
        heard.append(json.loads(transcript[-1].text))
        return "end"

    child = Agent("child", model=ScriptedModel(["never"]), budget=Budget(calls=0))
    model = ScriptedModel([hand_on("a"), end])
    top = Agent("top", model=model, delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(top, "go")

    (result,) = heard[0]["results"]
    assert result["status"] == "over_budget"
    assert "the budget (calls=0) of /top/child[1] is used up" in result["error"]
    assert result["tokens"] == 0


async def test_a_budget_does_not_change_the_transcript() -> None:
    told: list[Sequence[Message]] = []

    def say(transcript: Transcript) -> str:
        told.append(list(transcript))
        return "ok"

    agent = Agent("top", model=ScriptedModel.always(say))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=1, tokens=50_000, calls=9, seconds=9, tasks=9, depth=9):
            run = await orchestrator.run(agent, "go")

    assert run.output == "ok"
    assert told == [[UserMessage("go")]]
