"""Moved to `orchestrator.products.history.replay.run`."""

from orchestrator.products.history.replay.run import replay

__all__ = ["replay"]
