"""An orchestrator whose tools with a place run here, or at workers over memory."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from orchestrator import Machine, MemoryJournal, Orchestrator, Workers, open_orchestrator
from orchestrator.agents import Agent
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.delegation.events import Entry
from orchestrator.kernel.execution.agent_catalogue import AgentCatalogue
from orchestrator.kernel.execution.workspace.settings import WorkspaceSettings
from orchestrator.products.cluster.work import (
    Beat,
    Exchange,
    ExecutionId,
    Request,
    WorkerId,
    WorkerMailbox,
    WorkerSeen,
)
from orchestrator.products.cluster.work.postgres.exchange import open_exchange
from orchestrator.products.cluster.worker.context import WorkerContexts
from orchestrator.products.cluster.worker.process import Worker
from orchestrator.products.cluster.worker.wire import BEGIN, END, Next, question_in
from orchestrator.testing import CrashedError
from orchestrator.testing import facts as facts_of
from tests.workers.memory import MemoryExchange, MemoryPresence

PLACE = "gpu"
JOURNAL = "shard-1"
LEASE = 4.0


class MortalJournal(MemoryJournal):
    """A journal whose writer can die: nothing becomes durable any more."""

    is_dead = False

    def append(self, entry: Entry, *args: Any, **keywords: Any) -> None:
        if not self.is_dead:
            super().append(entry, *args, **keywords)

    async def wait_durable(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_dead:
            raise CrashedError("memory", "its writer was killed")


def _name_of(request: Request) -> str:
    """Return the kind of a request, for the points at which workers stand still."""
    if request.number <= END:
        return "begin" if request.number == BEGIN else "end"
    return "next" if isinstance(question_in(request.body), Next) else "call"


class CutMailbox:
    """The mailbox of a worker that dies, or stands still, at a named point of a run."""

    def __init__(self, mailbox: WorkerMailbox, faults: "Faults") -> None:
        self._mailbox = mailbox
        self._faults = faults

    async def ask(self, request: Request) -> bytes:
        name = _name_of(request)
        await self._faults.reach(request.worker, f"before {name} is asked")
        async with trio.open_nursery() as nursery:
            # What was sent is there, also when the sender is gone.
            nursery.start_soon(self._faults.reach, request.worker, f"{name} is asked")
            answer = await self._mailbox.ask(request)
            await self._faults.reach(request.worker, f"{name} is answered")
        return answer

    async def wait_stopped(self, run: ExecutionId) -> None:
        await self._mailbox.wait_stopped(run)

    def forget(self, run: ExecutionId) -> None:
        self._mailbox.forget(run)


FIRST = WorkerId("first")
"""Whichever worker is the first to reach a point."""


class Faults:
    """Where which worker stands still."""

    def __init__(self) -> None:
        self.points: dict[tuple[WorkerId, str], trio.Event] = {}
        """Points of workers, and what lets each go on."""
        self.still: dict[WorkerId, trio.Event] = {}
        self.reached = trio.Event()
        self.away: trio.Event | None = None
        """The function that brings the database back, if it was taken away."""

    def cut_all_off(self, *workers: str) -> trio.Event:
        """Take the database away from workers and writers, until the event is set."""
        self.away = trio.Event()
        self.still |= {WorkerId(it): self.away for it in workers}
        return self.away

    def add(self, worker: str, point: str) -> trio.Event:
        event = self.points[WorkerId(worker), point] = trio.Event()
        return event

    async def reach(self, worker: WorkerId, point: str) -> None:
        await trio.lowlevel.checkpoint()
        for who in (worker, FIRST):
            if (resumed := self.points.pop((who, point), None)) is not None:
                break
        else:
            return
        self.still[worker] = resumed
        self.reached.set()
        await resumed.wait()
        self.still.pop(worker, None)


class CutPresence(MemoryPresence):
    """A presence that hears nothing of workers that stand still."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    async def beat(self, beat: Beat, *, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        if (resumed := self._faults.still.get(beat.worker)) is not None:
            await resumed.wait()
        await super().beat(beat, seconds=seconds)

    async def leave(self, worker: WorkerId) -> None:
        await trio.lowlevel.checkpoint()
        if worker not in self._faults.still:
            await super().leave(worker)

    async def workers(self) -> Sequence[WorkerSeen]:
        await trio.lowlevel.checkpoint()
        if (back := self._faults.away) is None:
            return await super().workers()
        await back.wait()
        # All count as alive until they could have been heard again.
        return [attrs.evolve(it, alive=True) for it in await super().workers()]


class Places:
    """One journal, its workers, and as many writers in a row as a test needs."""

    def __init__(
        self,
        agents: Sequence[Agent[Any]] = (),
        *,
        here: bool = False,
        url: str = "",
        queue: str = "absurd",
    ) -> None:
        """Have a journal, and workers over memory; or both in a database."""
        self._url = url
        self._queue = queue
        self._posted: list[Entry] = []
        self.minute = 1.0 if url else 60.0
        """As long as a minute, where the clock jumps."""
        self.agents = {agent.name: agent for agent in agents}
        self.here = here
        self.faults = Faults()
        self.exchange: Any = MemoryExchange()
        self.exchange.presence = CutPresence(self.faults)
        self.journal = MortalJournal()
        self.told: list[str] = []
        """The output of the workers."""
        self._workers = 0

    @property
    def entries(self) -> Sequence[Entry]:
        return self._posted if self._url else self.journal.entries

    def facts(self, kind: Any) -> list[Any]:
        return facts_of(self.entries, kind)

    @asynccontextmanager
    async def open(
        self, *, workers: int = 1, environ: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Orchestrator]:
        """Open the writer, and so many workers with one slot each."""
        async with self.around(workers=workers), self.writing(environ=environ) as orchestrator:
            yield orchestrator

    @asynccontextmanager
    async def around(self, *, workers: int = 1) -> AsyncGenerator[None]:
        """Have so many workers, around a writer."""
        async with AsyncExitStack() as opened:
            if self._url:
                self.exchange = await opened.enter_async_context(
                    open_exchange(self._url, queue=self._queue)
                )
            async with self.working(0 if self.here else workers):
                yield

    @asynccontextmanager
    async def writing(
        self, *, environ: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Orchestrator]:
        """Take the journal over, and open it."""
        if self._url:
            address = f"{self._url}&journal=tests"
            async with open_orchestrator(
                address, machine=Machine(environ=environ or {}), workers=Workers(queue=self._queue)
            ) as orchestrator:
                with orchestrator._engine.book.subscribers.subscribe(
                    lambda entry, _: self._posted.append(entry)
                ):
                    yield orchestrator
            return
        self.journal = MortalJournal(self.journal.entries)
        if not self.here:
            self.journal.tenure = self.exchange.take_over(JOURNAL)
        with suppress(CrashedError):
            async with open_orchestrator(
                self.journal,
                machine=Machine(environ=environ or {}),
                workers=Workers(queue=self.open_exchange, here=[PLACE] if self.here else ()),
            ) as orchestrator:
                yield orchestrator

    async def kill_writer(self, orchestrator: Orchestrator) -> None:
        """Let nothing become durable any more, and leave the block of the writer."""
        self.journal.is_dead = True
        await orchestrator.facts.wait_durable()

    @asynccontextmanager
    async def open_exchange(self) -> AsyncGenerator[Exchange]:
        await trio.lowlevel.checkpoint()
        yield self.exchange

    @asynccontextmanager
    async def working(
        self, count: int, *, slots: int = 1, agents: Sequence[Agent[Any]] | None = None
    ) -> AsyncGenerator[list[trio.CancelScope]]:
        """Run workers for the block; to cancel a scope is `kill -9` of that worker."""
        async with trio.open_nursery() as nursery:
            scopes = [await nursery.start(self.work, slots, agents) for _ in range(count)]
            yield scopes
            nursery.cancel_scope.cancel()

    async def work(
        self,
        slots: int,
        agents: Sequence[Agent[Any]] | None,
        *,
        task_status: trio.TaskStatus[trio.CancelScope],
    ) -> None:
        self._workers += 1
        id_ = WorkerId(f"w{self._workers}")
        known = list(self.agents.values()) if agents is None else agents
        environ = {"WORKER_TOKEN": "worker-secret-0815"}
        redactor = Redactor(secret_values(environ, ()))
        settings = WorkspaceSettings(
            workspace=Path.cwd(), environ={}, state=Path.cwd(), sandbox=SandboxChoice("none")
        )
        async with self.exchange.worker_mailbox(id_) as mailbox:
            worker = Worker(
                self.exchange,
                CutMailbox(mailbox, self.faults),
                AgentCatalogue({agent.name: agent for agent in known}),
                WorkerContexts(settings, redactor),
                redactor,
                id=id_,
                host="test",
                place=PLACE,
                slots=slots,
                lease=LEASE,
                tell=self.told.append,
            )
            with trio.CancelScope() as scope:
                task_status.started(scope)
                await worker.run()
