"""Moved to `orchestrator.agents.tools.result_text`."""

from orchestrator.agents.tools.result_text import Spill

__all__ = ["Spill"]
