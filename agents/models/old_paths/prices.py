"""Moved to `agents.models.wrappers.prices`."""

from agents.models.wrappers.prices import PriceTable, priced

__all__ = ["PriceTable", "priced"]
