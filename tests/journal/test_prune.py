"""`orchestrator runs`: the newest, all, and taking old ones out for good."""

import os
import sqlite3
from pathlib import Path

import pytest
import trio

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import journals_at, store_at
from orchestrator.cli.app import run_command
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_run
from orchestrator.kernel.journal import stored_entries
from orchestrator.kernel.journal.sqlite import entries as sqlite_entries
from orchestrator.kernel.journal.sqlite.check import check_journal
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal, read_sqlite_journal
from orchestrator.kernel.journal.store import Level
from tests.journal.kit import rewrite
from tests.kit import hand_on, worker

pytestmark = pytest.mark.realtime

DAY = 24 * 3600


def write_runs(path: Path, *goals: str) -> list[str]:
    """Run an agent on each goal, and return the ids of the runs."""

    async def write() -> list[str]:
        async with open_orchestrator(path) as orchestrator:
            return [(await orchestrator.run(worker(), goal)).id for goal in goals]

    return trio.run(write)


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        answer = connection.execute(question).fetchall()
    connection.close()
    return answer


def make_old(path: Path, *runs: str, days: int) -> None:
    for run in runs:
        rewrite(path, f"UPDATE entries SET at = at - {days * DAY} WHERE session = '{run}'")


def command(
    capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, code: int = 0
) -> tuple[str, str]:
    assert run_command([*arguments, "--journal", str(path)]) == code
    return capsys.readouterr()


def require_healthy(path: Path) -> None:
    assert [it.text for it in check_journal(path) if it.level is Level.WRONG] == []


def test_old_idle_runs_are_deleted_and_the_rest_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    old, older, new = write_runs(path, "x" * 50_000, "y" * 50_000, "z" * 5_000)
    make_old(path, old, older, days=31)
    size = path.stat().st_size
    (last,) = ask(path, "SELECT max(seq) FROM entries")

    would, _ = command(capsys, path, "runs", "--prune", "30d", "--dry-run")
    assert would == "would prune 2 runs (10 entries)\n"
    assert path.stat().st_size == size
    out, _ = command(capsys, path, "runs", "--prune", "30d")

    assert out == "pruned 2 runs (10 entries); 0.1 MB are free again\n"
    assert path.stat().st_size < size - 90_000
    assert ask(path, "SELECT entries, last FROM pruned") == [(10, *last)]
    assert ask(path, "SELECT count(*) FROM payloads") == [(1,)]
    require_healthy(path)
    listed, _ = command(capsys, path, "runs")
    assert new in listed
    assert old not in listed
    more = write_runs(path, "and on")
    assert ask(path, "SELECT session FROM sessions ORDER BY first") == [(new,), (*more,)]
    require_healthy(path)


def test_numbers_are_never_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if the very last entry was pruned."""
    path = tmp_path / "journal.db"
    runs = write_runs(path, "a", "b")
    make_old(path, *runs, days=2)
    (last,) = ask(path, "SELECT max(seq) FROM entries")
    command(capsys, path, "runs", "--prune", "24h")
    write_runs(path, "c")

    assert len(trio.run(read_sqlite_journal, path)) > 3
    (first,) = ask(path, "SELECT first FROM sessions")
    assert first > last
    require_healthy(path)


def test_pruning_keeps_a_busy_run_of_any_age(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"

    async def leave_something_running() -> str:
        model = ScriptedModel([hand_on("look", background=True), "on its way"])
        slow = Agent("slow", model=model, delegates=[worker(seconds=1000)])
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(slow) as session:
                await session.ask("go")
        return session.id

    make_old(path, trio.run(leave_something_running), days=100)
    out, _ = command(capsys, path, "runs", "--prune", "1w")

    assert "pruned 0 runs (0 entries), and none of the 1 that are not idle" in out
    assert ask(path, "SELECT count(*) FROM pruned") == [(0,)]


async def test_pruning_keeps_the_use_of_a_shared_budget(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=4, name="all"):
            async with orchestrator.open_session(worker()) as session:
                await session.ask("one")
            runs = [await orchestrator.run(worker(), "go") for _ in range(2)]
    make_old(path, *(run.id for run in runs), days=31)
    async with open_orchestrator(path) as later:
        now = later.now()
    pruned = await store_at(path).prune(before=now - 30 * DAY)
    async with open_orchestrator(path) as last:
        assert last.runs == [session.id]
        async with last.open_session(worker(), session=session.id) as again:
            assert (await again.ask("two")).outcome.succeeded
            assert "4 model calls" in (await again.ask("three")).text

    assert pruned.runs == 2


async def test_a_journal_in_use_is_not_pruned_and_its_holder_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "go")
    async with open_sqlite_journal(path):
        code = await trio.to_thread.run_sync(
            run_command, ["runs", "--prune", "0h", "--journal", str(path)]
        )
        err = capsys.readouterr().err
        dry = await trio.to_thread.run_sync(
            run_command, ["runs", "--prune", "0h", "--dry-run", "--journal", str(path)]
        )

    assert code == 2
    assert f"process {os.getpid()} is writing it" in err
    assert dry == 0
    assert capsys.readouterr().out == "would prune 1 runs (5 entries)\n"


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1.5d", "30 d", "1y", "", "٣d"])
def test_an_invalid_age_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], age: str
) -> None:
    write_runs(tmp_path / "journal.db", "go")
    out, err = command(capsys, tmp_path / "journal.db", "runs", f"--prune={age}", code=2)

    assert out == ""
    assert "say how old: 12h, 30d or 2w" in err


def test_dry_run_without_prune_and_a_missing_journal_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    _, err = command(capsys, path, "runs", "--prune", "1d", code=2)
    assert "there are no runs yet" in err
    assert not path.exists()
    write_runs(path, "go")
    _, err = command(capsys, path, "runs", "--dry-run", code=2)

    assert "--dry-run goes with --prune" in err


def test_the_newest_are_listed_and_only_they_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    runs = write_runs(path, *map(str, range(25)))
    read: set[str] = set()
    from_row = sqlite_entries.from_row

    def counted(
        connection: sqlite3.Connection, row: stored_entries.Row, allowance: stored_entries.Allowance
    ) -> object:
        read.add(row[2])
        return from_row(connection, row, allowance)

    monkeypatch.setattr(sqlite_entries, "from_row", counted)
    out, err = command(capsys, path, "runs")

    assert [line.split()[0] for line in out.splitlines()[1:]] == runs[5:]
    assert "the newest 20 of 25; all: " in err
    assert read - {""} == {*runs[5:]}
    read.clear()
    command(capsys, path, "tree", runs[2])
    assert read - {""} == {runs[2]}
    out, err = command(capsys, path, "runs", "--all")
    assert [line.split()[0] for line in out.splitlines()[1:]] == runs
    assert err == ""


def test_the_entries_of_one_run_are_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first, second = write_runs(path, "a", "b")

    journals = journals_at(path)
    assert read_run(journals, None).id == second
    found = read_run(journals, first)
    assert found.id == first
    assert {entry.session for entry in found.entries} == {first}
    with pytest.raises(CommandError, match="2 runs start with 'r_'"):
        read_run(journals, "r_")
