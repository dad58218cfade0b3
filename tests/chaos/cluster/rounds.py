"""One round: processes that work, faults in the midst of it, and what all of them leave behind."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.agents import raising_one_error
from tests.chaos.cluster.changes import install_witness
from tests.chaos.cluster.home import HOME_VARIABLE, Home
from tests.chaos.cluster.oracle import Evidence, find_problems
from tests.chaos.cluster.processes import Process, Spawner, children_of
from tests.chaos.cluster.proxy import Proxy, serve_proxy
from tests.chaos.cluster.work import FENCED, JOURNAL, WORKER_LEASE
from tests.postgres import PostgresServer

LEASE: Final = 1.5
"""Of the journal, in seconds."""
WORKERS: Final = 2
PATIENCE: Final = 300
"""How many seconds a round may last before we say that it hangs."""
AWAY_SECONDS: Final = 2.0
"""How long Postgres is away."""
SILENT_SECONDS: Final = WORKER_LEASE + 1.5
"""How long a worker stands still: its lease, and until the writer has looked."""
MORE: Final = 6
"""How many lines another writer adds to the logs before the first one goes on."""
DRAINED_IN_VAIN: Final = 128 + signal.SIGTERM
USER: Final = "chaos"
PASSWORD: Final = "no secret"
TEMPLATE: Final = "chaos_template"
CRASH: Final = "crash Postgres"
FAULTS: Final = (
    "stop the writer",
    "kill a worker",
    "hole before the writer",
    "stop a worker",
    "kill the writer",
    "hole before a worker",
    CRASH,
)
TWICE: Final = "deliver twice"
LINES: Final = (8, 80)
"""Between how many lines of the logs a fault strikes; a round has about 130."""


@attrs.frozen
class Fault:
    """The actions at each number of lines in the logs."""

    kind: str
    at: int
    resets: bool
    """A black hole ends with all connections broken."""


@attrs.frozen
class Plan:
    """The faults of a round."""

    faults: tuple[Fault, ...]
    twice: bool
    """Every dispatch is delivered twice."""

    @property
    def kinds(self) -> list[str]:
        return [*(it.kind for it in self.faults), *([TWICE] if self.twice else [])]


def plan_of(seed: int) -> Plan:
    chance = random.Random(f"cluster {seed}")
    kinds = [FAULTS[seed % len(FAULTS)]]
    kinds += chance.choices(FAULTS, k=chance.randrange(3))
    times = sorted(chance.randint(*LINES) for _ in kinds)
    faults = [Fault(kind, at, chance.random() < 0.5) for kind, at in zip(kinds, times, strict=True)]
    return Plan(tuple(faults), twice=chance.random() < 0.25)


@attrs.frozen
class Round:
    """How a round ended."""

    seed: int
    plan: Plan
    problems: list[str]
    seconds: float
    epochs: int
    broken_off: int
    effects: int

    @property
    def line(self) -> str:
        verdict = f"BROKEN ({len(self.problems)})" if self.problems else "held"
        lines = [
            f"seed {self.seed}: {verdict}; {', '.join(self.plan.kinds)};"
            f" {self.epochs} writers, {self.effects} effects, {self.broken_off} broken off,"
            f" {self.seconds:.1f} s",
            *(f"    {problem}" for problem in self.problems),
        ]
        if self.problems:
            lines.append(f"    again: python -m tests.chaos.cluster --rounds 1 --seed {self.seed}")
        return "\n".join(lines)


class _Progress:
    """Counts the lines of all logs of a round."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self._read = trio.lowlevel.FdStream(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        # Held open: the pipe has no end while no process writes.
        self._write = os.open(pipe, os.O_WRONLY)
        self._count = 0
        self._grown = trio.Event()

    @property
    def count(self) -> int:
        return self._count

    async def count_forever(self) -> None:
        try:
            async for read in self._read:
                self._count += len(read)
                self._grown.set()
                self._grown = trio.Event()
        finally:
            os.close(self._write)
            with trio.CancelScope(shield=True):
                await self._read.aclose()

    async def wait(self, is_true: Callable[[], bool]) -> None:
        """Wait until something is true that a line may change."""
        await trio.lowlevel.checkpoint()
        while not is_true():
            await self._grown.wait()


class Game:
    """A round that is under way."""

    def __init__(
        self,
        seed: int,
        spawner: Spawner,
        server: PostgresServer,
        home: Home,
        *,
        database: str,
        nursery: trio.Nursery,
    ) -> None:
        """Prepare a round.

        Args:
            seed: of the round.
            spawner: forks its processes.
            server: has its database.
            home: its folder.
            database: the name of its database.
            nursery: owns its proxies, and what reads its pipe.
        """
        self.plan = plan_of(seed)
        self.problems: list[str] = []
        self.workers: dict[int, Process] = {}
        self._chance = random.Random(f"victims {seed}")
        self._seed = seed
        self._spawner = spawner
        self._server = server
        self._home = home
        self._database = database
        self._nursery = nursery
        self._progress = _Progress(home.progress)
        self._writers: dict[str, Process] = {}
        self._proxies: dict[str, Proxy] = {}
        self._numbers = iter(range(1, 1000))

    async def play(self) -> None:
        """Start everything, let the faults strike, and wait until nothing runs any more."""
        self._nursery.start_soon(self._progress.count_forever)
        for _ in range(WORKERS):
            await self._start_worker()
        await self._start_writer()
        await self._start_writer()
        for fault in self.plan.faults:
            await self._wait_lines(fault.at)
            if not self._is_done:
                await self._strike(fault)
        await self._progress.wait(lambda: self._is_done)
        await self._end()

    @property
    def _is_done(self) -> bool:
        return bool(self._home.receipts.read("done"))

    async def _wait_lines(self, count: int) -> None:
        await self._progress.wait(lambda: self._progress.count >= count or self._is_done)

    async def _start_writer(self) -> None:
        name = f"writer-{self._seed}-{next(self._numbers)}"
        environ = await self._environ(name)
        started = self._writers[name] = await self._spawner.start("writer", name, environ)
        self._nursery.start_soon(self._replace, started)

    async def _replace(self, writer: Process) -> None:
        """Start another one for a writer that a busy machine has kept still past its lease."""
        await writer.ended.wait()
        if not (writer.is_disturbed or self._is_done):
            await self._start_writer()

    async def _start_worker(self) -> None:
        name = f"worker-{self._seed}-{next(self._numbers)}"
        environ = await self._environ(name)
        started = await self._spawner.start("worker", name, environ)
        assert started.pid is not None, "it is born"
        self.workers[started.pid] = started

    async def _environ(self, name: str) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        port = self._server.port
        victim = "writer" if name.startswith("writer") else "a worker"
        if any(it.startswith("hole") and victim in it for it in self.plan.kinds):
            proxy: Proxy = await self._nursery.start(serve_proxy, port)
            self._proxies[name] = proxy
            port = proxy.port
        return {
            HOME_VARIABLE: str(self._home.folder),
            "CHAOS_NAME": name,
            "CHAOS_TWICE": "1" if self.plan.twice else "",
            "ORCHESTRATOR_HOME": str(self._home.folder),
            "ORCHESTRATOR_JOURNAL": (
                f"postgresql://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}"
                f"/{self._database}?journal={JOURNAL}&lease={LEASE}&application_name={name}"
            ),
        }

    @property
    def address(self) -> str:
        """The address of the journal for the oracle."""
        url = self._server.url(self._database)
        return f"{url}&journal={JOURNAL}"

    @property
    def _writer(self) -> Process:
        """The process that wrote the journal last, as far as it has said so."""
        return self._writers[self._home.receipts.read("writer")[-1]["name"]]

    async def _strike(self, fault: Fault) -> None:
        match fault.kind:
            case "kill a worker":
                await self._kill_worker()
            case "stop a worker":
                await self._stop_worker()
            case "hole before a worker":
                await self._swallow_worker(fault)
            case "kill the writer":
                await self._kill_writer()
            case "stop the writer":
                await self._stop_writer()
            case "hole before the writer":
                await self._swallow_writer(fault)
            case _:
                await trio.to_thread.run_sync(self._server.stop, "immediate")
                await trio.sleep(AWAY_SECONDS)
                # Not in a thread: the server ends with the thread that has started it.
                self._server.start()

    def _some_worker(self) -> Process:
        living = [it for it in self.workers.values() if it.code is None]
        chosen = self._chance.choice(living)
        chosen.is_disturbed = True
        return chosen

    async def _kill_worker(self) -> None:
        victim = self._some_worker()
        victim.signal(signal.SIGKILL)
        await victim.ended.wait()
        await self._start_worker()

    async def _stop_worker(self) -> None:
        victim = self._some_worker()
        victim.signal(signal.SIGSTOP)
        await trio.sleep(SILENT_SECONDS)
        victim.signal(signal.SIGCONT)

    async def _swallow_worker(self, fault: Fault) -> None:
        proxy = self._proxies[self._some_worker().name]
        proxy.close_eyes()
        await trio.sleep(SILENT_SECONDS)
        await self._end_hole(proxy, fault)

    async def _end_hole(self, proxy: Proxy, fault: Fault) -> None:
        await trio.lowlevel.checkpoint()
        if fault.resets:
            await proxy.reset()
        else:
            proxy.open_eyes()

    async def _kill_writer(self) -> None:
        victim = self._writer
        victim.is_disturbed = True
        victim.signal(signal.SIGKILL)
        await victim.ended.wait()
        await self._start_writer()
        # The next fault may be due, and strikes the writer that goes on.
        await self._wait_next_writer(victim)

    async def _stop_writer(self) -> None:
        victim = self._writer
        victim.signal(signal.SIGSTOP)
        await self._wait_taken_over(victim)
        victim.signal(signal.SIGCONT)
        await self._require_fenced(victim)

    async def _swallow_writer(self, fault: Fault) -> None:
        victim = self._writer
        self._proxies[victim.name].close_eyes()
        await self._wait_taken_over(victim)
        await self._end_hole(self._proxies[victim.name], fault)
        await self._require_fenced(victim)

    async def _wait_taken_over(self, victim: Process) -> None:
        """Wait until another writer goes on with the work, which is more than having it."""
        victim.is_disturbed = True
        await self._start_writer()
        await self._wait_next_writer(victim)
        await self._wait_lines(self._progress.count + MORE)

    async def _wait_next_writer(self, last: Process) -> None:
        await self._progress.wait(lambda: self._writer is not last or self._is_done)

    async def _require_fenced(self, victim: Process) -> None:
        await victim.ended.wait()
        if victim.code != FENCED:
            self.problems.append(
                f"{victim.name} was fenced, and ended with {victim.code}, not {FENCED}"
            )

    async def _end(self) -> None:
        """Wait for all writers, and end the workers: nothing may happen any more."""
        await trio.lowlevel.checkpoint()
        for writer in list(self._writers.values()):
            await writer.ended.wait()
            usual = {-signal.SIGKILL, FENCED} if writer.is_disturbed else {0, FENCED}
            if writer.code not in usual:
                self.problems.append(self._unexpected(writer))
        effects = self._begun_effects()
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)
        for worker in self.workers.values():
            await worker.ended.wait()
            # Without a writer it may have to wait in vain that the end of a run is taken.
            usual = {0, DRAINED_IN_VAIN}
            if worker.is_disturbed:
                usual.add(-signal.SIGKILL)
            if worker.code not in usual:
                self.problems.append(self._unexpected(worker))
        if late := self._begun_effects() - effects:
            self.problems.append(f"{late} calls began after the last writer had ended")

    def _begun_effects(self) -> int:
        """Return how many calls began at workers that have not stood still."""
        begun = self._home.effects.read("launch", "measure")
        return sum(not self.workers[it["pid"]].has_stood_still for it in begun)

    def kill_all(self) -> None:
        for process in (*self._writers.values(), *self.workers.values()):
            process.signal(signal.SIGKILL)

    def _unexpected(self, process: Process) -> str:
        said = (self._home.folder / f"{process.name}.txt").read_text()[-2000:]
        return f"{process.name} ended with {process.code}: {said}"


async def play_round(seed: int, spawner: Spawner, server: PostgresServer, folder: Path) -> Round:
    """Play a round, and compare what it leaves behind.

    Args:
        seed: decides all that is not left to the scheduler.
        spawner: forks the processes.
        server: listens at a port, and is prepared (`prepare`).
        folder: an empty one.
    """
    home = Home(folder)
    began = trio.current_time()
    database = f"chaos_{seed}"
    await trio.to_thread.run_sync(
        server.execute, f"create database {database} template {TEMPLATE} strategy file_copy"
    )
    others = set(children_of(spawner.pid))
    evidence: Evidence | None = None
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            game = Game(seed, spawner, server, home, database=database, nursery=nursery)
            with trio.move_on_after(PATIENCE) as patience:
                await game.play()
            nursery.cancel_scope.cancel()
    if patience.cancelled_caught:
        game.problems.append(f"it hangs: it was not done after {PATIENCE} s")
        game.kill_all()
    if not patience.cancelled_caught:
        evidence = await trio.to_thread.run_sync(Evidence.collect, home, game.address, game.workers)
        game.problems += await trio.to_thread.run_sync(find_problems, evidence)
        # Those of rounds beside this one are known.
        left = set(children_of(spawner.pid)) - spawner.living - others
        game.problems += [f"process {pid} is left" for pid in left]
        await trio.to_thread.run_sync(server.execute, f"drop database {database} with (force)")
    return Round(
        seed,
        game.plan,
        game.problems,
        trio.current_time() - began,
        epochs=0 if evidence is None else len(evidence.writers),
        broken_off=0 if evidence is None else evidence.broken_off,
        effects=0 if evidence is None else len(evidence.effects),
    )


async def prepare(server: PostgresServer) -> None:
    """Make the role of all processes, and the database of which those of rounds are copies."""

    def create() -> None:
        server.execute(
            f"create role {USER} superuser login password '{PASSWORD}'",
            f"create database {TEMPLATE}",
        )

    await trio.to_thread.run_sync(create)
    await install_witness(server.url(TEMPLATE))
