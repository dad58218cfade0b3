"""The estimated cost of one task, for the approval rules that ask above a threshold."""

from typing import Any, Final

from orchestrator.agents import Agent
from orchestrator.ports.execution import TaskCost
from orchestrator.products.history.simulation.in_thread import simulate_in_thread
from orchestrator.products.history.simulation.settings import SimulationSettings

SEEDS: Final = 20
SECONDS: Final = 2.0
"""How long the simulation of one agent may take; with fewer seeds it is less exact."""


async def estimate_cost(agent: Agent[Any], goal: str) -> TaskCost | None:
    """Return the simulated cost of a task; None if a price is unknown, or no run ended in time."""
    settings = SimulationSettings(seeds=SEEDS)
    report = await simulate_in_thread(agent, goal, settings, seconds=SECONDS)
    if report is None or report.cost is None or report.unpriced:
        return None
    return TaskCost(report.cost.p50, report.cost.p95)
