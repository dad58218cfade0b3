"""`simulate`: runs an agent once for each seed, and reports what that comes to."""

from collections.abc import Callable
from typing import Any, Final

from agents import Agent
from orchestrator.simulation.one_run import SimulatedRun, simulate_once
from orchestrator.simulation.random_model import goal_for
from orchestrator.simulation.settings import SimulationSettings
from orchestrator.simulation.statistics import SeedStatistics, SimulationReport

USUAL_GOAL: Final = "simulate"


def _ignore_run(_: SimulatedRun) -> None:
    """Ignore a run."""


def simulate(
    agent: Agent[Any],
    goal: str | None = None,
    settings: SimulationSettings | None = None,
    *,
    tell: Callable[[SimulatedRun], None] = _ignore_run,
) -> SimulationReport:
    """Run an agent once for each seed, in virtual time, and return what that comes to.

    The orchestrator is the real one, in memory. Models are simulated, and tools are not run.

    Args:
        agent: the agent, with all that it may delegate to.
        goal: its goal; left out: a sample of what it takes.
        settings: what is assumed of models and providers; by default `SimulationSettings()`.
        tell: called with each run when it is over.
    """
    settings = SimulationSettings() if settings is None else settings
    goal = goal_for(agent, settings) or USUAL_GOAL if goal is None else goal
    tally = SeedStatistics()
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        run = simulate_once(agent, goal, settings, seed=seed)
        tally.add(run)
        tell(run)
    return tally.report(agent.name, goal, settings)
