"""The journal in a SQLite file: private, durable, and written by one process at a time."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from agents import Agent, ScriptedModel
from orchestrator import JournalError, JournalInUseError, open_orchestrator
from orchestrator.runtime import default_journal
from orchestrator.storage.group_commit import GroupCommit
from orchestrator.storage.sqlite import (
    open_sqlite_journal,
    read_sqlite_journal,
    writer_of,
)
from tests.kit import hand_on, worker

# Threads and processes take real time, which a jumping clock would skip.
pytestmark = pytest.mark.realtime


def editor() -> Agent:
    model = ScriptedModel([hand_on("a", "b"), "merged"])
    return Agent("editor", model=model, delegates=[worker()])


async def test_what_was_run_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(editor(), "go")
    async with open_orchestrator(path) as later:
        again = await later.read_tree(run.id)

    assert again.to_text() == run.tree.to_text()
    assert len(await read_sqlite_journal(path)) > 10


async def test_only_its_owner_may_read_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(editor(), "go")
        modes = {
            file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()
        }

    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "journal.db-wal" in modes


async def test_the_default_is_a_file_in_the_state_directory(tmp_path: Path) -> None:
    environ = {"ORCHESTRATOR_HOME": str(tmp_path / "home")}
    async with open_orchestrator(environ=environ) as orchestrator:
        await orchestrator.run(editor(), "go")

    assert (tmp_path / "home" / "journal.db").exists()
    assert default_journal({"XDG_STATE_HOME": "/state"}) == Path(
        "/state/orchestrator/journal.db"
    )
    assert default_journal({}).name == "journal.db"


async def test_a_second_writer_is_told_who_the_first_one_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path):
        assert writer_of(path) == os.getpid()
        with pytest.raises(
            JournalInUseError, match=f"process {os.getpid()} is writing"
        ):
            async with open_sqlite_journal(path):
                pass
    assert writer_of(path) is None
    async with open_sqlite_journal(path):
        pass


def test_a_journal_that_never_was_has_no_writer(tmp_path: Path) -> None:
    assert writer_of(tmp_path / "none.db") is None


async def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and not to be touched" * 100)

    with pytest.raises(JournalError, match=r"notes\.txt: file is not a database"):
        async with open_orchestrator(path):
            pass
    assert path.read_text().startswith("not a database")


async def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="Is a directory"):
        async with open_orchestrator(tmp_path):
            pass


async def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO entries VALUES (2, 0, '', 'Unheard', 7, '{}')")
    connection.close()

    with pytest.raises(JournalError, match="entry 2 is 'Unheard' in version 7"):
        async with open_orchestrator(path):
            pass


async def test_reading_a_journal_that_is_not_there_creates_none(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no such file"):
        await read_sqlite_journal(tmp_path / "none.db")
    assert not await trio.Path(tmp_path / "none.db").exists()


async def test_entries_that_come_together_share_a_commit() -> None:
    commits: list[int] = []
    group = GroupCommit[str](lambda rows: commits.append(len(rows)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.commit_forever, trio.CancelScope())
        for seq in range(1, 1001):
            group.append(seq, "row")
        await group.wait_durable(1000)
        nursery.cancel_scope.cancel()

    assert commits == [1000]


async def test_a_commit_that_fails_fails_everybody_who_waits() -> None:
    def fail(_: Sequence[str]) -> None:
        raise JournalError("x.db", "disk full")

    group = GroupCommit(fail)
    group.append(1, "row")
    with pytest.RaisesGroup(JournalError, JournalError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.wait_durable, 1)
            nursery.start_soon(group.commit_forever, trio.CancelScope())

    with pytest.raises(JournalError, match="disk full"):
        await group.wait_durable(1)


async def test_a_journal_that_breaks_stops_everything_with_one_error(
    tmp_path: Path,
) -> None:
    """What cannot be written must not go on as if it had been."""
    path = tmp_path / "journal.db"

    async def run_on_a_broken_journal() -> None:
        async with open_orchestrator(path) as orchestrator:
            with sqlite3.connect(path) as vandal:
                vandal.execute("DROP TABLE entries")
            vandal.close()
            await orchestrator.run(editor(), "go")

    with pytest.raises(JournalError, match="no such table"):
        await run_on_a_broken_journal()


CHILD = """
import sys, trio
from agents import Agent, ScriptedModel, ToolMessage
from orchestrator import open_orchestrator
from tests.kit import hand_on, worker

def say(transcript):
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "on its way"
    if last.text.startswith("A task"):
        return "heard: " + last.text.partition("Output:\\n")[2]
    return hand_on("look", background=True)

async def main(path, session, seconds):
    agent = Agent("lead", model=ScriptedModel.always(say),
                  delegates=[worker(seconds=float(seconds), says="found")])
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session or None) as opened:
            if not session:
                await opened.ask("go")
            print(opened.id, flush=True)
            await opened.wait_idle()
            while True:
                try:
                    print(opened.replies.receive_nowait().text, flush=True)
                except trio.WouldBlock:
                    break

trio.run(main, *sys.argv[1:])
"""


def test_a_detached_task_outlives_kill_9_and_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    def start(session: str, seconds: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CHILD, str(path), session, seconds]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start("", "1000") as first:
        assert first.stdout is not None
        session = first.stdout.readline().strip()
        first.send_signal(signal.SIGKILL)
    assert writer_of(path) is None

    with start(session, "0") as second:
        told, _ = second.communicate(timeout=60)

    # The reply of the first turn may be handed over again: the kill came as it was.
    assert told.splitlines()[0] == session
    assert told.count("heard: found") == 1
    with sqlite3.connect(path) as connection:
        settled = connection.execute(
            "SELECT count(*) FROM entries WHERE kind = 'TaskSettled'"
        )
        assert settled.fetchone() == (1,)
    connection.close()
