"""`orchestrator.run`: one goal, one answer, and everything joined."""

import json
from typing import Any

import attrs
import pytest
import trio

from orchestrator import Machine, MemoryJournal, Run, RunFailedError, open_orchestrator
from orchestrator.agents import (
    Agent,
    DefinitionError,
    Limits,
    ModelError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    tool,
)
from orchestrator.delegation import Cause, Ending, Rules, TaskNode, Tree
from orchestrator.delegation.events import TaskSettled, TurnEnded
from tests.kit import facts, hand_on, worker


async def run(agent: Agent[Any], goal: str = "go", **options: Any) -> Run[Any]:
    async with open_orchestrator(":memory:", **options) as orchestrator:
        return await orchestrator.run(agent, goal)


def nodes(tree: Tree) -> dict[str, TaskNode]:
    return {tree[task].path: tree[task] for task in tree}


def last_answer(transcript: Transcript) -> Any:
    message = transcript[-1]
    assert isinstance(message, ToolMessage)
    return json.loads(message.text)


async def test_a_run_gives_the_final_answer() -> None:
    finished = await run(Agent("solo", model=ScriptedModel(["42"])))

    assert finished.output == "42"
    assert finished.outcome.ending is Ending.SUCCEEDED
    assert finished.usage.calls == 1


async def test_a_batch_of_children_runs_at_the_same_time_and_joins() -> None:
    editor = Agent(
        "editor",
        model=ScriptedModel([hand_on("a", "b", "c", background=False), "merged"]),
        delegates=[worker(seconds=10)],
    )
    before = trio.current_time()

    finished = await run(editor)

    assert trio.current_time() - before == pytest.approx(10)
    assert finished.output == "merged"
    assert [node.goal for node in nodes(finished.tree).values()] == ["go", "a", "b", "c"]


async def test_a_background_task_of_a_run_is_joined_with_a_note() -> None:
    """The result is in the same response, and the note says why."""
    seen: list[Any] = []

    def merge(transcript: Transcript) -> str:
        seen.append(last_answer(transcript))
        return "merged"

    editor = Agent(
        "editor",
        model=ScriptedModel([hand_on("look it up", background=True), merge]),
        delegates=[worker(seconds=60, says="found")],
    )

    finished = await run(editor)

    assert seen[0]["status"] == "completed"
    assert seen[0]["results"][0]["output"] == "found"
    assert "cannot be told" in seen[0]["note"]
    assert nodes(finished.tree)["/editor/worker[1]"].mode == "joined"


async def test_waiting_that_was_asked_for_needs_no_note() -> None:
    seen: list[Any] = []

    def merge(transcript: Transcript) -> str:
        seen.append(last_answer(transcript))
        return "merged"

    script = ScriptedModel([hand_on("a", background=False), merge])
    await run(Agent("editor", model=script, delegates=[worker()]))

    assert "note" not in seen[0]


async def test_every_node_has_its_agent_goal_mode_times_and_usage() -> None:
    editor = Agent(
        "editor",
        model=ScriptedModel([hand_on("part", background=False), "whole"], seconds=1),
        delegates=[worker(seconds=5)],
    )

    finished = await run(editor, "the goal")

    root, child = nodes(finished.tree).values()
    assert (root.agent, root.goal, root.mode) == ("editor", "the goal", "root")
    assert (child.agent, child.goal, child.mode) == ("worker", "part", "joined")
    assert root.status == child.status == "succeeded"
    assert root.seconds() == pytest.approx(7)
    assert child.seconds() == pytest.approx(5)
    assert child.usage.calls == 1
    assert root.total.calls == 3
    assert finished.usage == root.usage + child.usage
    assert root.error == child.error == ""


async def test_children_delegate_further_down() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel.always(
            lambda transcript: "up" if len(transcript) > 1 else hand_on("leaf")
        ),
        delegates=[worker("leaf")],
    )
    top = Agent("top", model=ScriptedModel([hand_on("a", "b"), "end"]), delegates=[middle])

    finished = await run(top)

    assert sorted(nodes(finished.tree)) == [
        "/top",
        "/top/middle[1]",
        "/top/middle[1]/leaf[1]",
        "/top/middle[2]",
        "/top/middle[2]/leaf[1]",
    ]


async def test_too_deep_a_delegation_is_refused_and_the_model_reads_why() -> None:
    seen: list[str] = []

    def give_up(transcript: Transcript) -> str:
        seen.append(transcript[-1].text)
        return "did it myself"

    model = ScriptedModel([hand_on("part"), give_up])
    editor = Agent("editor", model=model, delegates=[worker()])

    finished = await run(editor, rules=Rules(depth=0))

    assert finished.output == "did it myself"
    assert "0 levels deep" in seen[0]
    assert len(finished.tree) == 1


async def test_a_failed_child_is_a_result_and_its_parent_goes_on() -> None:
    seen: list[Any] = []

    def merge(transcript: Transcript) -> str:
        seen.append(last_answer(transcript))
        return "made do"

    broken = Agent("broken", model=ScriptedModel([ModelError("no such model")]))
    editor = Agent("editor", model=ScriptedModel([hand_on("a"), merge]), delegates=[broken])

    finished = await run(editor)

    assert finished.output == "made do"
    assert seen[0]["results"][0]["status"] == "failed"
    assert seen[0]["results"][0]["error"] == "no such model"


async def test_the_output_of_a_failed_run_is_its_error() -> None:
    finished = await run(Agent("solo", model=ScriptedModel([ModelError("HTTP 401")])))

    assert finished.outcome.ending is Ending.FAILED
    with pytest.raises(RunFailedError, match="/solo failed: HTTP 401"):
        _ = finished.output


async def test_a_bug_in_a_tool_fails_the_task_and_names_the_line() -> None:
    @tool
    async def divide(by: int) -> str:
        await trio.lowlevel.checkpoint()
        return str(1 // by)

    model = ScriptedModel([ToolCall("divide", {"by": 0}), "never"])
    finished = await run(Agent("solo", model=model, tools=[divide]))

    assert finished.outcome.ending is Ending.FAILED
    assert finished.outcome.cause is Cause.ERROR
    assert "ZeroDivisionError" in finished.outcome.error
    assert "test_runs.py:" in finished.outcome.error


async def test_an_answer_is_read_as_the_type_that_the_agent_promises() -> None:
    @attrs.frozen
    class Report:
        title: str
        pages: int

    model = ScriptedModel(['{"title": "Trio", "pages": 3}'])
    finished = await run(Agent("writer", model=model, output=Report))

    assert finished.output == Report("Trio", 3)


async def test_an_answer_of_another_type_fails_with_its_place() -> None:
    model = ScriptedModel.always('{"title": "Trio"}')
    finished = await run(Agent("writer", model=model, output=dict[str, int]))

    assert finished.outcome.ending is Ending.FAILED
    assert finished.outcome.cause is Cause.OUTPUT
    assert "$[...]" in finished.outcome.error
    assert finished.outcome.output == '{"title": "Trio"}'


async def test_a_task_that_uses_up_its_model_calls_is_over_budget() -> None:
    endless = ScriptedModel.always(ToolCall("nothing"))
    agent = Agent("loop", model=endless, limits=Limits(calls=3))

    finished = await run(agent)

    assert finished.outcome.ending is Ending.OVER_BUDGET
    assert finished.outcome.cause is Cause.LIMIT
    assert finished.usage.calls == 3


async def test_a_task_that_uses_up_its_time_takes_its_children_with_it() -> None:
    editor = Agent(
        "editor",
        model=ScriptedModel([hand_on("slow"), "never"]),
        delegates=[worker(seconds=100)],
        limits=Limits(seconds=30),
    )
    before = trio.current_time()

    finished = await run(editor)

    assert trio.current_time() - before == pytest.approx(30)
    assert finished.outcome.ending is Ending.TIMED_OUT
    assert nodes(finished.tree)["/editor/worker[1]"].status == "cancelled"


async def test_a_time_limit_of_zero_is_honoured() -> None:
    agent = Agent("hasty", model=ScriptedModel(["x"], 1), limits=Limits(seconds=0))

    assert (await run(agent)).outcome.ending is Ending.TIMED_OUT


async def test_cancelling_a_run_ends_its_whole_tree() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel([hand_on("leaf", background=False), "up"]),
        delegates=[worker("leaf", seconds=100)],
    )
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[middle])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(top, "go")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree.counts() == {"cancelled": 3}
    assert len(facts(journal.entries, TaskSettled)) == 2
    assert len(facts(journal.entries, TurnEnded)) == 1


async def test_a_deep_chain_survives_a_cancel() -> None:
    """Groups that grew with every level would end in a RecursionError inside trio."""
    agent = worker("bottom", seconds=100)
    for level in range(90):
        agent = Agent(f"level{level}", model=ScriptedModel([hand_on("on"), "x"]), delegates=[agent])
    async with open_orchestrator(":memory:", rules=Rules(depth=100)) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(agent, "go")

        assert orchestrator.tree(orchestrator.runs[-1]).counts() == {"cancelled": 91}


async def test_runs_side_by_side_do_not_meet() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        finished: list[Run[str]] = []

        async def run_one(number: int) -> None:
            model = ScriptedModel([hand_on(f"part {number}"), f"whole {number}"])
            agent = Agent("editor", model=model, delegates=[worker(seconds=1)])
            finished.append(await orchestrator.run(agent, f"goal {number}"))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(run_one, number)

    for one in finished:
        mark = one.output.removeprefix("whole ")
        goals = [node.goal for node in nodes(one.tree).values()]
        assert goals == [f"goal {mark}", f"part {mark}"]


async def test_an_unavailable_model_is_an_error_before_the_run_starts() -> None:
    journal = MemoryJournal()
    helper = Agent("helper", model="openai:gpt-5")
    editor = Agent("editor", model=ScriptedModel(["x"]), delegates=[helper])
    async with open_orchestrator(journal, machine=Machine(environ={})) as orchestrator:
        before = len(journal.entries)
        with pytest.raises(DefinitionError, match="OPENAI_API_KEY"):
            await orchestrator.run(editor, "go")

        assert len(journal.entries) == before


async def test_an_error_of_the_caller_is_raised_unchanged() -> None:
    """The nurseries inside do not show outside."""
    with pytest.raises(KeyError, match="mine"):
        async with open_orchestrator(":memory:"):
            raise KeyError("mine")
