"""The estimated cost of one task, for the approval rules that ask above a threshold."""

from typing import Any, Final

import trio

from orchestrator.agents import Agent, Pipeline
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.delegation import Ending
from orchestrator.ports.execution import TaskCost
from orchestrator.ports.journals import Journals
from orchestrator.products.history.simulation.in_thread import simulate_in_thread
from orchestrator.products.history.simulation.past_answers import PastAnswer, read_past_answers
from orchestrator.products.history.simulation.settings import SimulationSettings

SEEDS: Final = 20
SECONDS: Final = 2.0
"""How long the simulation of one agent may take; with fewer seeds it is less exact."""


async def estimate_cost(
    agent: Agent[Any], goal: str, journals: Journals | None = None
) -> TaskCost | None:
    """Return the simulated cost of a task, with earlier answers if it is a script.

    None if a price is unknown, if no run ended in time, or if a program failed on made-up answers:
    then its cost depends on the real ones.
    """
    past: dict[str, list[PastAnswer]] = {}
    if agent.name == SCRIPT:
        past = await trio.to_thread.run_sync(read_past_answers, journals, agent)
    settings = SimulationSettings(seeds=SEEDS, past=past)
    report = await simulate_in_thread(agent, goal, settings, seconds=SECONDS)
    if report is None or report.cost is None or report.unpriced:
        return None
    if isinstance(agent, Pipeline) and any(it != Ending.SUCCEEDED.value for it in report.runs):
        return None
    return TaskCost(report.cost.p50, report.cost.p95)
