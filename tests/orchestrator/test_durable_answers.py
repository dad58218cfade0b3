"""Answers of models: what was paid for is durable before anything acts on it, and soon."""

from pathlib import Path

import pytest
import trio
import trio.testing

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, AssistantMessage, ModelRequest, ScriptedModel, ToolCall, tool
from orchestrator.delegation.events import ModelAnswered
from orchestrator.kernel.journal import group_commit
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import FunctionModel, facts, hand_on, worker, worker_on
from tests.orchestrator.held_journal import HeldJournal


async def test_no_tool_runs_before_the_answer_that_calls_it_is_durable() -> None:
    journal, ran = HeldJournal(), list[str]()

    @tool(idempotent=True)
    async def look() -> str:
        """Look at it."""
        ran.append("look")
        await trio.lowlevel.checkpoint()
        return "seen"

    async def answer(request: ModelRequest) -> str | AssistantMessage:
        await trio.lowlevel.checkpoint()
        if len(request.transcript) > 1:
            return "done"
        journal.hold()
        return AssistantMessage(calls=(ToolCall("look"),))

    agent = Agent("agent", model=FunctionModel(answer), tools=[look])
    async with open_orchestrator(journal) as orchestrator, trio.open_nursery() as it:
        it.start_soon(orchestrator.run, agent, "go")
        await trio.testing.wait_all_tasks_blocked()
        has_answered, early = facts(journal.entries, ModelAnswered), list(ran)
        journal.release()

    assert has_answered
    assert early == []
    assert ran == ["look"]


async def test_a_parent_continues_after_the_answer_of_its_child_is_durable() -> None:
    journal, asked = HeldJournal(), list[int]()

    async def answer_child(_: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        journal.hold()
        return "found"

    def lead(transcript: object) -> str | ToolCall:
        asked.append(len(facts(journal.entries, ModelAnswered)))
        return "done" if len(asked) > 1 else hand_on("a")

    child = worker_on(FunctionModel(answer_child))
    agent = Agent("lead", model=ScriptedModel.always(lead), delegates=[child])
    async with open_orchestrator(journal) as orchestrator, trio.open_nursery() as it:
        it.start_soon(orchestrator.run, agent, "go")
        await trio.testing.wait_all_tasks_blocked()
        has_answered, early = len(facts(journal.entries, ModelAnswered)), list(asked)
        journal.release()

    assert has_answered == 2
    assert early == [0]
    assert asked == [0, 2]


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_an_answer_is_written_at_once_even_if_no_task_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent waits for another child, which may take hours."""
    monkeypatch.setattr(group_commit, "MAX_DELAY_SECONDS", 1_000)
    path = tmp_path / "journal.db"

    async def look_at_the_file(_: ModelRequest) -> str:
        with trio.fail_after(20):
            # A task that waits at the journal would have it written: the file has no event.
            while len(facts(await read_sqlite_journal(path), ModelAnswered)) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
        return "it is there"

    late = worker_on(FunctionModel(look_at_the_file), "late")
    tasks = [{"goal": "a", "agent": "worker"}, {"goal": "b", "agent": "late"}]
    model = ScriptedModel([ToolCall("delegate_task", {"tasks": tasks}), "done"])
    agent = Agent("lead", model=model, delegates=[worker(), late])
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.output == "done"
    assert run.tree.counts() == {"succeeded": 3}


async def test_no_child_of_a_fan_out_begins_before_its_request_is_durable() -> None:
    journal, asked = HeldJournal(), list[str]()

    async def answer_child(request: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        asked.append(request.transcript[0].text)
        return "found"

    async def answer(request: ModelRequest) -> str | AssistantMessage:
        await trio.lowlevel.checkpoint()
        if len(request.transcript) > 1:
            return "done"
        journal.hold()
        return AssistantMessage(calls=(hand_on("a", "b"),))

    child = worker_on(FunctionModel(answer_child))
    agent = Agent("lead", model=FunctionModel(answer), delegates=[child])
    async with open_orchestrator(journal) as orchestrator, trio.open_nursery() as it:
        it.start_soon(orchestrator.run, agent, "go")
        await trio.testing.wait_all_tasks_blocked()
        early = list(asked)
        journal.release()

    assert early == []
    assert len(asked) == 2
