"""Moved to `orchestrator.agents.models.wrappers.retry`."""

from orchestrator.agents.models.wrappers.retry import retrying

__all__ = ["retrying"]
