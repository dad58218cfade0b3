"""Moved to `agents.models.wrappers.retry`."""

from agents.models.wrappers.retry import retrying

__all__ = ["retrying"]
