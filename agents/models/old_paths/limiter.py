"""Moved to `orchestrator.agents.models.wrappers.rate_limit`."""

from orchestrator.agents.models.wrappers.rate_limit import Limiter

__all__ = ["Limiter"]
