"""Moved to `orchestrator.agents.models.wrappers.prices`."""

from orchestrator.agents.models.wrappers.prices import PriceTable, priced

__all__ = ["PriceTable", "priced"]
