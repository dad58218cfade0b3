"""One round: a process that is killed and started again until it is done."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Final, Protocol

import attrs
import trio

from tests.chaos.fault_points import POINTS
from tests.chaos.life import Life
from tests.chaos.oracle import Death, Evidence, Seen, find_problems
from tests.chaos.plan import plan_of
from tests.chaos.provider import CountingProvider
from tests.chaos.served import POINTS as SERVED_POINTS
from tests.chaos.served import open_served_worker

ROOT: Final = Path(__file__).parent.parent.parent
MOST_KILLS: Final = 4
PATIENCE: Final = 60
"""How many seconds a life may last before we say that it hangs."""
FROM_OUTSIDE: Final = {"request": 40, "response": 40}
"""The events that the parent kills at, and the most times that it waits for each."""
LONGEST: Final = 0.6
"""How many seconds pass at most before it is killed from outside."""


@attrs.frozen
class Round:
    """How a round ended."""

    seed: int
    deaths: list[Death]
    problems: list[str]
    seen: Seen

    @property
    def line(self) -> str:
        """The round in one line."""
        seen = self.seen
        verdict = f"BROKEN ({len(self.problems)})" if self.problems else "held"
        return (
            f"seed {self.seed}: {verdict}; {len(self.deaths)} kills, {seen.tasks} tasks,"
            f" {seen.requests} requests, {seen.effects} effects, {seen.receipts} receipts,"
            f" {seen.told} notices, {seen.paid_twice} answers paid twice"
            + (f" (oldest {seen.oldest:.3f} s)" if seen.paid_twice else "")
        )


class Worker(Protocol):
    """A process that can be killed, and started again."""

    async def live(self, life: Life, *, seconds: float) -> int:
        """Let it live, kill it after so many seconds, and return its exit code."""
        ...

    def kill(self) -> None:
        """Kill the process that lives now."""
        ...

    @property
    def killed_at(self) -> float:
        """When it was last killed, or 0."""
        ...


class Spawner:
    """The process of which the workers are forked."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._unread = b""
        self._pid = 0
        """The worker that lives now, or 0."""
        self.killed_at = 0.0

    async def live(self, life: Life, *, seconds: float) -> int:
        """Let a process live, kill it after so many seconds, and return its exit code."""
        assert self._process.stdin is not None
        line = json.dumps(attrs.asdict(life)).encode() + b"\n"
        await self._process.stdin.send_all(line)
        self._pid = int(await self._read_line())
        code: bytes | None = None
        with trio.move_on_after(seconds):
            code = await self._read_line()
        if code is None:
            self.kill()
            code = await self._read_line()
        self._pid = 0
        return int(code)

    def kill(self) -> None:
        """Kill the worker that lives now."""
        if self._pid:
            self.killed_at = time.time()
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    async def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            read = await self._process.stdout.receive_some()
            assert read, "no process starts any more"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line


@asynccontextmanager
async def open_spawner() -> AsyncGenerator[Spawner]:
    environ = {
        # A killed process cannot say what it has covered, and would only be slower.
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COV")
    }
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.chaos.worker"], stdin=PIPE, stdout=PIPE, cwd=ROOT, env=environ
    )
    spawner = Spawner(process)
    try:
        yield spawner
    finally:
        spawner.kill()
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


class _Countdown:
    """Kills a worker when the parent has seen something for the n-th time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._event = ""
        self._left = 0

    def set(self, event: str, count: int) -> None:
        self._event, self._left = event, count

    def on_event(self, event: str) -> None:
        if event == self._event:
            self._left -= 1
            if self._left == 0:
                self._worker.kill()


async def play_round(seed: int, spawner: Spawner, provider: CountingProvider, home: Path) -> Round:
    """Kill a process some times, let it come to its end, and compare what it leaves behind.

    Args:
        seed: decides all that is not left to the scheduler.
        spawner: forks the processes.
        provider: answers for all models.
        home: an empty folder.
    """
    if not plan_of(seed).is_served:
        return await _play(seed, spawner, POINTS, provider, home)
    async with open_served_worker(home) as worker:
        return await _play(seed, worker, SERVED_POINTS, provider, home)


async def _play(
    seed: int, worker: Worker, points: Mapping[str, int], provider: CountingProvider, home: Path
) -> Round:
    chance = random.Random(f"kills {seed}")
    life = Life(home=str(home), plan=seed, label=f"{seed}", provider=f"{provider.url}/v1")
    countdown = _Countdown(worker)
    with provider.counting(life, countdown.on_event) as counted:
        deaths, problems = await _live_and_die(life, worker, points, countdown, chance)
    evidence = await Evidence.collect(life, counted.exchanges, deaths)
    if not problems:
        # In a thread: the provider serves other rounds meanwhile.
        problems = await trio.to_thread.run_sync(find_problems, evidence)
    if problems:
        lines = (json.dumps(attrs.asdict(it)) for it in counted.exchanges)
        await trio.Path(home / "requests.log").write_text("\n".join(lines))
    return Round(seed, deaths, problems, evidence.seen)


async def _live_and_die(
    life: Life,
    worker: Worker,
    points: Mapping[str, int],
    countdown: _Countdown,
    chance: random.Random,
) -> tuple[list[Death], list[str]]:
    """Start a process until it has done its work; return its deaths, and what went wrong."""
    deaths: list[Death] = []
    kills = chance.randint(0, MOST_KILLS)
    while True:
        point, count, seconds = (
            _next_death(points, chance) if len(deaths) < kills else ("", 0, PATIENCE)
        )
        countdown.set(point, count)
        life = attrs.evolve(life, seed=chance.randrange(10**6), point=point, count=count)
        began = time.time()
        code = await worker.live(life, seconds=seconds)
        if code == 0:
            return deaths, []
        how = f"{point} {count}, or {seconds:.2f} s" if point else f"{seconds:.2f} s"
        # A process that has killed itself has written down when.
        killed = [*(it["at"] for it in life.kills.read()), worker.killed_at]
        at = min((at for at in killed if at > began), default=time.time())
        deaths.append(Death(how, began, at))
        if code != -signal.SIGKILL:
            return deaths, [f"a process ended with {code}: see its errors"]
        if len(deaths) > kills:
            return deaths, [f"it hangs: it was not done after {PATIENCE} s"]


def _next_death(points: Mapping[str, int], chance: random.Random) -> tuple[str, int, float]:
    """Return at which point, at which time there, or after how many seconds a process dies."""
    points = {**points, **FROM_OUTSIDE}
    weighted = [*points, *["after the answer arrived", "after a receipt", ""] * 8]
    point = chance.choice(weighted)
    seconds = chance.uniform(0.05, LONGEST)
    if not point:
        return "", 0, seconds
    # Most often early, and not much later if it never gets there.
    return point, round(points[point] ** chance.random()), seconds + LONGEST
