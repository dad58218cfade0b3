"""Simulation in virtual time: the real orchestrator with models that only pretend.

`simulate` runs an agent many times on a clock that jumps, and tells how long it takes, what it
costs and what limits it. `estimate` tells what a run may use before a cent is spent.
"""

from orchestrator.simulation.estimating import Bounds, Estimate, estimate
from orchestrator.simulation.report import Quantiles, SeedResult, SimulationReport
from orchestrator.simulation.settings import Breadth, ProviderRate, SimulationSettings
from orchestrator.simulation.simulating import simulate
from orchestrator.simulation.stage import SimulatedRun, simulate_once

__all__ = [
    "Bounds",
    "Breadth",
    "Estimate",
    "ProviderRate",
    "Quantiles",
    "SeedResult",
    "SimulatedRun",
    "SimulationReport",
    "SimulationSettings",
    "estimate",
    "simulate",
    "simulate_once",
]
