"""Agents as typed tools: the fields of a type are the parameters, and the output is the answer.

Each call is a task of the tree, with its own cost, under the budgets of the parent.
"""

from dataclasses import dataclass

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator


@dataclass
class Trip:
    """A trip to plan."""

    city: str
    days: int = 2


def plan(transcript: Transcript) -> str:
    return f"A plan for {transcript[0].text}"


def both(transcript: Transcript) -> str:
    return " | ".join(sorted(message.text for message in transcript[-2:]))


planner = Agent(
    "planner",
    instructions="Plan a trip in one sentence.",
    model=NAMED or ScriptedModel.always(plan),
)
concierge = Agent(
    "concierge",
    instructions="Plan trips to Oslo and Rome, and say what you have planned.",
    model=NAMED
    or ScriptedModel(
        [
            [
                ToolCall("plan_trip", {"city": "Oslo"}),
                ToolCall("plan_trip", {"city": "Rome", "days": 5}),
            ],
            both,
        ]
    ),
    tools=[planner.as_tool(name="plan_trip", input=Trip)],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(concierge, "Two trips, please.")
    print(run.output)
    for goal in sorted(run.tree[task].goal for task in run.tree.find(agent="planner")):
        print(f"  a task of the planner: {goal}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# A plan for {"city":"Oslo"} | A plan for {"city":"Rome","days":5}
#   a task of the planner: {"city":"Oslo"}
#   a task of the planner: {"city":"Rome","days":5}
