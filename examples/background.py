"""A session that can be told later: a slow task runs detached, and wakes the agent when it ends.

The reply to a question comes at once. The news comes as a reply of a later turn, which nobody had
to ask for.
"""

import trio

from agents import Agent, ScriptedModel, ToolCall
from orchestrator import open_orchestrator

archivist = Agent(
    "archivist", model=ScriptedModel.always("Found it in the cellar.", seconds=0.2)
)
librarian = Agent(
    "librarian",
    instructions="Have things looked up in the background.",
    model=ScriptedModel(
        [
            ToolCall("delegate_task", {"goal": "Find the atlas.", "background": True}),
            "The archivist is looking. I will tell you.",
            lambda transcript: f"News: {transcript[-1].text.splitlines()[-1]}",
        ]
    ),
    delegates=[archivist],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(librarian) as session:
            reply = await session.ask("Where is the atlas?")
            print(f"turn {reply.turn}: {reply.text}")
            news = await session.replies.receive()
            print(f"turn {news.turn}: {news.text}")
            await session.wait_idle()
            for row in session.tree.rows():
                print(f"{row.branch}{row.name} {row.glyph} {row.mode}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# turn 1: The archivist is looking. I will tell you.
# turn 2: News: Found it in the cellar.
# librarian ✓ root
# └─ archivist[1] ✓ detached
