"""The same agent behind two doors: a request that joins, and a session that detaches.

A request handler can deliver nothing after its response. So although the agent asks for the
background, the task is joined, and a note says so. A session can deliver later: there the reply
comes at once, and the result in a turn of its own.
"""

import json

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Orchestrator,
    ScriptedModel,
    ToolCall,
    Transcript,
    Tree,
    open_orchestrator,
)


def answer(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        goal = "Find the atlas of 1570."
        return ToolCall("delegate_task", {"goal": goal, "background": True})
    text = transcript[-1].text
    if not text.startswith("{"):  # the notice that woke the session
        return f"The archivist is back: {text.splitlines()[-1]}"
    answered = json.loads(text)
    if answered["status"] == "dispatched":
        return "The archivist is looking. I will let you know."
    note = answered["note"].partition(":")[0]
    return f"{answered['results'][0]['output']} (Note: {note}.)"


archivist = Agent(
    "archivist",
    instructions="Find what you are asked for.",
    model=NAMED or ScriptedModel.always("It is in the cellar.", seconds=0.2),
)
librarian = Agent(
    "librarian",
    instructions="Have the archivist look things up, in the background.",
    model=NAMED or ScriptedModel.always(answer),
    delegates=[archivist],
)


async def handle(orchestrator: Orchestrator, request: str) -> str:
    """Answer one request, as the handler of a web framework would."""
    run = await orchestrator.run(librarian, request)
    print_reasons(run.tree)
    return run.output


async def chat(orchestrator: Orchestrator, message: str) -> None:
    async with orchestrator.open_session(librarian) as session:
        print((await session.ask(message)).text)
        await session.wait_idle()  # until the notice of the archivist is read
        print(session.replies.receive_nowait().text)
        print_reasons(session.tree)


def print_reasons(tree: Tree) -> None:
    for task in tree.children(tree.root):
        if reason := tree[task].reason:
            print(f"  {tree[task].mode}: {reason.sentence}")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        print("> a request")
        print(await handle(orchestrator, "Where is the atlas?"))
        print("> a session")
        await chat(orchestrator, "Where is the atlas?")


if __name__ == "__main__":
    trio.run(main)

# prints:
# > a request
#   joined: the caller cannot be told anything after its turn ends
# It is in the cellar. (Note: This ran within the same response, not in the background.)
# > a session
# The archivist is looking. I will let you know.
# The archivist is back: It is in the cellar.
#   detached: the session that asked can be told later
