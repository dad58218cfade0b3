"""A team that is a folder of Markdown files, as Claude Code's users have them.

The files name models, tools and delegates; the program adds a tool of its own. Nothing in a file is
run. `orchestrator run examples/agent_files/ "Trio"` does the same without a program, for agents
whose tools all ship.
"""

import json
from pathlib import Path

import trio
from models import NAMED

from orchestrator import ScriptedModel, ToolCall, Transcript, load_agents, open_orchestrator, tool


@tool
def lookup(word: str) -> str:
    """Look up a word in our dictionary."""
    return {"trio": "three of a kind"}.get(word.lower(), "unknown")


def play(transcript: Transcript) -> ToolCall | str:
    """Play both agents: the goal says which of them is asked."""
    goal, last = transcript[0].text, transcript[-1].text
    if goal.startswith("Find out"):
        word = goal.removeprefix("Find out: ")
        if len(transcript) == 1:
            return ToolCall("lookup", {"word": word})
        return f"{word}: {last} (our dictionary)."
    if len(transcript) == 1:
        return ToolCall("delegate_task", {"goal": f"Find out: {goal}"})
    return str(json.loads(last)["results"][0]["output"])


async def main() -> None:
    team = load_agents(
        Path(__file__).parent / "agent_files",
        tools=[lookup],
        model=NAMED or ScriptedModel.always(play),
    )
    for agent in team.values():
        print(f"{agent.name}: {agent.description}")
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(team["editor"], "Trio")
        print(run.output)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# editor: Writes a short text about a subject.
# researcher: Looks one word up, and answers in one sentence.
# Trio: three of a kind (our dictionary).
# editor ✓
# └─ researcher[1] ✓
