"""One simulated run: the real orchestrator in memory, on a clock that jumps."""

import contextvars
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import attrs
import trio

from orchestrator.agents import Agent, DefinitionError, Usage
from orchestrator.delegation import Encoded, Ledger, Outcome, Tree
from orchestrator.delegation.events import Entry
from orchestrator.ports.execution import NO_WORKSPACE, AgentRegistry
from orchestrator.ports.journals import Bookkeeper, MemoryJournal
from orchestrator.ports.sessions import Run, budget, open_engine, run_once
from orchestrator.products.history.simulation import ports, wait_chain
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.stand_in_servers import StandInServers

IN_FLIGHT = frozenset({wait_chain.Wait.MODEL, wait_chain.Wait.FAILURES})


@attrs.frozen(kw_only=True)
class SimulatedRun:
    """The result of one seed. Times are seconds since the run began."""

    seed: int
    outcome: Outcome
    tree: Tree
    entries: Sequence[Entry]
    """The journal of the run."""
    makespan: float
    usage: Usage
    chain: dict[wait_chain.Wait, float]
    """The seconds that the end of the run waited for each thing; their sum is the makespan."""
    waited: dict[wait_chain.Wait, float]
    """The seconds that all tasks together waited for each thing."""
    failures: dict[str, int]
    """The number of failed attempts of each kind."""
    endings: dict[str, int]
    """The number of tasks with each ending, the root included."""
    in_flight: Sequence[wait_chain.OverlapCount]
    """The number of calls at a provider, at each change."""
    in_line: Sequence[wait_chain.OverlapCount]
    """The number of tasks that waited for a slot, at each change."""
    peak_places: int
    """The most slots in use at the same time, which `Rules.live_tasks` limits."""
    unpriced: tuple[str, ...]
    """The models without a known price."""

    @property
    def tasks(self) -> int:
        return len(self.tree)

    @property
    def peak(self) -> int:
        """The most calls at a provider at the same time."""
        return max((level.count for level in self.in_flight), default=0)

    @property
    def mean(self) -> float:
        """The average number of calls at a provider."""
        if not self.makespan:
            return 0.0
        following = [level.at for level in self.in_flight[1:]]
        spans = zip(self.in_flight, following, strict=False)
        return math.fsum(it.count * (end - it.at) for it, end in spans) / self.makespan


class SimulationStoppedError(Exception):
    """A simulated run was stopped from outside, so it has no result."""


def simulate_once(
    agent: Agent[Any],
    goal: str,
    settings: SimulationSettings,
    *,
    seed: int,
    is_stopped: Callable[[], bool] = lambda: False,
    watch_process: Callable[[Callable[[], None]], None] = lambda _: None,
) -> SimulatedRun:
    """Simulate one run; raise `SimulationStoppedError` when `is_stopped` returns True at a fact.

    `watch_process` gets a function that kills the process of a script.
    """
    # Imported late: only simulation and replay need a clock that jumps.
    from trio.testing import MockClock

    if trio.lowlevel.in_trio_run():
        raise DefinitionError(
            "a simulation has its own event loop; inside another event loop, await"
            " trio.to_thread.run_sync(simulate, agent, goal, settings)"
        )
    simulation = _Simulation(
        agent, goal, settings, seed, is_stopped=is_stopped, watch_process=watch_process
    )
    clock = MockClock(autojump_threshold=0)
    # The caller's budgets do not apply to the run.
    return contextvars.Context().run(partial(trio.run, simulation.run, clock=clock))


class _PeakSlots:
    """Counts the most slots that a simulated orchestrator uses, after every fact."""

    def __init__(self, ledger: Ledger) -> None:
        self.count = 0
        self._ledger = ledger

    def receive(self, entry: Entry, encoded: Encoded) -> None:
        del entry, encoded
        for session in self._ledger.sessions.values():
            self.count = max(self.count, session.slots.in_use)


class _Simulation:
    def __init__(
        self,
        agent: Agent[Any],
        goal: str,
        settings: SimulationSettings,
        seed: int,
        *,
        is_stopped: Callable[[], bool],
        watch_process: Callable[[Callable[[], None]], None],
    ) -> None:
        self._agent = agent
        self._is_stopped = is_stopped
        self._watch_process = watch_process
        self._goal = goal
        self._settings = settings
        self._seed = seed
        self._tasks = ports.SimulatedTasks(seed)
        self._models = ports.SimulatedModels(settings, self._tasks)
        self._journal = MemoryJournal()

    async def run(self) -> SimulatedRun:
        ledger = Ledger(self._settings.rules)
        book = Bookkeeper(self._journal, ledger, clock=trio.current_time)
        peak = _PeakSlots(ledger)
        registry = AgentRegistry(self._models)
        async with open_engine(
            book,
            registry,
            NO_WORKSPACE,
            new_task_id=ports.SimulatedIds().new_task_id,
            place=ports.SimulatedTools(self._settings, self._tasks, registry),
            # The tools of a server are unknown: one stand-in represents them all.
            servers=StandInServers(lambda prefix: [f"{prefix}tool"]),
            timing=ports.SimulatedTiming(
                self._tasks, self._settings.limit_factor, self._watch_process
            ),
        ) as engine:
            stop = trio.CancelScope()
            run: Run[Any] | None = None

            def look(entry: Entry, encoded: Encoded) -> None:
                del entry, encoded
                if self._is_stopped():
                    stop.cancel(reason="the simulation was stopped")

            with (
                self._budget(),
                book.subscribers.subscribe(peak.receive),
                book.subscribers.subscribe(look),
                stop,
            ):
                run = await run_once(engine.sessions, self._agent, self._goal, ())
        if run is None:
            raise SimulationStoppedError
        return self._result(run.outcome, run.tree, peak.count)

    def _budget(self) -> AbstractContextManager[None]:
        allowed = self._settings.budget
        return nullcontext() if allowed is None else budget(**attrs.asdict(allowed))

    def _result(self, outcome: Outcome, tree: Tree, peak_places: int) -> SimulatedRun:
        tasks = self._tasks.by_id
        waits = {id_: task.waits for id_, task in tasks.items()}
        root = tree[tree.root]
        queued = [
            wait_chain.WaitInterval(node.requested, start, wait_chain.Wait.SLOTS)
            for node in tree.nodes().values()
            if (start := wait_chain.start_of(node)) > node.requested
        ]
        intervals = [it for own in waits.values() for it in own] + queued
        failures = sum((task.failures for task in tasks.values()), Counter[str]())
        return SimulatedRun(
            seed=self._seed,
            outcome=outcome,
            tree=tree,
            entries=self._journal.entries,
            makespan=wait_chain.end_of(root) - root.requested,
            usage=tree.total,
            chain=wait_chain.longest_chain(tree, waits),
            waited={
                wait: math.fsum(it.seconds for it in intervals if it.wait is wait)
                for wait in wait_chain.Wait
            },
            failures=dict(sorted(failures.items())),
            endings=dict(sorted(tree.counts().items())),
            in_flight=wait_chain.overlap_counts(
                (it.begin, it.end) for it in intervals if it.wait in IN_FLIGHT
            ),
            in_line=wait_chain.overlap_counts((it.begin, it.end) for it in queued),
            peak_places=peak_places,
            unpriced=tuple(sorted(self._models.unpriced)),
        )
