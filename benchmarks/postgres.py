"""Compares a journal in Postgres with one in SQLite: ratios of one run.

A throwaway Postgres is started as for the tests, with fsync; where there is none, nothing is
measured. The CPU is that of this process; what Postgres uses beside it has a line of its own.
"""

import gc
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.measure import Report
from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.delegation import Rules, SessionId, encode
from orchestrator.delegation.events import Entry, MessageReceived, SessionOpened
from orchestrator.testing import hand_on
from tests.postgres import INSTALL, PostgresServer, open_postgres

RUNS: Final = 150
WARM_RUNS: Final = 10
ROUNDS: Final = 5
SESSIONS: Final = 20_000
FACTS: Final = 10
"""Of each session of a large journal."""


def _editor() -> Agent:
    """Return an agent with three helpers: four agents in all."""
    helper = Agent("helper", model=ScriptedModel.always("done"))
    model = ScriptedModel([hand_on("a", "b", "c"), "merged"])
    return Agent("editor", model=model, delegates=[helper])


async def _run_some(address: str) -> float:
    """Return the seconds of CPU of this process for one run."""
    async with open_orchestrator(address) as orchestrator:
        for _ in range(WARM_RUNS):
            await orchestrator.run(_editor(), "go")
        gc.collect()
        begun = time.process_time()
        for _ in range(RUNS):
            await orchestrator.run(_editor(), "go")
        return (time.process_time() - begun) / RUNS


async def _fill(address: str) -> None:
    """Write a journal of many sessions at rest."""
    async with store_at(address).open_writer() as journal:
        seq = 0
        for number in range(SESSIONS):
            session = SessionId(f"r_{number:016x}")
            for fact in range(FACTS):
                seq += 1
                event: Any = MessageReceived(session, "what is new?")
                if not fact:
                    event = SessionOpened(session, "editor")
                idle: dict[SessionId, str | None] = {}
                if fact == FACTS - 1:
                    idle[session] = "[]"
                entry = Entry(seq, float(seq), session, event)
                journal.append(entry, encode(event), idle)
            if not number % 500:
                await journal.wait_durable(seq)
        await journal.wait_durable(seq)


async def _read(address: str) -> float:
    """Return the seconds that opening a journal takes: it waits for the database, too."""
    gc.collect()
    begun = time.perf_counter()
    async with store_at(address).open_writer() as journal:
        await journal.read(Rules())
        return time.perf_counter() - begun


def _cpu_of(server: PostgresServer) -> float:
    """Return the seconds of CPU of a server and of its processes that ended."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if server.pid in {int(status.parent.name), int(fields[1])}:
            ticks += sum(map(int, fields[11:13]))
        if int(status.parent.name) == server.pid:
            ticks += sum(map(int, fields[13:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_postgres(report: Report) -> None:
    """Measure runs and openings in both, in turn."""
    try:
        with (
            open_postgres(fsync=True) as server,
            server.new_database() as url,
            tempfile.TemporaryDirectory() as folder,
        ):
            _measure_runs(report, server, str(Path(folder) / "runs.db"), url)
            _measure_opening(report, server, str(Path(folder) / "large.db"), url)
    except FileNotFoundError as exc:
        if str(exc) != INSTALL:
            raise
        print(f"not measured: {INSTALL}")


def _measure_runs(report: Report, server: PostgresServer, file: str, url: str) -> None:
    database = f"{url}&journal=runs"
    sqlite = postgres = math.inf
    beside = _cpu_of(server)
    # In turns: whatever else the machine does, it does to both.
    for _ in range(ROUNDS):
        sqlite = min(sqlite, trio.run(_run_some, file))
        postgres = min(postgres, trio.run(_run_some, database))
    beside = (_cpu_of(server) - beside) / ROUNDS / (RUNS + WARM_RUNS)
    name = "a run of 4 agents: in Postgres, against SQLite"
    report.add(name, sqlite * 1e3, postgres * 1e3, unit="ms", target=1.5)
    report.add(
        "  with what Postgres uses itself", sqlite * 1e3, (postgres + beside) * 1e3, unit="ms"
    )


def _measure_opening(report: Report, server: PostgresServer, file: str, url: str) -> None:
    database = f"{url}&journal=large"
    trio.run(_fill, file)
    trio.run(_fill, database)
    server.execute("VACUUM ANALYZE", database=url.partition("@/")[2].partition("?")[0])
    sqlite = postgres = math.inf
    for _ in range(ROUNDS):
        sqlite = min(sqlite, trio.run(_read, file))
        postgres = min(postgres, trio.run(_read, database))
    name = f"opening {SESSIONS * FACTS:,} facts at rest: in Postgres, against SQLite"
    report.add(name, sqlite * 1e3, postgres * 1e3, unit="ms", target=2)


if __name__ == "__main__":
    measure_postgres(Report())
