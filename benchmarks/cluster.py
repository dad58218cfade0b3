"""Measures several processes on one database: lent calls, two workers, a failover.

A throwaway Postgres is started as for the tests, with fsync; where there is none, nothing is
measured. Nothing here needs idle cores: costs are CPU time; two workers and one process are
measured in turn; and a failover mostly waits.
"""

import gc
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import trio

from benchmarks.lent_work import postgres_seconds, seconds_of
from benchmarks.measure import Report
from benchmarks.workloads import ANY_NUMBER
from orchestrator import Workers, open_orchestrator
from orchestrator.agents import Agent
from tests.postgres import INSTALL, PostgresServer, open_postgres
from tests.server.cluster_kit import Client, Cluster, open_cluster

ROOT: Final = Path(__file__).parent.parent
WRITER_MILLISECONDS: Final = 2.0
ALL_MILLISECONDS: Final = 6.0
"""The goals for a child whose call is lent."""
CHILDREN: Final = 400
CALLS: Final = 16
ROUNDS: Final = 4
GAIN: Final = 1.7
"""How much faster two workers should be than one process."""
LEASE: Final = 3.0
TAKE_OVERS: Final = 2
TEAM: Final = '''
import time

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, tool

CALLS = {calls}


@tool(place="oven", idempotent=True)
async def burn(number: int) -> str:
    """Use a core for a fifth of a second of its time."""
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass
    return "burnt"


def calls(transcript):
    if isinstance(transcript[-1], ToolMessage):
        return "done"
    return [ToolCall("burn", {{"number": number}}) for number in range(CALLS)]


baker = Agent("baker", model=ScriptedModel.always(calls), tools=[burn])


@tool(place="desk", idempotent=True)
async def touch() -> str:
    """Do nothing, elsewhere."""
    return "touched"


def touches(transcript):
    return "done" if isinstance(transcript[-1], ToolMessage) else ToolCall("touch")


def hands_on(transcript):
    if isinstance(transcript[-1], ToolMessage):
        return "done"
    tasks = [{{"goal": f"{{number}}"}} for number in range({children})]
    return ToolCall("delegate_task", {{"tasks": tasks, "background": False}})


child = Agent("child", model=ScriptedModel.always(touches), tools=[touch])
parent = Agent("parent", model=ScriptedModel.always(hands_on), delegates=[child])
'''


def measure_cluster(report: Report) -> None:
    """Measure lent calls, two workers against one process, and a failover."""
    try:
        with open_postgres(fsync=True) as server, tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            team = TEAM.format(calls=CALLS, children=CHILDREN)
            (folder / "team.py").write_text(team)
            trio.run(_measure_children, report, server, folder)
            trio.run(_measure_workers, report, server, folder)
            trio.run(_measure_failover, report, server, folder)
    except FileNotFoundError as exc:
        if str(exc) != INSTALL:
            raise
        print(f"not measured: {INSTALL}")


async def _measure_children(report: Report, server: PostgresServer, folder: Path) -> None:
    """Measure children, each with a call that is lent: all that they cost, models apart."""
    parent = _agent(folder, "parent")
    with server.new_database() as url:
        async with (
            _worker(folder, url, "desk", slots=50) as worker,
            open_orchestrator(url, rules=ANY_NUMBER) as orchestrator,
        ):
            await orchestrator.run(parent, "go")
            best = (math.inf, math.inf)
            for _ in range(ROUNDS):
                gc.collect()
                own = time.process_time()
                others = seconds_of(worker) + postgres_seconds(server)
                assert (await orchestrator.run(parent, "go")).output == "done"
                own = time.process_time() - own
                others = seconds_of(worker) + postgres_seconds(server) - others
                best = min(best, (own + others, own))
    total, own = (it * 1e3 / CHILDREN for it in best)
    name = f"a child with a lent call, {CHILDREN} at once: the writer's CPU"
    report.add(f"{name} (bar)", WRITER_MILLISECONDS, own, unit="ms", target=1)
    name = "  with that of the worker and of Postgres"
    report.add(f"{name} (bar)", ALL_MILLISECONDS, total, unit="ms", target=1)


@asynccontextmanager
async def _worker(folder: Path, url: str, place: str, *, slots: int = 1) -> AsyncGenerator[int]:
    """Run a worker in a process of its own, as long as the block lasts; yield its id."""
    process = await trio.lowlevel.open_process(
        [
            *(sys.executable, "-m", "orchestrator", "worker", str(folder / "team.py")),
            *("--place", place, "--slots", str(slots)),
        ],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "ORCHESTRATOR_HOME": str(folder / token_hex(4)),
            "ORCHESTRATOR_JOURNAL": url,
        },
        stdout=subprocess.PIPE,
        # As a service has it: Linux divides a busy machine by sessions, not by processes.
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        # It says so when it is ready.
        assert await process.stdout.receive_some(), "the worker did not start"
        yield process.pid
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _seconds(url: str, agent: Agent, **options: Any) -> float:
    """Return how long a run of all calls takes."""
    async with open_orchestrator(url, **options) as orchestrator:
        begun = time.perf_counter()
        run = await orchestrator.run(agent, "go")
        assert run.output == "done"
        return time.perf_counter() - begun


def _agent(folder: Path, name: str) -> Agent:
    """Return the agent of the file that the workers have, too."""
    names: dict[str, Any] = {}
    exec((folder / "team.py").read_text(), names)  # noqa: S102 (it was written just now)
    agent: Agent = names[name]
    return agent


async def _measure_workers(report: Report, server: PostgresServer, folder: Path) -> None:
    baker = _agent(folder, "baker")
    alone: list[float] = []
    lent: list[float] = []
    with server.new_database() as url:
        async with AsyncExitStack() as workers:
            for _ in range(2):
                await workers.enter_async_context(_worker(folder, url, "oven"))
            await _seconds(url, baker)
            # In turn: whatever else the machine does, it does to both.
            for _ in range(ROUNDS):
                alone.append(await _seconds(url, baker, workers=Workers(here=["oven"])))
                lent.append(await _seconds(url, baker))
    # Those that were measured next to each other belong together.
    _, here, there = min(
        (there / here, here, there) for here, there in zip(alone, lent, strict=True)
    )
    report.add(
        f"{CALLS} calls that use a core: at 2 workers, against one process",
        here * 1e3,
        there * 1e3,
        unit="ms",
        target=round(1 / GAIN, 2),
    )


async def _measure_failover(report: Report, server: PostgresServer, folder: Path) -> None:
    """Kill a server, and ask the other one for a run of it until it answers."""
    best = math.inf
    with server.new_database() as url:
        async with open_cluster(folder, f"{url}&lease={LEASE:g}") as cluster:
            first = await cluster.start()
            for _ in range(TAKE_OVERS):
                second = await cluster.start()
                run = await _begin_at(cluster, first)
                await first.server.kill()
                begun = time.perf_counter()
                # It answers when there is a writer, or that there is none for five seconds.
                while (await second.http.get(f"/v1/runs/{run}")).status_code != 200:
                    pass
                best = min(best, time.perf_counter() - begun)
                first = second
    report.add(
        "a server is killed, until another has its run: against the lease",
        LEASE * 1e3,
        best * 1e3,
        unit="ms",
        target=round((LEASE + 1) / LEASE, 2),
    )


async def _begin_at(cluster: Cluster, client: Client) -> str:
    """Begin a run that a server itself writes, and return its id."""
    while True:
        run = await client.begin("helper", "work")
        call = await cluster.oracle.next()
        if call.process == client.server.pid:
            return run
        await call.answer("elsewhere")


if __name__ == "__main__":
    measure_cluster(Report())
