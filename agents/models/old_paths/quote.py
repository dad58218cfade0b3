"""Moved to `agents.models.usage_bound`."""

from agents.models.usage_bound import quote

__all__ = ["quote"]
