"""A process that was killed in a tool: the next one gives the dependencies again, and goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import trio

from orchestrator.delegation.events import SessionOpened
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import facts

PROGRAM = '''
import os, signal, sys
import attrs, trio
from pydantic import BaseModel, PositiveInt
from orchestrator.agents import Agent, DefinitionError, Hooks, OutputError, ScriptedModel
from orchestrator.agents import TaskContext, ToolCall, tool
from orchestrator import open_orchestrator


class Count(BaseModel):
    number: PositiveInt


@attrs.frozen
class Shop:
    owner: str


async def welcome(task: TaskContext[Shop]) -> str:
    return f"You work for {task.deps.owner}."


@tool(idempotent=True)
async def stock(task: TaskContext[Shop]) -> str:
    """Look at the stock."""
    if task.deps.owner == "Ann":
        os.kill(os.getpid(), signal.SIGKILL)
    return task.deps.owner


def is_large(count: Count) -> None:
    if count.number < 5:
        raise OutputError("there is more")


def answer(transcript):
    if len(transcript) == 1:
        return ToolCall("stock")
    sent_back = "sent back" in transcript[-1].text
    return '{"number": 9}' if sent_back else '{"number": 1}'


heard = []
clerk = Agent(
    "clerk", model=ScriptedModel.always(answer), tools=[stock], instructions=welcome, deps=Shop,
    output=Count, checks=[is_large],
    hooks=[Hooks(before_model=lambda task, request: heard.append(request.instructions))],
)


async def main(journal, run=None):
    async with open_orchestrator(journal) as orchestrator:
        if run is None:
            await orchestrator.run(clerk, "Count.", deps=Shop("Ann"))
        try:
            await orchestrator.resume(clerk, run)
        except DefinitionError as exc:
            print(exc)
        print((await orchestrator.resume(clerk, run, deps=Shop("Bob"))).output, heard)


trio.run(main, *sys.argv[1:])
'''


def test_a_run_that_was_killed_goes_on_with_other_dependencies(tmp_path: Path) -> None:
    program, journal = tmp_path / "program.py", tmp_path / "journal.db"
    program.write_text(PROGRAM)

    def started(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, str(program), str(journal), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    killed = started()
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    entries = trio.run(read_sqlite_journal, journal)
    [opened] = facts(entries, SessionOpened)
    resumed = started(opened.session)

    assert resumed.returncode == 0, resumed.stderr
    refused, done = resumed.stdout.splitlines()
    assert refused.startswith("agent 'clerk' needs deps of type Shop")
    # The instructions are those of the first process; the stock is seen by the second.
    assert done == f"number=9 {['You work for Ann.'] * 2}"
