"""A database that is restored to an earlier moment from a base backup and its log."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.backends import store_at
from orchestrator.kernel.journal.store import Level
from tests.postgres import PostgresServer, find_program, open_postgres, require_postgres
from tests.workers.fault_team import boss
from tests.workers.test_worker_processes import WorkerProcesses, wait_placed

pytestmark = pytest.mark.realtime


@pytest.fixture
def archived() -> Generator[PostgresServer]:
    """A server that archives its log."""
    require_postgres()
    with open_postgres(
        wal_level="replica",
        max_wal_senders="2",
        full_page_writes="on",
        archive_mode="on",
        # Relative to the folder of the data.
        archive_command="cp %p ../archive/%f",
    ) as server:
        server.run("mkdir", server.folder / "archive")
        access = server.data / "pg_hba.conf"
        access.write_text(f"local replication postgres trust\n{access.read_text()}")
        server.execute("SELECT pg_reload_conf()", "CREATE DATABASE journals")
        yield server


def back_up(server: PostgresServer) -> None:
    """Copy the data beside the running server."""
    server.run(
        *(find_program("pg_basebackup"), "--pgdata", server.folder / "backup"),
        *("--host", server.folder, "--username", "postgres"),
        *("--wal-method", "none", "--checkpoint", "fast", "--no-sync"),
    )


def restore(server: PostgresServer, moment: str) -> None:
    """Replace the data by the backup, and play the log until a moment."""
    server.stop("fast")
    shutil.rmtree(server.data)
    (server.folder / "backup").rename(server.data)
    server.run("touch", server.data / "recovery.signal")
    server.start(
        wal_level="replica",
        max_wal_senders="2",
        hot_standby="off",
        restore_command="cp ../archive/%f %p",
        recovery_target_name=moment,
        recovery_target_action="promote",
    )


async def test_a_database_is_restored_to_a_moment_while_a_worker_runs(
    archived: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = archived.url("journals")
    journal = f"{url}&journal=tests"
    workers = WorkerProcesses(url, tmp_path)
    for name, value in workers.environ.items():
        monkeypatch.setenv(name, value)
    worker = workers.start()
    try:
        with trio.fail_after(300):
            async with open_orchestrator(journal, machine=Machine(environ={})) as orchestrator:
                first = await orchestrator.run(boss, "painter first")
                await trio.to_thread.run_sync(back_up, archived)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(orchestrator.run, boss, "lingerer under way 3600")
                    await wait_placed(orchestrator, 1)
                    await orchestrator.wait_durable()
                    archived.execute("SELECT pg_create_restore_point('moment')")
                    last = await orchestrator.run(boss, "painter last")
                    archived.execute("SELECT pg_switch_wal()")
                    [under_way] = {*orchestrator.runs} - {first.id, last.id}
                    nursery.cancel_scope.cancel()

            await trio.to_thread.run_sync(restore, archived, "moment")

            # The writer of that moment is gone; its lease would end by itself.
            ended = "UPDATE orchestrator.journals SET until = 'epoch'"
            archived.execute(ended, database="journals")
            async with open_orchestrator(
                journal, session=under_way, machine=Machine(environ={})
            ) as orchestrator:
                assert {*orchestrator.runs} == {first.id, under_way}
                resumed = await orchestrator.resume(boss, under_way)
                new = await orchestrator.run(boss, "painter new")
        assert worker.poll() is None
    finally:
        workers.end()
    # The call may have happened, so it is not repeated: its agent reads that it was broken off.
    assert "broken off" in str(resumed.outcome.output)
    assert workers.noted("linger").total() == 1
    assert "painted painter new" in str(new.outcome.output)
    assert [it.text for it in store_at(journal).check() if it.level is Level.WRONG] == []
