"""The names of MCP that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.mcp.server.caller import HeldRun, OpenJournal, RefusedError, RunPage
    from orchestrator.products.mcp.server.protocol import Context, open_protocol
    from orchestrator.products.mcp.server.tools import AgentTool, TaskMode, tools_of

__all__ = [
    "AgentTool",
    "Context",
    "HeldRun",
    "OpenJournal",
    "RefusedError",
    "RunPage",
    "TaskMode",
    "open_protocol",
    "tools_of",
]

_MODULES = {
    "AgentTool": "orchestrator.products.mcp.server.tools",
    "Context": "orchestrator.products.mcp.server.protocol",
    "HeldRun": "orchestrator.products.mcp.server.caller",
    "OpenJournal": "orchestrator.products.mcp.server.caller",
    "RefusedError": "orchestrator.products.mcp.server.caller",
    "RunPage": "orchestrator.products.mcp.server.caller",
    "TaskMode": "orchestrator.products.mcp.server.tools",
    "open_protocol": "orchestrator.products.mcp.server.protocol",
    "tools_of": "orchestrator.products.mcp.server.tools",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
