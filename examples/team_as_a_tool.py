"""A team as the tool of another program: Claude, an editor, or any other client of MCP.

`orchestrator mcp examples/team_as_a_tool.py` is what such a program starts; docs/mcp.md says where
it is told so. Here the client is the official one, so that this runs offline.
"""

import sys

import trio
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.types import TextContent, TextResourceContents
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("delegate_task", {"goal": "How fast is it, and how large?"})
    return "SQLite will do: it is small and quick."


reader = Agent(
    "reader",
    description="Reads on one question.",
    model=NAMED or ScriptedModel.always("Small and quick."),
)
editor = Agent(
    "editor",
    description="Decides a technical question, after others have read on it.",
    instructions="Have others read, and decide.",
    model=NAMED or ScriptedModel.always(edit),
    delegates=[reader],
)


async def main() -> None:
    # What the configuration of a client says: a command, and its arguments.
    team = StdioServerParameters(
        command=sys.executable, args=["-m", "orchestrator", "mcp", __file__]
    )
    async with Client(stdio_client(team)) as client:
        tools = (await client.list_tools()).tools
        for tool in tools:
            print(f"{tool.name}: {tool.description}")

        goal = {"goal": "Which database?"}
        answer = await client.call_tool("editor", goal)
        for part in answer.content:
            print(part.text if isinstance(part, TextContent) else part)

        run = (answer.meta or {})["orchestrator/run"]
        for tree in (await client.read_resource(f"run://{run}/tree.mermaid")).contents:
            print(tree.text if isinstance(tree, TextResourceContents) else tree)


if __name__ == "__main__":
    trio.run(main)


# prints:
# reader: Reads on one question.
# editor: Decides a technical question, after others have read on it.
# SQLite will do: it is small and quick.
# flowchart LR
#   n0["✓ editor<br/>Which database?"]:::ok
#   n1["✓ reader[1]<br/>How fast is it, and how large?"]:::ok
#   n0 --> n1
#   classDef ok stroke:#1a7f37,stroke-width:2px
