"""Damaged facts are told where they are read, and their session alone cannot be read."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio

from orchestrator import JournalError, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.cli.app import run_command
from orchestrator.delegation import SessionId
from orchestrator.kernel.journal.sqlite.lock import lock_path
from orchestrator.kernel.journal.store import Level
from tests.journal.kit import change
from tests.kit import hand_on, worker
from tests.server.kit import serving

pytestmark = pytest.mark.realtime


def slow() -> Agent:
    model = ScriptedModel([hand_on("look", background=True), "on its way"])
    return Agent("slow", model=model, delegates=[worker(seconds=1000)])


async def write_live_sessions(path: Path) -> list[SessionId]:
    """Leave two sessions with a task in the background, and return their ids."""
    async with open_orchestrator(path) as orchestrator:
        for _ in range(2):
            async with orchestrator.open_session(slow()) as session:
                await session.ask("go")
        return orchestrator.runs


def damage(path: Path, session: str, kind: str = "MessageReceived") -> int:
    """Change a letter in a text, and return the number of the entry."""
    where = f"WHERE session = '{session}' AND kind = '{kind}'"
    change(path, f"UPDATE entries SET body = replace(body, 'go', 'no') {where}")
    with closing(sqlite3.connect(path)) as connection:
        (seq,) = connection.execute(f"SELECT min(seq) FROM entries {where}").fetchone()
    return int(seq)


def wrong(path: Path) -> list[str]:
    return [it.text for it in store_at(path).check() if it.level is Level.WRONG]


async def test_an_unfinished_session_that_is_damaged_is_refused_and_others_go_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    bad, good = await write_live_sessions(path)
    seq = damage(path, bad)
    async with open_orchestrator(path) as orchestrator:
        with pytest.raises(JournalError, match=f"entry {seq} is damaged"):
            async with orchestrator.open_session(slow(), session=bad):
                pass
        with pytest.raises(JournalError, match=f"entry {seq} is damaged"):
            await orchestrator.read_tree(bad)
        async with orchestrator.open_session(slow(), session=good) as session:
            await orchestrator.read_tree(session.id)
        assert (await orchestrator.run(worker(), "go")).output == "done"

    (told,) = wrong(path)
    assert f"{bad!r}: entries are damaged or missing: {seq}" in told
    assert "runs --delete" in told


async def test_an_entry_that_the_index_does_not_find_is_missed(tmp_path: Path) -> None:
    """The index is part of the file and may be damaged too."""
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(worker(), "go")
    with closing(sqlite3.connect(path)) as connection, connection:
        (last,) = connection.execute(
            "SELECT max(seq) FROM entries WHERE session = ?", (run.id,)
        ).fetchone()
        connection.execute("DROP INDEX entries_of_a_session")
        connection.execute(
            f"CREATE INDEX entries_of_a_session ON entries (session, seq) WHERE seq != {last}"
        )
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX entries_of_a_session"
            " ON entries (session, seq)' WHERE name = 'entries_of_a_session'"
        )
    with (
        pytest.raises(JournalError, match=f"entry {last} should be the last one"),
        store_at(path).open_reader(verify=False) as reader,
    ):
        reader.entries(SessionId(run.id))
    assert any("SQLite finds" in text for text in wrong(path))


def _keep_no_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _damage_the_log(path: Path) -> None:
    log = bytearray(Path(f"{path}-wal").read_bytes())
    log[100] ^= 1
    Path(f"{path}-wal").write_bytes(log)


def _become_empty(path: Path) -> None:
    path.write_bytes(b"")
    Path(f"{path}-wal").unlink()


@pytest.mark.parametrize("lose", [_keep_no_log, _damage_the_log, _become_empty])
async def test_a_journal_that_has_lost_its_end_is_refused_until_that_is_accepted(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """Its writer was killed, so the last facts are in the log of SQLite alone."""
    path, killed = tmp_path / "journal.db", tmp_path / "killed" / "journal.db"
    killed.parent.mkdir()
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "go")
        for beside in ("", "-wal", ".lock"):
            shutil.copy(f"{path}{beside}", f"{killed}{beside}")
    lose(killed)

    with pytest.raises(JournalError, match=r"its entries 1 to 6 are lost"):
        async with open_orchestrator(killed):
            pass
    with pytest.raises(JournalError), store_at(killed).open_reader():
        pass
    assert wrong(killed)
    lock_path(killed).unlink()
    async with open_orchestrator(killed) as orchestrator:
        assert orchestrator.runs == []


async def test_an_older_copy_of_a_closed_journal_may_be_put_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    async with open_orchestrator(path) as orchestrator:
        first = await orchestrator.run(worker(), "go")
    shutil.copy(path, copy)
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "again")
    shutil.copy(copy, path)
    async with open_orchestrator(path) as orchestrator:
        assert orchestrator.runs == [first.id]
    assert wrong(path) == []


async def test_a_client_is_told_the_damaged_entry_and_the_server_continues(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        bad = await orchestrator.run(worker(), "go")
        good = await orchestrator.run(worker(), "go")
    seq = damage(path, bad.id)
    async with serving(worker(), journal=path) as served:
        told = await served.http.get(f"/v1/runs/{bad.id}/events")
        assert told.status_code == 500
        assert f"entry {seq} is damaged" in told.json()["error"]["message"]
        assert (await served.http.get(f"/v1/runs/{good.id}")).status_code == 200
        assert (await served.orchestrator.run(worker(), "go")).output == "done"


async def test_show_and_report_name_the_damaged_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(worker(), "go")
    seq = damage(path, run.id)
    for command in (["show", "/worker", "--run", run.id], ["report", run.id]):
        code = await trio.to_thread.run_sync(run_command, [*command, "--journal", str(path)])
        assert code == 2
        assert f"entry {seq} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("sessions", "1 of its runs are not listed"),
        ("last_entries", "the last entries of 1 of its runs are not listed"),
    ],
)
async def test_a_run_that_one_of_the_lists_lacks_is_missed(
    tmp_path: Path, table: str, problem: str
) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        first = await orchestrator.run(worker(), "go")
        await orchestrator.run(worker(), "go")
    change(path, f"DELETE FROM {table} WHERE session = '{first.id}'")

    with pytest.raises(JournalError, match=problem):
        async with open_orchestrator(path):
            pass
    assert wrong(path)
