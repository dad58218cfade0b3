"""Commands whose orchestrator has died: they are ended, and their session is told, once."""

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript
from orchestrator.delegation import Ending, SessionId
from orchestrator.delegation.events import (
    Entry,
    ProcessEnded,
    ProcessStarted,
    ReplyDelivered,
    SessionClosed,
    TurnEnded,
)
from orchestrator.kernel.execution.workspace.background_commands import LOST
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import continue_session, facts
from tests.orchestrator.commands_kit import (
    background,
    command_mail,
    command_mail_read,
    in_a_session,
    pipe,
    running_in,
    shell_user,
    talking,
)

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parent.parent.parent

# A session that waits for news of its command, and a run that has one and waits for another.
PROGRAM = """
import sys
from pathlib import Path

import trio

from orchestrator import Machine, open_orchestrator
from tests.orchestrator.commands_kit import ManualModel, shell_user, talking

COMMAND = "echo so far; setsid sh -c 'echo $$ >said; exec sleep 1000' & echo $$ >said; wait"

async def main():
    home = Path(sys.argv[1])
    machine = Machine(workspace=home)
    async with open_orchestrator(home / "journal.db", machine=machine) as orchestrator:
        async with talking(orchestrator) as talk, trio.open_nursery() as nursery:
            manual = await talk.begin()
            await manual.start(COMMAND, notify_on_complete=True)
            await talk.end()
            runner = ManualModel()
            nursery.start_soon(orchestrator.run, shell_user(runner), "go")
            await runner.receive()
            await runner.start(COMMAND)
            await runner.run(f"echo {talk.session.id} >ready; {COMMAND}")

trio.run(main)
"""


@pytest.mark.memory_only
async def test_the_next_process_ends_the_commands_of_a_killed_one(tmp_path: Path) -> None:
    """Grandchildren too, and those that have left the group: all carry the id of the command."""
    file = tmp_path / "journal.db"
    environ = {
        # Who is killed cannot say what it has covered, and would only be slower.
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE")
    }
    with pipe(tmp_path / "said") as said, pipe(tmp_path / "ready") as ready:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, env=environ
        )
        try:
            id_ = await ready.receive()
            for _ in range(6):
                await said.receive()
        finally:
            process.kill()
            await process.wait()
    assert len(running_in(tmp_path)) >= 6

    async with open_orchestrator(file, machine=Machine(workspace=tmp_path)) as orchestrator:
        assert running_in(tmp_path) == []
        async with talking(orchestrator, session=id_) as talk:
            heard = await talk.woken()
            await talk.idle()
    async with open_orchestrator(file, machine=Machine(workspace=tmp_path)) as orchestrator:
        async with talking(orchestrator, session=id_) as talk:
            await talk.idle()

    assert f"has ended: {LOST} (p_" in heard
    entries = await read_sqlite_journal(file)
    assert [it.how for it in facts(entries, ProcessEnded)] == [LOST, LOST]
    assert sorted(command_mail_read(entries)) == command_mail(entries) != []
    endings = [(it.session == id_, it.outcome.ending) for it in facts(entries, TurnEnded)]
    assert sorted(endings) == [(True, Ending.SUCCEEDED), (True, Ending.SUCCEEDED)]


def builder() -> Agent:
    """Return an agent that starts two commands, waits for the second, and tells what it heard.

    Its model is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def say(transcript: Transcript) -> Any:
        answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
        if len(answers) < 2:
            return [
                background("echo hit; echo one", watch_patterns=["hit"]),
                background("echo two", notify_on_complete=True),
            ][len(answers)]
        ids = re.findall(r'"id":"(p_\w+)"', answers[1])
        if len(answers) == 2 and ids:
            return ToolCall("process", {"action": "wait", "id": ids[0]})
        heard = sum(it.text.startswith("A command that") for it in transcript)
        return f"heard {heard}"

    return shell_user(ScriptedModel.always(say), "builder")


async def finish(entries: Sequence[Entry], workspace: Path) -> list[Entry]:
    machine = Machine(workspace=workspace)
    return await continue_session(builder(), entries, takes_replies=True, machine=machine)


def check(entries: Sequence[Entry], length: int) -> None:
    """Require that every command ended once, and was told of once, and was never run again."""
    started = facts(entries, ProcessStarted)
    ended = Counter(it.id for it in facts(entries, ProcessEnded))
    assert ended == Counter(it.id for it in started), length
    assert len({it.command for it in started}) == len(started), length
    assert sorted(command_mail_read(entries)) == command_mail(entries), length
    (session,) = fold_entries(entries, "journal").sessions.values()
    assert session.is_idle, length
    turns = facts(entries, TurnEnded)
    assert {it.outcome.ending for it in turns} == {Ending.SUCCEEDED}, length
    assert len(turns) == len(facts(entries, ReplyDelivered)), length


async def test_a_crash_after_any_entry_loses_and_repeats_no_notice(tmp_path: Path) -> None:
    whole = await finish([], tmp_path)

    check(whole, len(whole))
    assert len(facts(whole, ProcessStarted)) == 2
    assert len(command_mail(whole)) == 3
    for length in range(1, len(whole)):
        check(await finish(whole[:length], tmp_path), length)


async def test_crash_upon_crash_ends_well(tmp_path: Path) -> None:
    """A journal that is cut again after every few entries still comes to its end."""
    whole = await finish([], tmp_path)
    for length in range(4, len(whole), 5):
        cut = await finish(whole[:length], tmp_path)

        check(await finish(cut[: length + 3], tmp_path), length)


async def test_a_closed_session_gets_no_notice_after_a_crash(tmp_path: Path) -> None:
    """It dies after it was said that the session is closed, and before its command was ended."""
    journal = MemoryJournal()
    with pipe(tmp_path / "gate"):
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start("read _ <gate", notify_on_complete=True)
            await talk.end()
            await talk.orchestrator.close_session(talk.session.id)
    kinds = [type(entry.event) for entry in journal.entries]
    cut = MemoryJournal(journal.entries[: kinds.index(SessionClosed) + 1])

    async with open_orchestrator(cut, machine=Machine(workspace=tmp_path)) as orchestrator:
        session = orchestrator.read.records.sessions[SessionId(talk.session.id)]

        assert session.is_idle
        assert not session.mail
    assert [it.how for it in facts(cut.entries, ProcessEnded)] == [LOST]
