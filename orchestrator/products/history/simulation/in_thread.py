"""Simulation beside an event loop: in a thread, for some seconds, until it is cancelled.

The thread has its own event loop and clock. It releases the interpreter between steps, and ends at
the first fact after a cancellation.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import attrs
import trio

from orchestrator.agents import Agent
from orchestrator.ports.execution import has_virtual_time
from orchestrator.products.history.simulation.one_run import (
    SimulatedRun,
    SimulationStoppedError,
    simulate_once,
)
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.statistics import SeedStatistics, SimulationReport


async def simulate_in_thread(
    agent: Agent[Any],
    goal: str,
    settings: SimulationSettings,
    *,
    seconds: float,
    limiter: trio.CapacityLimiter | None = None,
    tell: Callable[[SimulatedRun], None] | None = None,
) -> SimulationReport | None:
    """Simulate as many seeds as the time allows, tell each run, and return the statistics.

    Return None if no run has ended after twice that time: then a run is stopped, and the process of
    its script is killed. `settings.seeds` is the largest number of runs.
    """
    work = _Work(agent, goal, settings, seconds, tell)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.stop_in_time)
        report = await trio.to_thread.run_sync(work.run, limiter=limiter)
        nursery.cancel_scope.cancel(reason="the thread has ended")
    return report


@attrs.define
class _Work:
    agent: Agent[Any]
    goal: str
    settings: SimulationSettings
    seconds: float
    tell: Callable[[SimulatedRun], None] | None
    is_cancelled: bool = attrs.field(default=False, init=False)
    """Set in the event loop, read in the thread."""
    deadline: float = attrs.field(default=0.0, init=False)
    kill: Callable[[], None] | None = attrs.field(default=None, init=False)
    """Kills the process of the script that is simulated now."""

    async def stop_in_time(self) -> None:
        try:
            # A clock that jumps does not know how long the thread works.
            await trio.sleep(math.inf if has_virtual_time() else 2 * self.seconds)
        finally:
            self.is_cancelled = True
            if self.kill is not None:
                self.kill()

    def watch_process(self, kill: Callable[[], None]) -> None:
        self.kill = kill
        if self.is_cancelled:
            kill()

    def is_stopped(self) -> bool:
        return self.is_cancelled or time.monotonic() > self.deadline

    def run(self) -> SimulationReport | None:
        begun = time.monotonic()
        # A run that has begun may take as long again.
        self.deadline = begun + 2 * self.seconds
        tally = SeedStatistics()
        first = self.settings.first_seed
        for seed in range(first, first + self.settings.seeds):
            try:
                run = simulate_once(
                    self.agent,
                    self.goal,
                    self.settings,
                    seed=seed,
                    is_stopped=self.is_stopped,
                    watch_process=self.watch_process,
                )
            except SimulationStoppedError:
                break
            if self.is_stopped() and not run.outcome.succeeded:
                break  # its process was killed
            tally.add(run)
            if self.tell is not None:
                self.tell(run)
            if time.monotonic() - begun > self.seconds:
                break
        if not tally.results:
            return None
        settings = attrs.evolve(self.settings, seeds=len(tally.results), past={})
        return tally.report(self.agent.name, self.goal, settings)
