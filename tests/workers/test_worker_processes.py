"""Real workers on a real Postgres, killed and stopped at named points.

The oracle is outside of all processes: a log of effects that every call has made durable.
"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from orchestrator import Machine, Orchestrator, open_orchestrator
from orchestrator.agents.tools.terminal.process_tags import with_tag
from orchestrator.delegation.events import CallPlaced
from orchestrator.ports.execution import host_of
from orchestrator.products.cluster.worker.leftovers import end_leftovers, hold_worker_tag
from orchestrator.testing import assert_laws, facts
from tests.workers.fault_team import boss

pytestmark = pytest.mark.realtime

TEAM = Path(__file__).parent / "fault_team.py"
ROOT = Path(__file__).parent.parent.parent
LEASE = 3.0
POINTS = ("before begin", "after begin", "before end", "after end")


class WorkerProcesses:
    """The workers of one database, started again when they die."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.effects = folder / "effects"
        self.points = folder / "points"
        self.points.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "EFFECTS": str(self.effects),
            "POINTS": str(self.points),
            "ORCHESTRATOR_HOME": str(self.folder),
            "ORCHESTRATOR_JOURNAL": self.url,
            "PYTHONPATH": str(ROOT),
        }

    def start(
        self, *, slots: int = 4, lease: float = LEASE, team: Path = TEAM
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "orchestrator", "worker", str(team)),
                *("--place", "gpu", "--slots", str(slots), "--lease", str(lease)),
            ],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    async def revive_forever(self, count: int) -> None:
        """Hold so many workers alive, until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(self._revive)

    async def _revive(self) -> None:
        while True:
            process = self.start()
            await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)

    def noted(self, what: str) -> Counter[str]:
        """Return how often each call has had an effect."""
        lines = self.effects.read_text().splitlines() if self.effects.exists() else []
        return Counter(key for it in lines for kind, key, _ in [it.split()] if kind == what)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        # The next worker on this machine would end the commands of these.
        end_leftovers(self.folder / "workers", host_of(None, self.environ, spans_hosts=True).name)


@pytest.fixture
def workers(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator["WorkerProcesses"]:
    opened = WorkerProcesses(postgres, tmp_path)
    for name, value in opened.environ.items():
        monkeypatch.setenv(name, value)
    yield opened
    opened.end()


@asynccontextmanager
async def writing(url: str) -> AsyncGenerator[Orchestrator]:
    address = f"{url}&journal=tests"
    async with open_orchestrator(address, machine=Machine(environ={})) as orchestrator:
        yield orchestrator


async def wait_placed(orchestrator: Orchestrator, count: int) -> list[CallPlaced]:
    """Wait until so many calls run at workers, and return how."""
    ledger = orchestrator._engine.book.ledger
    while True:
        placed = [
            it for task in ledger.tasks.values() for it in task.placed.values() if it.execution
        ]
        if len(placed) >= count:
            return placed
        await orchestrator.wait_changed(after=ledger.last_seq)


async def list_workers(workers: WorkerProcesses) -> "subprocess.CompletedProcess[str]":
    """Run `orchestrator workers` on the database."""
    command = [sys.executable, "-m", "orchestrator", "workers"]
    return await trio.to_thread.run_sync(
        partial(
            subprocess.run,
            command,
            env={**workers.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    )


def has_ended(pid: int) -> bool:
    """Return whether a process runs no more; it may have no parent that looks after it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def pid_of(worker: str) -> int:
    return int(worker.rsplit("-", 2)[1])


def outputs_in(answer: str) -> str:
    """Return the outputs in answers of `delegate_task`, without the evidence beside them."""
    return "\n".join(re.findall(r'"output":"((?:[^"\\]|\\.)*)"', answer))


async def test_a_worker_stopped_past_its_lease_is_drained_and_leaves_no_process(
    workers: WorkerProcesses,
) -> None:
    first, second = workers.start(), workers.start()
    async with writing(workers.url) as orchestrator, trio.open_nursery() as nursery:
        ended: list[str] = []
        first_ended = trio.Event()

        async def run(goal: str) -> None:
            ended.append((await orchestrator.run(boss, goal)).outcome.output)
            first_ended.set()

        goal = "\n".join(f"lingerer {number} 2" for number in range(8))
        nursery.start_soon(run, goal)
        placed = await wait_placed(orchestrator, 8)
        still = first.pid
        held = {it.task for it in placed if pid_of(it.worker) == still}
        assert 0 < len(held) < 8, "each of the two runs some of them"
        os.kill(still, signal.SIGSTOP)
        await first_ended.wait()
        assert outputs_in(ended[0]).count("broken off") == len(held)
        os.kill(still, signal.SIGCONT)
        second.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(second.wait) == 0, "nothing ran there"
        # The first one is back: it drops what it held, and takes what is new.
        await run("launcher again")
        assert "launched launcher again" in ended[1]
        assert set(workers.noted("linger").values()) == {1}

        # A cancel is joined, also there.
        with trio.CancelScope() as cancelled:
            nursery.start_soon(run, "lingerer long 600")
            await wait_placed(orchestrator, 1)
            listed = await list_workers(workers)
            # The worker reports once a second, and may have told of the calls that it dropped.
            while listed.returncode == 0 and "1 of 4" not in listed.stdout:
                listed = await list_workers(workers)
            assert listed.returncode == 0
            assert "/boss/lingerer[1]: linger runs at 'gpu'" in listed.stdout
            began = trio.current_time()
            await orchestrator.cancel(orchestrator.runs[-1])
            assert trio.current_time() - began < 10
        assert not cancelled.cancelled_caught

        # A worker that is drained ends what it runs.
        await run("spawner x")
        left = int(re.findall(r'"(\d+)"', ended[-1])[0])
        nursery.start_soon(run, "lingerer last 1")
        await wait_placed(orchestrator, 1)
        first.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(first.wait) == 0
    assert "lingered lingerer last 1" in ended[-1]
    assert has_ended(left)


def test_a_worker_ends_the_processes_of_a_dead_one_on_its_machine(tmp_path: Path) -> None:
    with hold_worker_tag(tmp_path, "here") as alive:
        dead = "0123456789abcdef0123456789abcdef"
        (tmp_path / f"worker-here-{dead}.lock").touch()
        (tmp_path / f"worker-elsewhere-{dead}.lock").touch()
        left, used = (
            subprocess.Popen(["/bin/sleep", "60"], env=with_tag(os.environ, tag))
            for tag in (dead, alive)
        )
        assert end_leftovers(tmp_path, "here") == 1
        assert left.wait() == -signal.SIGKILL
        assert used.poll() is None
        assert end_leftovers(tmp_path, "here") == 0
    assert used.wait() == -signal.SIGKILL, "a worker ends what it has begun, too"


async def test_workers_are_killed_at_named_points(workers: WorkerProcesses) -> None:
    lines = [
        f"{kind} {name}"
        for kind in ("launcher", "painter")
        for name in ("one", "two", "three", "four", "five")
    ]
    for point in (*POINTS, "launcher one", "painter one"):
        (workers.points / point).touch()
    async with writing(workers.url) as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(workers.revive_forever, 2)
        with trio.fail_after(90):
            run = await orchestrator.run(boss, "\n".join(lines))
        entries = await orchestrator._engine.book.read_entries(run.id)
        nursery.cancel_scope.cancel()

    assert run.outcome.succeeded, run.outcome
    assert_laws(entries)
    # Another point may break that call off before its tool begins.
    assert {it.name for it in workers.points.iterdir()} <= {"launcher one"}
    launched, painted = workers.noted("launch"), workers.noted("paint")
    said = outputs_in(run.outcome.output)
    assert said.count("painted painter") == 5
    assert len(painted) == 5, "a call has the same key in every run"
    assert said.count("launched launcher") + said.count("broken off") == 5
    assert set(launched.values()) <= {1}, "no call that must not run twice has run twice"
    assert len(launched) >= said.count("launched launcher")
    workers_named = {it.worker for it in facts(entries, CallPlaced) if it.worker}
    assert len(workers_named) >= 3, "others have gone on"


async def test_the_next_writer_adopts_the_calls_of_live_workers(workers: WorkerProcesses) -> None:
    # No worker is lost here, however busy the machine is.
    """After kill -9 of the writer, no call is broken off and none runs twice."""
    workers.start(lease=30)
    workers.start(lease=30)
    address = f"{workers.url}&journal=tests&lease=2"

    def writer(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.workers.writer", address, "8", *arguments],
            env=workers.environ,
            stdout=subprocess.PIPE,
            text=True,
        )

    first = writer()
    assert first.stdout is not None
    run = (await trio.to_thread.run_sync(first.stdout.readline)).strip()
    first.kill()
    first.wait()
    first.stdout.close()
    second = writer(run)
    said, _ = await trio.to_thread.run_sync(second.communicate)

    assert second.returncode == 0
    assert said.count("lingered") == 8, said
    assert "broken off" not in said
    assert sorted(workers.noted("linger").values()) == [1] * 8
