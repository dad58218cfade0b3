"""Moved to `orchestrator.replay.run`."""

from orchestrator.replay.run import replay

__all__ = ["replay"]
