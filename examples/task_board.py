"""A task board: three searchers take pages from a board, and post those that they find.

Each page is claimed by one searcher. A searcher that fails gives its page back, and another one
takes it.
"""

import json

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, open_orchestrator

LINKS: dict[str, list[str]] = {"start": ["north", "south"], "north": ["snow"]}


def use(action: str, **arguments: object) -> ToolCall:
    return ToolCall("board", {"action": action, **arguments})


def search(transcript: Transcript) -> str | ToolCall:
    """Claim a page, post the pages that it links to, finish it, and claim the next one."""
    last = transcript[-1]
    answer = json.loads(last.text if isinstance(last, ToolMessage) else '{"finished": null}')
    if "finished" in answer:
        return use("claim")
    if "posted" in answer:
        page = json.loads(transcript[-3].text)["claimed"]
        return use("finish", item=page["item"], result=f"{len(answer['posted'])} links")
    page = answer["claimed"]
    if page is None:
        return "There is nothing left to read."
    if links := LINKS.get(page["text"]):
        return use("post", items=links)
    return use("finish", item=page["item"], result="no links")


def lead(transcript: Transcript) -> str | ToolCall:
    """Post the first page, have the searchers work, and read the board."""
    tasks = [{"goal": f"Search, number {number}."} for number in (1, 2, 3)]
    steps = [
        use("post", items=["start"]),
        ToolCall("delegate_task", {"tasks": tasks, "background": False}),
        use("read"),
    ]
    answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
    if len(answers) < len(steps):
        return steps[len(answers)]
    items = json.loads(answers[-1])["items"]
    return "\n".join(f"{it['item']}. {it['text']}: {it['state']}, {it['result']}" for it in items)


searcher = Agent(
    "searcher",
    instructions="Take a page from the board, and post the pages that it links to.",
    model=NAMED or ScriptedModel.always(search),
    board=True,
)
librarian = Agent(
    "librarian",
    instructions="Post the page to start with, and have three searchers read all pages.",
    model=NAMED or ScriptedModel.always(lead),
    delegates=[searcher],
    board=True,
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(librarian, "Read all pages.")
    print(run.output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# 1. start: finished, 2 links
# 2. north: finished, 1 links
# 3. south: finished, no links
# 4. snow: finished, no links
