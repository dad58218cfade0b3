"""A summary: children know the subject of the conversation without reading all of it.

One model call writes the summary for all tasks of a call. The parent pays for it, and the children
read it before their goals.
"""

import json

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator, tool

TASKS = [{"goal": "Find flights."}, {"goal": "Find flats."}]


@tool
async def read_mails() -> str:
    """Read the mails about the move."""
    await trio.lowlevel.checkpoint()
    return "Anna: Oslo it is. Ben: not before May, please. " * 20


def step(transcript: Transcript) -> str | ToolCall:
    said = transcript[-1].text
    if said.startswith("The record:"):
        return "Anna and Ben move to Oslo in May."
    if said.startswith("{"):
        return " | ".join(sorted(result["output"] for result in json.loads(said)["results"]))
    if said.startswith("Anna"):
        given = {"tasks": TASKS, "conversation": "summary", "background": False}
        return ToolCall("delegate_task", given)
    return ToolCall("read_mails", {})


def search(transcript: Transcript) -> str:
    """Answer with the goal, and with the summary that was read before it."""
    _, _, summary, _, goal = filter(None, transcript[0].text.split("\n"))
    return f"{goal} {summary}"


searcher = Agent(
    "searcher", instructions="Search the web.", model=NAMED or ScriptedModel.always(search)
)
assistant = Agent(
    "assistant",
    instructions="Read the mails, then have flights and flats searched.",
    model=NAMED or ScriptedModel.always(step),
    tools=[read_mails],
    delegates=[searcher],
    summaries=True,
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(assistant, "Prepare our move.")
    print(run.output)
    for row in run.tree.rows():
        print(f"  {row.name}: {row.about}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# Find flats. Anna and Ben move to Oslo in May. | Find flights. Anna and Ben move to Oslo in May.
#   assistant: Prepare our move.
#   searcher[1]: summary of the conversation · Find flights.
#   searcher[2]: summary of the conversation · Find flats.
