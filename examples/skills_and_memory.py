"""Skills and memory: an editor loads a skill on use, and keeps a note for its next run.

The instructions name the skill alone; `read_skill` loads its text, and then a file of it. The note
is a fact of the first run before it is in the file, and a part of the instructions of the second.
"""

import tempfile
from pathlib import Path

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, open_orchestrator

SKILLS = Path(__file__).parent / "skills"
CALLS = (
    ToolCall("read_skill", {"name": "release-notes"}),
    ToolCall("read_skill", {"name": "release-notes", "path": "references/style.md"}),
    ToolCall("memory", {"action": "append", "text": "- The product is called Lantern."}),
)


def write(transcript: Transcript) -> str | ToolCall:
    """Load the skill and its style, keep the name of the product, and write."""
    answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
    if len(answers) < len(CALLS):
        return CALLS[len(answers)]
    print(answers[-1])
    return "Add a dark theme."


def editor(memory: Path) -> Agent:
    return Agent(
        "editor",
        instructions="You announce releases.",
        skills=SKILLS,
        memory=memory,
        model=NAMED or ScriptedModel.always(write),
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder, "MEMORY.md")
        async with open_orchestrator(":memory:") as orchestrator:
            run = await orchestrator.run(editor(memory), "Lantern has a dark theme now.")
        print(run.output)
        print(f"The next run reads: {await trio.Path(memory).read_text()}", end="")


if __name__ == "__main__":
    trio.run(main)

# prints:
# changed to version db05dd15:
# --- MEMORY.md
# +++ MEMORY.md
# @@ -0,0 +1 @@
# +- The product is called Lantern.
# Add a dark theme.
# The next run reads: - The product is called Lantern.
