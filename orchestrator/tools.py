"""Tools that ship: commands, files, MCP servers, and results that are more than text."""

from orchestrator.agents import McpCommand, McpUrl
from orchestrator.agents.tools.files import (
    FILES,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from orchestrator.agents.tools.mcp.server_file import McpServers
from orchestrator.agents.tools.result_text import Spill, ToolResult
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
    "read_file",
    "search_files",
    "terminal",
    "write_file",
]
