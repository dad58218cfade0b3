"""`simulate`: runs an agent once for each seed, and reports statistics."""

from collections.abc import Callable
from typing import Any, Final

import attrs

from orchestrator.agents import Agent
from orchestrator.products.history.simulation import statistics
from orchestrator.products.history.simulation.one_run import SimulatedRun, simulate_once
from orchestrator.products.history.simulation.random_model import goal_for
from orchestrator.products.history.simulation.settings import SimulationSettings

USUAL_GOAL: Final = "simulate"
DOUBLED_SEEDS: Final = 10
"""The number of runs that are repeated with doubled limits."""


def _ignore_run(_: SimulatedRun) -> None:
    """Ignore a run."""


def simulate(
    agent: Agent[Any],
    goal: str | None = None,
    settings: SimulationSettings | None = None,
    *,
    tell: Callable[[SimulatedRun], None] = _ignore_run,
) -> statistics.SimulationReport:
    """Run an agent once for each seed, in virtual time, and return the statistics.

    The orchestrator is real, in memory. Models are simulated, and tools do not run.

    Args:
        agent: the agent, with all its delegates.
        goal: the goal of the run; by default a sample input for the agent.
        settings: the assumptions about models and providers; by default `SimulationSettings()`.
        tell: called with each run when it has ended.
    """
    settings = SimulationSettings() if settings is None else settings
    goal = goal_for(agent, settings) or USUAL_GOAL if goal is None else goal
    tally = statistics.SeedStatistics()
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        run = simulate_once(agent, goal, settings, seed=seed)
        tally.add(run)
        tell(run)
    report = tally.report(agent.name, goal, settings)
    if not report.is_held_by_fan_out:
        return report
    doubled = _with_doubled_limits(agent, goal, settings, report)
    return attrs.evolve(report, doubled=doubled)


def _with_doubled_limits(
    agent: Agent[Any], goal: str, settings: SimulationSettings, report: statistics.SimulationReport
) -> statistics.DoubledLimits:
    """Run the first seeds again with doubled limits of fan-outs."""
    first = report.seeds[:DOUBLED_SEEDS]
    twice = attrs.evolve(settings, limit_factor=2 * settings.limit_factor)
    again = [statistics.result_of(simulate_once(agent, goal, twice, seed=it.seed)) for it in first]
    return statistics.DoubledLimits(
        seeds=len(first),
        makespan=statistics.Quantiles.of(it.makespan for it in first).p50,
        doubled=statistics.Quantiles.of(it.makespan for it in again).p50,
    )
