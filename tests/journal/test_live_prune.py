"""Runs are pruned, and the file shrinks, while their journal is written."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import trio

from orchestrator import (
    JournalError,
    Orchestrator,
    SessionOpenError,
    UnknownIdError,
    open_orchestrator,
)
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.cli.app import run_command
from orchestrator.delegation import SessionId
from orchestrator.kernel.control import open_control
from orchestrator.kernel.journal.sqlite import journal as sqlite_journal
from orchestrator.kernel.journal.sqlite import prune as prune_steps
from orchestrator.kernel.journal.store import Level
from tests.journal.kit import DAY, change, rewrite
from tests.kit import hand_on, worker

pytestmark = pytest.mark.realtime

LONG = "x" * 20_000


async def write_runs(path: Path, *goals: str) -> list[SessionId]:
    async with open_orchestrator(path) as orchestrator:
        return [(await orchestrator.run(worker(), goal)).id for goal in goals]


def make_old(path: Path, days: int) -> None:
    rewrite(path, f"UPDATE entries SET at = at - {days * DAY}")


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def wrong(path: Path) -> list[str]:
    return [it.text for it in store_at(path).check() if it.level is Level.WRONG]


async def write_on(orchestrator: Orchestrator, until: trio.Event) -> int:
    """Run one agent after the other, and return how many."""
    runs = 0
    while not until.is_set():
        assert (await orchestrator.run(worker(), "meanwhile")).output == "done"
        runs += 1
    return runs


async def test_runs_are_pruned_while_others_are_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old = await write_runs(path, *(f"{number} {LONG}" for number in range(20)))
    make_old(path, 40)
    size = path.stat().st_size
    pruned = trio.Event()
    async with open_orchestrator(path) as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(write_on, orchestrator, pruned)
        done = await orchestrator.prune(before=time.time() - 30 * DAY)
        pruned.set()

        assert (done.runs, done.entries) == (20, 100)
        assert not set(old) & set(orchestrator.runs)
        with pytest.raises(UnknownIdError):
            await orchestrator.read_tree(old[0])
        assert ask(path, "SELECT count(*) FROM payloads") == [(0,)]
        assert wrong(path) == []
    assert path.stat().st_size < size / 3
    assert wrong(path) == []
    async with open_orchestrator(path) as orchestrator:
        assert not set(old) & set(orchestrator.runs)
        await orchestrator.run(worker(), "and on")


async def test_pruning_keeps_a_busy_session_of_any_age(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    model = ScriptedModel([hand_on("look", background=True), "on its way"])
    slow = Agent("slow", model=model, delegates=[worker(seconds=1000)])
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(slow) as live:
            await live.ask("go")
            run = await orchestrator.run(worker(), "go")
            done = await orchestrator.prune(before=time.time() + DAY)

            assert orchestrator.runs == [live.id]
            assert (done.runs, done.active) == (1, 1)
            with pytest.raises(SessionOpenError):
                await orchestrator.delete_run(live.id)
            with pytest.raises(UnknownIdError):
                await orchestrator.delete_run(run.id)


async def test_a_long_string_that_is_used_again_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written by a run that begins after the strings in use were read."""
    path = tmp_path / "journal.db"
    await write_runs(path, LONG)
    make_old(path, 40)
    scanned, written = trio.Event(), trio.Event()
    read_referenced = prune_steps.read_referenced

    def scan(connection: sqlite3.Connection, after: int, until: int) -> set[str]:
        found = read_referenced(connection, after, until)
        trio.from_thread.run_sync(scanned.set)
        trio.from_thread.run(written.wait)
        return found

    monkeypatch.setattr(prune_steps, "read_referenced", scan)

    async def use_again(orchestrator: Orchestrator) -> None:
        await scanned.wait()
        await orchestrator.run(worker(), LONG)
        written.set()

    async with open_orchestrator(path) as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(use_again, orchestrator)
        await orchestrator.prune(before=time.time() - 30 * DAY)
    assert ask(path, "SELECT count(*) FROM payloads") == [(1,)]
    assert wrong(path) == []


async def test_the_next_pruning_deletes_the_remains_of_a_crashed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    gone, kept = await write_runs(path, "old", "new")
    rewrite(path, f"UPDATE entries SET at = at - {40 * DAY} WHERE session = '{gone}'")
    steps, delete_entries = 0, prune_steps.delete_entries

    def delete_some(connection: sqlite3.Connection, limit: int) -> int:
        nonlocal steps
        steps += 1
        if steps > 2:
            raise OSError("the power is gone")
        return delete_entries(connection, 2)

    before = time.time() - 30 * DAY
    with monkeypatch.context() as patched:
        patched.setattr(prune_steps, "delete_entries", delete_some)
        with pytest.raises(JournalError, match="the power is gone"):
            await store_at(path).prune(before=before)

    assert ask(path, "SELECT count(*) FROM pruned_sessions") == [(1,)]
    assert wrong(path) == []
    with store_at(path).open_reader() as reader:
        assert reader.sessions() == [kept]
        assert reader.entries(gone) == []
    async with open_orchestrator(path) as orchestrator:
        assert orchestrator.runs == [kept]
        done = await orchestrator.prune(before=before)
    assert (done.runs, done.entries) == (0, 1)
    assert ask(path, f"SELECT * FROM entries WHERE session = '{gone}'") == []
    assert wrong(path) == []


async def test_the_command_prunes_a_journal_that_another_process_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    old = await write_runs(path, "old", "older")
    make_old(path, 40)

    async def command(*arguments: str) -> int:
        return await trio.to_thread.run_sync(
            run_command, ["runs", *arguments, "--journal", str(path)]
        )

    async with open_orchestrator(path) as orchestrator:
        async with open_control(orchestrator, path):
            new = await orchestrator.run(worker(), "new")
            newer = await orchestrator.run(worker(), "newer")
            assert await command("--prune", "30d") == 0
            assert "pruned 2 runs" in capsys.readouterr().out
            assert await command("--delete", new.id) == 0
            assert orchestrator.runs == [newer.id]
            assert await command("--delete", old[0]) == 2
            assert "there is no run" in capsys.readouterr().err


async def test_a_damaged_run_is_deleted_and_the_others_were_never_in_danger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    bad, good = await write_runs(path, "bad", "good")
    change(path, f"UPDATE entries SET body = '{{}}' WHERE session = '{bad}' AND seq = 4")

    async def command(*arguments: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(run_command, [*arguments, "--journal", str(path)])
        out, err = capsys.readouterr()
        return code, out, err

    code, out, err = await command("runs")
    assert code == 2
    assert good in out
    assert "entry 4 is damaged" in err
    assert (await command("tree", good))[0] == 0
    code, _, err = await command("tree", bad)
    assert code == 2
    assert "entry 4 is damaged" in err
    async with open_orchestrator(path) as orchestrator:
        with pytest.raises(JournalError, match="entry 4 is damaged"):
            await orchestrator.read_tree(bad)
        assert (await orchestrator.run(worker(), "go")).output == "done"
        await orchestrator.read_tree(good)
    assert (await command("runs", "--delete", bad))[0] == 0
    assert wrong(path) == []


def test_a_prune_step_does_not_sort_the_remaining_entries(tmp_path: Path) -> None:
    """Else pruning a large run would take the square of its entries."""
    with closing(sqlite_journal.connect(tmp_path / "journal.db")) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN {prune_steps.DELETE_MARKED}", (1,)
        ).fetchall()

    steps = " ".join(step for *_, step in plan)
    assert "INDEX entries_of_a_session (session=?)" in steps
    assert "TEMP B-TREE" not in steps
