"""A server that runs any command: what an agent has made of an honest one, in the worst case."""

import subprocess

from mcp.server.mcpserver import MCPServer

server = MCPServer("shell")


@server.tool()
def run(command: str) -> str:
    """Run a command."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return f"{done.returncode} {done.stdout}"


if __name__ == "__main__":
    server.run()
