"""The names of MCP that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.mcp.lines import LineReader, TooLong
    from orchestrator.products.mcp.server.caller import (
        Ask,
        HeldRun,
        OpenJournal,
        RefusedError,
        RunPage,
    )
    from orchestrator.products.mcp.server.protocol import Context, open_protocol
    from orchestrator.products.mcp.server.tools import AgentTool, TaskMode, tools_of
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__,
        {
            "orchestrator.products.mcp.lines": "LineReader TooLong",
            "orchestrator.products.mcp.server.caller": (
                "Ask HeldRun OpenJournal RefusedError RunPage"
            ),
            "orchestrator.products.mcp.server.protocol": "Context open_protocol",
            "orchestrator.products.mcp.server.tools": "AgentTool TaskMode tools_of",
        },
    )
