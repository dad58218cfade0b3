"""A server of the Model Context Protocol for one folder: `python folder.py FOLDER`.

It is written with the official SDK, and has two tools of
[server-filesystem](https://www.npmjs.com/package/@modelcontextprotocol/server-filesystem), which
does far more.
"""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

folder = Path(sys.argv[1]).resolve()
server = MCPServer("folder")
READ_ONLY = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READ_ONLY)
def list_directory() -> str:
    """List the files of the folder."""
    return "\n".join(sorted(file.name for file in folder.iterdir()))


@server.tool(annotations=READ_ONLY)
def read_text_file(path: str) -> str:
    """Read a file of the folder."""
    file = (folder / path).resolve()
    if not file.is_relative_to(folder):
        raise ValueError(f"{path} is not in the folder")
    return file.read_text()


if __name__ == "__main__":
    server.run()
