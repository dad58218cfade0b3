"""Moved to `agents.models.wrappers.rate_limit`."""

from agents.models.wrappers.rate_limit import Limiter

__all__ = ["Limiter"]
