"""Moved to `agents.tools.result_text`."""

from agents.tools.result_text import Spill

__all__ = ["Spill"]
