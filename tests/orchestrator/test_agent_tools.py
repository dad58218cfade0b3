"""An agent as a typed tool: a call is a task of the tree, and its output is the answer."""

from collections import Counter
from typing import Any

import attrs
import msgspec
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    agent,
    deny,
)
from orchestrator.delegation import Ending, Mode
from orchestrator.delegation.events import ModelAnswered, SessionOpened, TaskRequested, TaskSettled
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import Harness, SpyModel
from tests.kit import facts, last_text, run, worker
from tests.orchestrator.test_replay import run_of


class Trip(msgspec.Struct):
    """A trip to plan."""

    city: str
    days: int = 2


TRIP = ToolCall("plan_trip", {"city": "Oslo", "days": 3})


def planner(**options: Any) -> Agent:
    return Agent("planner", model=ScriptedModel.always(last_text), **options)


def boss(*steps: Any, child: Agent | None = None, **options: Any) -> Agent:
    tool = (child or planner()).as_tool(name="plan_trip", input=Trip, **options)
    return Agent("boss", model=SpyModel(ScriptedModel(steps)), tools=[tool])


async def test_fields_of_a_type_are_the_parameters_and_the_output_is_the_answer() -> None:
    lead = boss(TRIP, last_text)

    ended = await run(lead)

    assert ended.output == '{"city":"Oslo","days":3}'
    (task,) = ended.tree.find(agent="planner")
    assert (ended.tree[task].mode, ended.tree[task].path) == (Mode.JOINED, "/boss/planner[1]")
    model: Any = lead.model
    tool, control = model.requests[0].tools
    assert [*tool.parameters["properties"]] == ["city", "days"]
    assert (tool.name, control.name) == ("plan_trip", "task")


async def test_arguments_that_do_not_fit_start_no_task() -> None:
    ended = await run(boss(ToolCall("plan_trip", {"days": "many"}), last_text))

    assert "the arguments of plan_trip do not fit" in ended.output
    assert len(ended.tree) == 1


async def test_pipeline_as_a_tool_has_its_own_input() -> None:
    @agent
    async def total(numbers: list[int]) -> int:
        await trio.lowlevel.checkpoint()
        return sum(numbers)

    model = ScriptedModel([ToolCall("total", {"numbers": [1, 2, 3]}), last_text])
    ended = await run(Agent("boss", model=model, tools=[total.as_tool()]))

    assert ended.output == "6"


async def test_agent_without_a_type_takes_a_goal() -> None:
    model = ScriptedModel([ToolCall("planner", {"goal": "Plan it."}), last_text])
    ended = await run(Agent("boss", model=model, tools=[planner().as_tool()]))

    assert ended.output == "Plan it."


async def test_failed_task_is_a_failed_call() -> None:
    failing = Agent("planner", model=ScriptedModel.always(ValueError("no map")))
    read: list[bool] = []

    def note(transcript: Transcript) -> str:
        answer = transcript[-1]
        assert isinstance(answer, ToolMessage)
        read.append(answer.failed)
        return answer.text

    ended = await run(boss(TRIP, note, child=failing))

    assert read == [True]
    assert "no map" in ended.output


@pytest.mark.parametrize("background", [None, True, False])
async def test_session_that_can_be_told_later_detaches_the_task(background: bool | None) -> None:
    lead = boss(TRIP, last_text, last_text, background=background)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            reply = await session.ask("go")
            await session.wait_idle()
            (task,) = session.tree.find(agent="planner")
            mode = session.tree[task].mode

    assert mode is (Mode.JOINED if background is False else Mode.DETACHED)
    assert ("dispatched" in reply.text) is (background is not False)


async def test_budget_of_the_agent_holds_for_its_calls() -> None:
    ended = await run(boss(TRIP, last_text, child=planner(budget=Budget(calls=0))))

    (task,) = ended.tree.find(agent="planner")
    assert ended.tree[task].status is Ending.OVER_BUDGET


async def test_rule_of_the_parent_forbids_the_tool() -> None:
    lead = attrs.evolve(boss(TRIP, last_text), approve=[deny("plan_trip", reason="not now")])

    ended = await run(lead)

    assert "not now" in ended.output
    assert len(ended.tree) == 1


async def test_cancel_ends_the_task_of_a_call() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(boss(TRIP, child=worker("planner", seconds=100)), "go")

    (settled,) = facts(journal.entries, TaskSettled)
    assert settled.outcome.ending is Ending.CANCELLED


def team(asked: Counter[str]) -> Agent:
    def lead(transcript: Transcript) -> Any:
        asked["boss"] += 1
        return TRIP if len(transcript) == 1 else last_text(transcript)

    def plan(transcript: Transcript) -> str:
        asked["planner"] += 1
        return last_text(transcript)

    child = Agent("planner", model=ScriptedModel.always(plan))
    tool = child.as_tool(name="plan_trip", input=Trip)
    return Agent("boss", model=ScriptedModel.always(lead), tools=[tool])


async def test_crash_after_any_fact_repeats_no_paid_step() -> None:
    whole = Harness()
    expected = await whole.run(team(Counter()), "go")
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        harness, asked = Harness(), Counter[str]()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(Counter()), "go")
        (opened,) = harness.facts(SessionOpened)
        settled = [it.answer for it in harness.facts(TaskSettled) if it.answer is not None]
        paid = len(harness.facts(ModelAnswered)) + len(settled)
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(team(asked), opened.session)

        assert again.output == expected.output, length
        assert asked.total() == 3 - paid
        assert len(harness.facts(TaskRequested)) == 1
        harness.assert_laws()


def test_replay_runs_the_task_of_a_call_again() -> None:
    assert replay_sync(run_of(team(Counter())), team(Counter())).is_same


def test_simulation_delegates_to_agents_that_are_tools() -> None:
    report = simulate(team(Counter()), settings=SimulationSettings(tool_calls=1))

    assert report.tasks.p50 == 2


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: attrs.evolve(boss(), delegates=[worker("planner")]), "another agent of that name"),
        (lambda: attrs.evolve(boss(), place="lab"), "which workers cannot do"),
        (
            lambda: Agent("a", model="m:x", tools=[planner().as_tool(name="task")]),
            "a name that the delegation tools have",
        ),
        (lambda: planner().as_tool(name="two words"), "cannot be the name of a tool"),
    ],
)
def test_definition_that_cannot_work_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        make()


def test_leaf_has_no_tools_that_delegate() -> None:
    assert boss().leaf().tools == ()
