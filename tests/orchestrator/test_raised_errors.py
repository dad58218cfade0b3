"""Errors of tools and functions reach the program, and are recorded where people look."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import trio

from orchestrator import (
    Agent,
    FanOutFailedError,
    Machine,
    MemoryJournal,
    Run,
    RunFailedError,
    ScriptedModel,
    TaskFailedError,
    ToolCall,
    agent,
    delegate,
    map_each,
    open_orchestrator,
    tool,
)
from orchestrator.agents.errors import ModelError
from orchestrator.cli.app import run_command
from orchestrator.delegation import encode
from orchestrator.delegation.events import TaskSettled, TurnEnded
from orchestrator.kernel.errors import explain
from orchestrator.kernel.execution.raised import traceback_text
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.products.history.report.packed_tree import columns_of
from tests.kit import facts, run

SECRET = "sk-kept-from-all-readers"


@tool
def find(user: str) -> str:
    """Find a user."""
    return _find(user)


@tool
async def wait_for(user: str) -> str:
    """Find a user, some time."""
    await trio.lowlevel.checkpoint()
    return _find(user)


def _find(user: str) -> str:
    return {"ada": "here"}[user]


def finder(name: str = "find", user: str = "bob") -> Agent[str]:
    call = ToolCall(name, {"user": user})
    return Agent("finder", model=ScriptedModel.always(call), tools=[find, wait_for])


def functions(frames: TracebackType | None) -> list[str]:
    found: list[str] = []
    while frames is not None:
        found.append(frames.tb_frame.f_code.co_name)
        frames = frames.tb_next
    return found


def failure(run: Run[Any]) -> RunFailedError:
    with pytest.raises(RunFailedError) as failed:
        _ = run.output
    return failed.value


@pytest.mark.realtime
@pytest.mark.parametrize("name", ["find", "wait_for"])
async def test_the_error_of_a_tool_is_the_cause_of_the_failed_run(name: str) -> None:
    """The frames begin where the program's own code begins."""
    cause = failure(await run(finder(name))).__cause__

    assert isinstance(cause, KeyError)
    assert functions(cause.__traceback__) == [name, "_find"]


async def test_a_run_fails_because_of_its_model() -> None:
    asked = Agent("asked", model=ScriptedModel([ModelError("no")]))

    assert isinstance(failure(await run(asked)).__cause__, ModelError)


async def test_a_pipeline_catches_the_error_of_its_child() -> None:
    causes: list[BaseException | None] = []

    @agent
    async def lead(goal: str) -> str:
        try:
            return await delegate(finder("wait_for"), goal)
        except TaskFailedError as exc:
            causes.append(exc.__cause__)
            raise

    failed = failure(await run(lead)).__cause__

    assert isinstance(failed, TaskFailedError)
    assert causes == [failed.__cause__]
    assert isinstance(failed.__cause__, KeyError)


async def test_each_failure_of_a_fan_out_has_its_cause() -> None:
    @agent
    async def lead(goal: str) -> str:
        return str(await delegate(map_each(finder("wait_for")), [goal, goal]))

    failed = failure(await run(lead)).__cause__

    assert isinstance(failed, FanOutFailedError)
    # The first failure decides, and the other task may be cancelled before its own.
    assert {type(it.__cause__) for it in failed.exceptions} == {KeyError}


async def test_the_function_of_a_pipeline_raises_for_itself() -> None:
    @agent
    async def lead(goal: str) -> str:
        await trio.lowlevel.checkpoint()
        return _find(goal)

    ended = await run(lead)

    assert functions(failure(ended).__cause__.__traceback__) == ["lead", "_find"]  # type: ignore[union-attr]
    assert 'return {"ada": "here"}[user]' in ended.outcome.traceback


async def test_the_traceback_is_recorded_without_secrets() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(
        journal, machine=Machine(environ={"MY_KEY": SECRET})
    ) as orchestrator:
        await orchestrator.run(finder("wait_for", SECRET), "go")

    (ended,) = facts(journal.entries, TurnEnded)
    assert ended.outcome.traceback.endswith("KeyError: '***'")
    assert "in _find" in ended.outcome.traceback
    assert SECRET not in repr(journal.entries)


async def test_most_outcomes_have_no_traceback_to_store() -> None:
    """An expected error says all there is to say; a success nothing."""
    asked = Agent("asked", model=ScriptedModel([ModelError("no")]))
    lead = Agent(
        "lead",
        model=ScriptedModel([ToolCall("delegate_task", {"goal": "x"}), "done"]),
        delegates=[asked],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(lead, "go")

    (settled,) = facts(journal.entries, TaskSettled)
    (ended,) = facts(journal.entries, TurnEnded)
    assert settled.outcome.traceback == ended.outcome.traceback == ""
    assert b"traceback" not in encode(settled).body + encode(ended).body


async def test_an_earlier_traceback_is_a_note_after_a_restart() -> None:
    ended = await run(finder("wait_for"))
    again = RunFailedError("/finder", ended.outcome)

    explain(again, ended.outcome, None)

    assert again.__cause__ is None
    assert again.__notes__[0].startswith("in an earlier process:\nTraceback")


def test_a_long_traceback_keeps_its_two_ends() -> None:
    with pytest.raises(KeyError) as raised:
        _find("a" * 5_000 + "b" * 5_000)
    text = traceback_text(raised.value)

    assert len(text) < 8_192
    assert text.startswith("Traceback (most recent call last):")
    assert "characters …" in text
    assert text.endswith("bbb'")


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_people_find_it_with_show_and_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "journal.db"

    @agent
    async def lead(goal: str) -> str:
        return await delegate(finder("wait_for"), goal)

    async with open_orchestrator(journal) as orchestrator:
        ended = await orchestrator.run(lead, "go")
        entries = await orchestrator.read.entries(ended.id)

    assert run_command(["show", "/lead/finder[1]", "--journal", str(journal)]) == 0
    assert 'return {"ada": "here"}[user]' in capsys.readouterr().out
    history = read_history(ended.id, entries, has_writer=True, wants_transcript=lambda _: False)
    assert 'return {\\"ada\\": \\"here\\"}[user]' in json.dumps(columns_of(history))
