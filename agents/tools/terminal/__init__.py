"""Tools for commands: `terminal` runs one, `process` controls those in the background."""

from orchestrator.agents.tools.terminal.tools import process, terminal

__all__ = ["process", "terminal"]
