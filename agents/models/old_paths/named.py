"""Moved to `orchestrator.agents.models.registry`."""

from orchestrator.agents.models.registry import model_named

__all__ = ["model_named"]
