"""Tools that ship: commands, files, and results that are more than text."""

from orchestrator.agents.tools.files import (
    FILES,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from orchestrator.agents.tools.result_text import Spill, ToolResult
from orchestrator.agents.tools.terminal import process, terminal

__all__ = [
    "FILES",
    "Spill",
    "ToolResult",
    "edit_file",
    "list_files",
    "process",
    "read_file",
    "search_files",
    "terminal",
    "write_file",
]
