"""Copies of journals that are made while they are written can be opened, and are whole."""

import sqlite3
import subprocess
from pathlib import Path

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.backends import store_at
from orchestrator.kernel.journal.store import Level
from tests.kit import worker
from tests.postgres import PostgresServer, find_program

pytestmark = pytest.mark.realtime


def runs_of(address: str | Path) -> set[str]:
    """Return the runs of a journal that doctor finds nothing wrong with."""
    store = store_at(str(address))
    assert [it.text for it in store.check() if it.level is Level.WRONG] == []
    with store.open_reader() as reader:
        return set(reader.sessions())


async def test_a_sqlite_journal_is_copied_while_it_is_written(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    before: set[str] = set()
    is_copied = False

    def back_up() -> None:
        with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
            source.backup(target, pages=1)
        source.close()
        target.close()
        copy.chmod(0o600)

    async with open_orchestrator(path) as orchestrator:
        for _ in range(10):
            before.add((await orchestrator.run(worker(), "before")).id)

        async def write() -> None:
            while not is_copied:
                await orchestrator.run(worker(), "during")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.to_thread.run_sync(back_up)
            is_copied = True

    assert before <= runs_of(copy)
    async with open_orchestrator(copy) as orchestrator:
        again = await orchestrator.run(worker(), "after")
    assert again.id in runs_of(copy)


async def test_a_database_is_restored_to_the_moment_of_its_backup(
    postgres: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """The backup is made beside a writer, which goes on; the restored journal goes on, too."""
    dump, psql = find_program("pg_dump"), find_program("psql")
    if dump is None or psql is None:
        pytest.skip("pg_dump is not installed")
    file = tmp_path / "backup.sql"
    journal = f"{postgres}&journal=one"
    async with open_orchestrator(journal) as orchestrator:
        first = (await orchestrator.run(worker(), "first")).id
        await trio.run_process([str(dump), "--file", str(file), postgres])
        second = (await orchestrator.run(worker(), "second")).id
        with postgres_server.new_database() as restored:
            done = await trio.run_process(
                [str(psql), "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(file), restored],
                stdout=subprocess.DEVNULL,
            )
            assert done.returncode == 0
            # The lease of the writer at that moment is over, or ends soon.
            postgres_server.execute(
                "UPDATE orchestrator.journals SET until = 'epoch'",
                database=restored.partition("@/")[2].partition("?")[0],
            )
            copy = f"{restored}&journal=one"
            assert runs_of(copy) == {first}
            async with open_orchestrator(copy) as other:
                third = (await other.run(worker(), "third")).id
            assert runs_of(copy) == {first, third}
    assert runs_of(journal) == {first, second}
