"""Simulation in virtual time: the real orchestrator with simulated models and tools.

`simulate` runs an agent many times on a clock that jumps, and reports its time, its cost and its
bottleneck. `estimate` returns the likely and the largest usage of a run in advance.
"""

from orchestrator.products.history.simulation.estimate import Bounds, Estimate, estimate
from orchestrator.products.history.simulation.one_run import SimulatedRun, simulate_once
from orchestrator.products.history.simulation.settings import (
    Breadth,
    ProviderRate,
    SimulationSettings,
)
from orchestrator.products.history.simulation.simulate import simulate
from orchestrator.products.history.simulation.statistics import (
    Quantiles,
    SeedResult,
    SimulationReport,
)

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
