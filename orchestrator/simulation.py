"""Simulation in virtual time: `simulate` and `estimate`."""

from orchestrator.products.history.simulation import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.history.simulation import __all__ as __all__  # noqa: PLC0414 (a re-export)
