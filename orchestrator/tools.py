"""Tools that ship: commands, files, MCP servers, results that are more than text, and checks."""

from orchestrator.agents import McpCommand, McpUrl
from orchestrator.agents.tools.files import (
    FILES,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from orchestrator.agents.tools.long_results import Spill
from orchestrator.agents.tools.mcp.server_file import McpServers
from orchestrator.agents.tools.required_evidence import ran, wrote
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.tools.terminal import process, terminal

__all__ = [
    "FILES",
    "McpCommand",
    "McpServers",
    "McpUrl",
    "Spill",
    "ToolResult",
    "edit_file",
    "list_files",
    "process",
    "ran",
    "read_file",
    "search_files",
    "terminal",
    "write_file",
    "wrote",
]
