"""Budgets of tasks, depth and seconds, and odd amounts of every kind."""

import inspect
import math
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    Limits,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    tool,
)
from orchestrator.agents.budget import BlockBudget, BudgetAmounts, BudgetKind
from orchestrator.cli.app import run_command
from orchestrator.delegation import Cause, Ending, Outcome
from orchestrator.products.server.api.runs import RunBudget
from tests.kit import hand_on, worker
from tests.orchestrator.budgets_kit import Meter, endings


def test_a_budget_can_be_set_of_every_kind() -> None:
    kinds = {kind.value for kind in BudgetKind}

    assert {field.name for field in attrs.fields(BudgetAmounts)} == kinds
    assert inspect.signature(budget).parameters == inspect.signature(BlockBudget).parameters
    assert set(RunBudget.__struct_fields__) == kinds


def test_the_command_line_has_an_option_for_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "simulate"):
        assert run_command(["help", command]) == 0
        told = capsys.readouterr().out
        for kind in BudgetKind:
            assert f"--budget-{kind.replace('_', '-')}" in told


def read_by(transcript: Transcript) -> list[tuple[str, bool]]:
    return [(said.text, said.failed) for said in transcript if isinstance(said, ToolMessage)]


async def test_a_task_too_many_is_refused_and_the_model_reads_why() -> None:
    heard: list[tuple[str, bool]] = []

    def end(transcript: Transcript) -> str:
        heard.extend(read_by(transcript))
        return "end"

    model = ScriptedModel([hand_on("a", "b", "c"), hand_on("a", "b"), hand_on("d"), end])
    top = Agent("top", model=model, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tasks=2, name="two"):
            run = await orchestrator.run(top, "go")

    assert run.outcome.succeeded
    assert run.tree.counts() == {"succeeded": 3}
    assert [failed for _, failed in heard] == [True, False, True]
    assert heard[0][0] == (
        "the budget 'two' (tasks=2) of /top allows 2 tasks; 0 were delegated, and this"
        " call asks for 3. None was started"
    )
    assert "2 were delegated, and this call asks for 1" in heard[2][0]


async def test_racing_calls_never_delegate_more_tasks_than_allowed() -> None:
    calls = [hand_on("a") for _ in range(10)]
    top = Agent("top", model=ScriptedModel([calls, "end"]), delegates=[worker(seconds=1)])
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tasks=4):
            run = await orchestrator.run(top, "go")

    assert run.tree.counts() == {"succeeded": 5}


async def test_a_level_too_deep_is_refused_and_the_model_reads_why() -> None:
    heard: list[tuple[str, bool]] = []

    def say(transcript: Transcript) -> Any:
        if isinstance(transcript[-1], ToolMessage):
            heard.extend(read_by(transcript))
            return "done"
        return hand_on("deeper")

    agent = Agent("top", model=ScriptedModel.always(say), copies=True)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(depth=2):
            run = await orchestrator.run(agent, "go")

    assert run.tree.counts() == {"succeeded": 3}
    assert heard[0] == (
        "the budget (depth=2) of /top allows 2 levels of tasks, and this task is at the"
        " bottom: do the work yourself",
        True,
    )


async def test_the_depth_of_an_agents_budget_is_counted_from_its_task() -> None:
    def say(transcript: Transcript) -> Any:
        return "done" if isinstance(transcript[-1], ToolMessage) else hand_on("deeper")

    middle = Agent("middle", model=ScriptedModel.always(say), copies=True, budget=Budget(depth=1))
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(top, "go")
        paths = list(endings(orchestrator))

    assert paths == ["/top", "/top/middle[1]", "/top/middle[1]/middle[1]"]


async def test_the_end_of_the_seconds_ends_the_whole_tree() -> None:
    top = Agent(
        "top", model=ScriptedModel([hand_on("a", "b"), "end"]), delegates=[worker(seconds=100)]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=10, name="lunch"):
            run = await orchestrator.run(top, "go")

    assert (run.outcome.ending, run.outcome.kind) == (Ending.TIMED_OUT, "seconds")
    assert run.outcome.cause is Cause.DEADLINE
    assert run.outcome.account
    assert trio.current_time() == pytest.approx(10)
    assert "succeeded" not in run.tree.counts()
    assert "running" not in run.tree.counts()


async def test_the_seconds_begin_with_the_first_that_is_asked_for() -> None:
    outcomes: list[Outcome] = []
    agent = Agent("top", model=ScriptedModel.always("ok", 6))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=10):
            await trio.sleep(100)
            for _ in range(3):
                outcomes.append((await orchestrator.run(agent, "go")).outcome)  # noqa: PERF401

    assert [outcome.ending.value for outcome in outcomes] == ["succeeded", "timed_out", "timed_out"]
    assert trio.current_time() == pytest.approx(110)


async def test_the_seconds_of_a_child_are_its_own_and_its_parent_goes_on() -> None:
    child = Agent("child", model=ScriptedModel.always("ok", 100), budget=Budget(seconds=7))
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(top, "go")
    (task,) = run.tree.children(run.tree.root)

    assert run.output == "end"
    assert run.tree[task].status == "timed_out"
    assert "the budget (seconds=7) of /top/child[1] is used up" in run.tree[task].error
    assert trio.current_time() == pytest.approx(7)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("calls", Ending.OVER_BUDGET),
        ("tokens", Ending.OVER_BUDGET),
        ("usd", Ending.OVER_BUDGET),
        ("seconds", Ending.TIMED_OUT),
    ],
)
async def test_a_budget_of_zero_allows_no_call(kind: str, ending: Ending) -> None:
    meter = Meter()
    model = ScriptedModel.always("ok", 1, price=Price(output=10))
    nothing: dict[str, Any] = {kind: 0}
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**nothing):
            run = await orchestrator.run(Agent("top", model=meter.on(model)), "go")

    assert (run.outcome.ending, run.outcome.kind) == (ending, kind)
    assert meter.used == Usage()
    assert meter.calls == 0


@pytest.mark.parametrize("kind", ["tasks", "depth"])
async def test_a_budget_of_no_tasks_leaves_an_agent_to_work_alone(kind: str) -> None:
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()])
    nothing: dict[str, Any] = {kind: 0}
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**nothing):
            run = await orchestrator.run(top, "go")

    assert run.output == "end"
    assert run.tree.counts() == {"succeeded": 1}


@pytest.mark.parametrize("amount", [-1, math.nan])
@pytest.mark.parametrize("kind", BudgetKind)
def test_an_invalid_amount_is_refused(kind: str, amount: float) -> None:
    with pytest.raises(DefinitionError, match=kind):
        with budget(**{kind: amount}):  # type: ignore[arg-type]
            pass
    with pytest.raises(DefinitionError, match=kind):
        Budget(**{kind: amount})  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [1_000_000, 1_234_567])
def test_a_large_budget_is_named_in_full(amount: int) -> None:
    assert str(amount) in str(Budget(tokens=amount)).replace(",", "")


@pytest.mark.parametrize("kind", ["usd", "seconds"])
async def test_an_infinite_budget_sets_no_limit(kind: str) -> None:
    """Or it is refused where it is made, but it does not end a run with a riddle."""
    endless: dict[str, Any] = {kind: math.inf}
    journal = MemoryJournal()
    try:
        Budget(**endless)
    except DefinitionError:
        return
    async with open_orchestrator(journal) as orchestrator:
        with budget(**endless):
            run = await orchestrator.run(worker(), "go")
    async with open_orchestrator(journal):
        pass

    assert run.outcome == Outcome(Ending.SUCCEEDED, "done")


@pytest.mark.realtime
@pytest.mark.parametrize("kind", ["calls", "tokens", "tasks", "depth"])
async def test_a_fractional_amount_is_refused_or_read_back(kind: str, tmp_path: Path) -> None:
    """A journal with an unreadable amount could not be opened again."""
    half: dict[str, Any] = {kind: 2.5}
    try:
        Budget(**half)
    except DefinitionError:
        return
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(**half):
            run = await orchestrator.run(worker(), "go")
    async with open_orchestrator(path) as again:
        assert (await again.read_tree(run.id)).to_text() == run.tree.to_text()


async def test_the_limits_of_an_agent_hold_with_and_without_a_budget() -> None:
    @tool
    async def again() -> str:
        await trio.lowlevel.checkpoint()
        return "and again"

    meter = Meter()
    agent = meter.worker(says=ToolCall("again"), tools=[again], limits=Limits(calls=2))
    outcomes: list[Outcome] = []
    async with open_orchestrator(":memory:") as orchestrator:
        outcomes.append((await orchestrator.run(agent, "go")).outcome)
        with budget(calls=100):
            outcomes.append((await orchestrator.run(agent, "go")).outcome)

    assert [outcome.ending for outcome in outcomes] == [Ending.OVER_BUDGET] * 2
    assert {outcome.cause for outcome in outcomes} == {Cause.LIMIT}
    assert meter.calls == 4


async def test_the_limit_of_seconds_is_named_if_it_is_nearer_than_the_budget() -> None:
    agent = Agent("top", model=ScriptedModel.always("x", 100), limits=Limits(seconds=5))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=50):
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.TIMED_OUT
    assert (run.outcome.cause, run.outcome.account) == (Cause.DEADLINE, "")
