"""Moved to `orchestrator.agents.models.usage_bound`."""

from orchestrator.agents.models.usage_bound import quote

__all__ = ["quote"]
