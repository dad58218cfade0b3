"""A librarian whose readers use the tools of an MCP server: here one for files, in this folder.

With node, the server of others does as well, and more:
`McpCommand("files", ["npx", "-y", "@modelcontextprotocol/server-filesystem", folder],
network=["npm"], write=["~/.npm", folder])`.
"""

import sys
import tempfile
from pathlib import Path

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, allow, open_orchestrator
from orchestrator.tools import McpCommand

SERVER = Path(__file__).parent / "servers" / "folder.py"
POEMS = {"rain.txt": "Rain on the roof.", "snow.txt": "Snow on the hill."}


def read(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("files__read_text_file", {"path": transcript[0].text})
    return transcript[-1].text


def divide(transcript: Transcript) -> str | ToolCall | list[str | ToolCall]:
    if len(transcript) == 1:
        return ToolCall("files__list_directory")
    if len(transcript) == 3:
        files = transcript[-1].text.split()
        return [ToolCall("delegate_task", {"goal": file}) for file in files]
    return "Two poems: of rain, and of snow."


def team(folder: str) -> Agent:
    files = McpCommand(
        "files", [sys.executable, str(SERVER), folder], include=["list_directory", "read_*"]
    )
    reader = Agent(
        "reader",
        description="Reads one file, and says what is in it.",
        model=NAMED or ScriptedModel.always(read),
        servers=[files],
    )
    return Agent(
        "librarian",
        instructions="List the files, and have each of them read.",
        model=NAMED or ScriptedModel.always(divide),
        servers=[files],
        delegates=[reader],
        # What a server says of its tools allows nothing: this does, for the readers, too.
        approve=[allow("files__*"), allow("delegate_task")],
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in POEMS.items():
            await trio.Path(folder, name).write_text(text)
        async with open_orchestrator(":memory:") as orchestrator:
            run = await orchestrator.run(team(folder), "What do we have?")
    print(run.output)
    for row in run.tree.rows():
        print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# Two poems: of rain, and of snow.
# librarian ✓
# ├─ reader[1] ✓
# └─ reader[2] ✓
