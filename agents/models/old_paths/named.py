"""Moved to `agents.models.registry`."""

from agents.models.registry import model_named

__all__ = ["model_named"]
