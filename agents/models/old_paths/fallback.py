"""Moved to `agents.models.wrappers.fallback`."""

from agents.models.wrappers.fallback import fallback

__all__ = ["fallback"]
