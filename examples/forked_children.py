"""Forks: children that have read the whole conversation, for the price of its cached prefix.

A fork has the instructions and tools of its parent, and sends the same request up to its goal. A
provider reads that part from its cache.
"""

import json

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator, tool

TASKS = [{"goal": "Find the risks."}, {"goal": "Find the costs."}]


@tool
async def read_plan() -> str:
    """Read the plan."""
    await trio.lowlevel.checkpoint()
    return "Move the whole team to Oslo in May."


def step(transcript: Transcript) -> str | ToolCall:
    said = transcript[-1].text
    if "You are a fork" in said:
        plan = transcript[2].text
        return f"{said.rpartition(' ')[2]} {plan}"
    if said.startswith("{"):
        return " | ".join(sorted(result["output"] for result in json.loads(said)["results"]))
    if said.startswith("Move"):
        return ToolCall("delegate_task", {"tasks": TASKS, "conversation": "fork"})
    return ToolCall("read_plan", {})


analyst = Agent(
    "analyst",
    instructions="Read the plan, then fork yourself for its risks and its costs.",
    model=NAMED or ScriptedModel.always(step),
    tools=[read_plan],
    forks=True,
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(analyst, "What do you think of it?")
    print(run.output)
    for row in run.tree.rows():
        print(f"  {row.name}: {row.about}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# costs. Move the whole team to Oslo in May. | risks. Move the whole team to Oslo in May.
#   analyst: What do you think of it?
#   analyst[1]: fork of the conversation · Find the risks.
#   analyst[2]: fork of the conversation · Find the costs.
