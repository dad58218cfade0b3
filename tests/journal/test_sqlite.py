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
import trio.testing

from orchestrator import JournalError, JournalInUseError, Machine, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import encode
from orchestrator.delegation.events import TurnEnded
from orchestrator.kernel.journal.group_commit import GroupCommit
from orchestrator.kernel.journal.long_strings import (
    MAX_INLINE_CHARACTERS,
    extract_long_strings,
    restore_long_strings,
)
from orchestrator.kernel.journal.sqlite.journal import (
    open_sqlite_journal,
    read_sqlite_journal,
    writer_of,
)
from orchestrator.kernel.journal.sqlite.schema import TABLES, VERSION
from orchestrator.kernel.state_files import default_journal
from tests.journal.kit import change, rewrite
from tests.kit import facts, hand_on, worker

# Threads and processes take real time, which a jumping clock would skip.
pytestmark = pytest.mark.realtime


def editor() -> Agent:
    model = ScriptedModel([hand_on("a", "b"), "merged"])
    return Agent("editor", model=model, delegates=[worker()])


async def test_a_stored_run_is_read_back(tmp_path: Path) -> None:
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
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "journal.db-wal" in modes


async def test_the_default_is_a_file_in_the_state_directory(tmp_path: Path) -> None:
    environ = {"ORCHESTRATOR_HOME": str(tmp_path / "home")}
    async with open_orchestrator(machine=Machine(environ=environ)) as orchestrator:
        await orchestrator.run(editor(), "go")

    assert (tmp_path / "home" / "journal.db").exists()
    assert default_journal({"XDG_STATE_HOME": "/state"}) == Path("/state/orchestrator/journal.db")
    assert default_journal({}).name == "journal.db"


async def test_a_second_writer_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path):
        assert writer_of(path) == os.getpid()
        with pytest.raises(JournalInUseError, match=f"process {os.getpid()} is writing"):
            async with open_sqlite_journal(path):
                pass
    assert writer_of(path) is None
    async with open_sqlite_journal(path):
        pass


def test_a_journal_that_never_was_has_no_writer(tmp_path: Path) -> None:
    assert writer_of(tmp_path / "none.db") is None


async def test_a_file_that_is_not_a_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and not to be touched" * 100)

    with pytest.raises(JournalError, match=r"notes\.txt: file is not a database"):
        async with open_orchestrator(path):
            pass
    assert path.read_text().startswith("not a database")


async def test_a_folder_is_refused_as_a_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="it is a folder, not a file"):
        async with open_sqlite_journal(tmp_path):
            pass


async def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO entries VALUES (2, 0, '', 'Unheard', 7, '{}', 1, 0)")
    connection.close()

    with pytest.raises(JournalError, match="entry 2 is 'Unheard' in version 7"):
        async with open_orchestrator(path):
            pass


async def test_a_newer_fact_is_refused_also_in_an_idle_session(tmp_path: Path) -> None:
    """It is not read at opening, and a later reader would have to guess."""
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(editor(), "go")
    change(path, "UPDATE entries SET version = 99 WHERE kind = 'TurnEnded'")

    with pytest.raises(JournalError, match="'TurnEnded' in version 99: it was written"):
        async with open_orchestrator(path):
            pass
    with pytest.raises(JournalError, match="'TurnEnded' in version 99: it was written"):
        await read_sqlite_journal(path)
    plan = ask(path, "EXPLAIN QUERY PLAN SELECT 1 FROM entries WHERE version != 1")
    assert "unknown_facts" in str(plan)
    assert run.output == "merged"


async def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path):
        pass
    change(path, f"PRAGMA user_version = {VERSION + 1}")

    sentence = f"its tables are of version {VERSION + 1}: it was written by a newer"
    with pytest.raises(JournalError, match=sentence):
        async with open_orchestrator(path):
            pass
    with pytest.raises(JournalError, match=sentence):
        await read_sqlite_journal(path)


@pytest.mark.parametrize("version", [-1, 0])
async def test_tables_of_a_version_that_never_was_are_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path):
        pass
    change(path, f"PRAGMA user_version = {version}")

    with pytest.raises(JournalError, match="restore a copy"):
        async with open_orchestrator(path):
            pass
    with pytest.raises(JournalError, match="restore a copy"):
        await read_sqlite_journal(path)


async def test_tables_that_cannot_be_created_leave_the_file_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    tables = (*TABLES[:2], "SELECT nonsense")
    monkeypatch.setattr("orchestrator.kernel.journal.sqlite.schema.TABLES", tables)

    with pytest.raises(JournalError, match="no such column: nonsense"):
        async with open_orchestrator(path):
            pass
    assert ask(path, "SELECT sql FROM sqlite_schema") == []


LONG = 'long "quoted" \\ text \x00 \x1a ☃ 𝄞 ' * 200


async def test_a_long_string_is_stored_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    lead = Agent(
        "lead", model=ScriptedModel([hand_on(LONG, "b"), LONG]), delegates=[worker(says=LONG)]
    )
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(lead, LONG)
    async with open_orchestrator(path) as later:
        again = await later.read_tree(run.id)

    assert run.output == LONG
    assert again.to_text() == run.tree.to_text()
    entries = await read_sqlite_journal(path)
    (ended,) = facts(entries, TurnEnded)
    assert ended.outcome.output == LONG
    stored = [str(text) for (text,) in ask(path, "SELECT string FROM payloads")]
    assert encode(ended).body.decode().count(stored[0]) == 1
    said = sum(encode(entry.event).body.count(stored[0].encode()) for entry in entries)
    assert said >= 5
    assert sorted(map(len, stored)) == sorted({len(text) for text in stored})
    assert ask(path, "SELECT max(length(body)) < 3000 FROM entries") == [(1,)]


async def test_short_strings_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(editor(), "x" * (MAX_INLINE_CHARACTERS - 2))

    assert ask(path, "SELECT count(*) FROM payloads") == [(0,)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"a":"b"}',
        f'{{"a":"{"x" * MAX_INLINE_CHARACTERS}"}}',
        f'["{"x" * (MAX_INLINE_CHARACTERS - 2)}","{"y" * (MAX_INLINE_CHARACTERS - 1)}"]',
        '["' + r"\\\"" * MAX_INLINE_CHARACTERS + '","' + r"\"" * MAX_INLINE_CHARACTERS + '"]',
        '{"' + "key" * MAX_INLINE_CHARACTERS + '":"' + "é" * MAX_INLINE_CHARACTERS + '"}',
        '["' + "x" * 5000 + '","' + "x" * 5000 + '"]',
    ],
)
def test_long_strings_are_restored_to_the_letter(text: str) -> None:
    payloads: dict[str, str] = {}
    left = extract_long_strings(text, payloads)

    assert (
        restore_long_strings(
            left.encode(), lambda name: payloads[name].encode(), limit=len(text) * 3
        )
        == text.encode()
    )
    assert all(len(string) > MAX_INLINE_CHARACTERS for string in payloads.values())
    assert bool(payloads) == (left != text)


async def test_a_missing_long_string_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(editor(), LONG)
    change(path, "DELETE FROM payloads")

    with pytest.raises(JournalError, match=r"'MessageReceived': its string \w+ is mis"):
        await read_sqlite_journal(path)
    async with open_orchestrator(path) as later:
        with pytest.raises(JournalError, match="is missing"):
            await later.read_tree(run.id)


async def test_a_damaged_list_of_use_is_reported_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(editor(), "go")
    rewrite(path, "UPDATE sessions SET used = '[nonsense'")

    with pytest.raises(JournalError, match="the usage of session r_"):
        async with open_orchestrator(path):
            pass


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


async def test_reading_a_missing_journal_creates_no_file(tmp_path: Path) -> None:
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


async def test_a_commit_that_fails_fails_every_wait() -> None:
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


async def test_rows_without_a_wait_share_the_flush_of_others() -> None:
    commits: list[list[str]] = []
    group = GroupCommit[str](lambda rows: commits.append(list(rows)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.commit_forever, trio.CancelScope())
        for seq in range(1, 4):
            group.append(seq, f"row {seq}")
            await trio.testing.wait_all_tasks_blocked()
        await group.wait_durable(2)
        nursery.cancel_scope.cancel()

    assert commits == [["row 1", "row 2", "row 3"]]


async def test_rows_without_a_wait_are_written_soon_all_the_same() -> None:
    written = trio.Event()
    group = GroupCommit[str](lambda _: trio.from_thread.run_sync(written.set))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.commit_forever, trio.CancelScope())
            group.append(1, "row")
            await written.wait()
            nursery.cancel_scope.cancel()


async def test_a_delegation_adds_two_flushes_to_a_run(tmp_path: Path) -> None:
    async def flushes_of(agent: Agent) -> int:
        async with open_sqlite_journal(tmp_path / f"{agent.name}.db") as journal:
            async with open_orchestrator(journal) as orchestrator:
                before = journal.group.commits
                await orchestrator.run(agent, "go")
                await journal.group.wait_all_durable()
                return journal.group.commits - before

    alone = await flushes_of(worker("alone"))

    assert (alone, await flushes_of(editor())) == (2, 4)


async def test_a_broken_journal_stops_the_orchestrator_with_one_error(tmp_path: Path) -> None:
    """Work must not continue without its facts."""
    path = tmp_path / "journal.db"

    async def run_on_a_broken_journal() -> None:
        async with open_orchestrator(path) as orchestrator:
            with sqlite3.connect(path) as vandal:
                vandal.execute("DROP TABLE entries")
            vandal.close()
            await orchestrator.run(editor(), "go")

    with pytest.raises(JournalError, match="another process has written it meanwhile"):
        await run_on_a_broken_journal()


CHILD = """
import sys, trio
from orchestrator.agents import Agent, ScriptedModel, ToolMessage
from orchestrator import open_orchestrator
from tests.journal.kit import change, rewrite
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


def test_a_detached_task_survives_kill_9_and_is_reported_once(tmp_path: Path) -> None:
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
        settled = connection.execute("SELECT count(*) FROM entries WHERE kind = 'TaskSettled'")
        assert settled.fetchone() == (1,)
    connection.close()
