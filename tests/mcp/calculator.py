"""A server of the official SDK that adds numbers. `python calculator.py` speaks on stdio."""

import os
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("calculator")
READ_ONLY = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READ_ONLY)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it cannot be divided")


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool()
def variables() -> list[str]:
    """Return the names of all variables of the environment."""
    return sorted(os.environ)


@server.tool()
def folder() -> str:
    """Return the current folder."""
    return str(Path.cwd())


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool."""
    server.add_tool(folder, name="late")
    await context.notify_tools_changed()
    return "grown"


@server.resource("notes://today")
def notes() -> str:
    """Return today's notes."""
    return "buy milk"


@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    server.run()
