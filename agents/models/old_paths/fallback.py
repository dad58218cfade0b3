"""Moved to `orchestrator.agents.models.wrappers.fallback`."""

from orchestrator.agents.models.wrappers.fallback import fallback

__all__ = ["fallback"]
