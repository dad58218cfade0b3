"""Real workers with turns of agents on a real Postgres: killed, stopped, and left by their writer.

The oracle is outside of all processes: a log of effects that every call has made durable.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from orchestrator import Run
from orchestrator.agents import Agent
from orchestrator.delegation import Cause
from orchestrator.testing import assert_laws
from tests.workers import turn_team
from tests.workers.test_worker_processes import (
    WorkerProcesses,
    has_ended,
    list_workers,
    pid_of,
    wait_placed,
    workers,
    writing,
)
from tests.workers.turn_team import climber, restarter

pytestmark = pytest.mark.realtime

TEAM = Path(turn_team.__file__)
FIXTURES = (workers,)


class Gate:
    """A named pipe at which a call stands, until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Wait until a call stands there, and let it go on after the block."""
        # Opens when it is opened at the other end.
        file = await trio.to_thread.run_sync(self.path.open, "w", abandon_on_cancel=True)
        with file:
            yield


def steps_in(text: str) -> list[tuple[int, int]]:
    """Return the process and the number of each step that an answer names."""
    return [(int(pid), int(n)) for pid, n in re.findall(r"^(\d+):(\d)$", text, re.MULTILINE)]


async def test_a_worker_that_is_killed_or_stopped_takes_the_turn_with_it(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(team=TEAM, slots=1, lease=6)
    workers.start(team=TEAM, slots=1, lease=6)
    gate = Gate(tmp_path / "gate")
    ended, runs = trio.open_memory_channel[Run[str]](1)
    async with writing(workers.url) as orchestrator, trio.open_nursery() as nursery:

        async def run(agent: Agent) -> None:
            await ended.send(await orchestrator.run(agent, str(gate.path)))

        # Killed: an agent that says so begins anew at the other worker.
        nursery.start_soon(run, restarter)
        async with gate.held():
            (placed,) = await wait_placed(orchestrator, 1)
            listed = await list_workers(workers)
            assert listed.returncode == 0
            assert "/restarter: its turn runs at 'gpu'" in listed.stdout
            killed = pid_of(placed.worker)
            (process,) = (it for it in workers.processes if it.pid == killed)
            process.kill()
            process.wait()
        async with gate.held():
            pass
        restarted = await runs.receive()
        steps = steps_in(restarted.outcome.output)
        assert [number for _, number in steps] == [1, 2, 3]
        assert len({pid for pid, _ in steps}) == 1
        other = steps[0][0]
        assert other != killed

        # Stopped past its lease: the turn is lost, and what that worker says later is fenced.
        nursery.start_soon(run, climber)
        async with gate.held():
            os.kill(other, signal.SIGSTOP)
            lost = await runs.receive()
            os.kill(other, signal.SIGCONT)
        assert lost.outcome.cause is Cause.WORKER_LOST
        assert lost.outcome.error.startswith("/climber has lost its worker at 'gpu' (")
        again = await orchestrator.run(climber, "")
        assert steps_in(again.outcome.output) == [(other, 1), (other, 2), (other, 3)]
        for run_ in (restarted, lost, again):
            assert_laws(await orchestrator._engine.book.read_entries(run_.id))

    assert set(workers.noted("step").values()) == {1}, "no call has run twice"
    background = re.findall(r'"pid":(\d+)', again.outcome.output)
    assert background
    assert all(has_ended(int(pid)) for pid in background), "they end with their turn"


async def test_the_next_writer_goes_on_with_a_turn_at_its_live_worker(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    """Kill -9 of the writer in the second step: the third one finds the state of the first."""
    # No worker is lost here, however busy the machine is.
    workers.start(team=TEAM, lease=30)
    workers.start(team=TEAM, lease=30)
    gate = Gate(tmp_path / "gate")
    address = f"{workers.url}&journal=tests&lease=2"

    def writer(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.workers.turn_writer", address]
        return subprocess.Popen(
            [*command, str(gate.path), *arguments],
            env=workers.environ,
            stdout=subprocess.PIPE,
            text=True,
        )

    with writer() as first:
        try:
            assert first.stdout is not None
            run = (await trio.to_thread.run_sync(first.stdout.readline)).strip()
            async with gate.held():
                first.kill()
                first.wait()
                second = writer(run)
        finally:
            first.kill()
    with second:
        try:
            said, _ = await trio.to_thread.run_sync(second.communicate)
        finally:
            second.kill()

    assert second.returncode == 0
    steps = steps_in(said)
    assert [number for _, number in steps] == [1, 2, 3], said
    assert len({pid for pid, _ in steps}) == 1
    assert sorted(workers.noted("step").values()) == [1, 1, 1]
    assert '"running"' in said, "its command was there until the end of the turn"
