"""One agent with one tool, and a scripted model: it runs without a key.

With a real model: `python examples/hello.py --model openai:gpt-5-mini`. In a program of your own,
that is `Agent(..., model="openai:gpt-5-mini")`.
"""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, open_orchestrator, tool


@tool
async def lookup(word: str) -> str:
    """Return the definition of a word.

    Args:
        word: the word to define.
    """
    await trio.lowlevel.checkpoint()
    return {"trio": "three of a kind"}.get(word, "unknown")


scholar = Agent(
    "scholar",
    instructions="Define words, as the dictionary does.",
    model=NAMED
    or ScriptedModel(
        [
            ToolCall("lookup", {"word": "trio"}),
            lambda transcript: f"A trio is {transcript[-1].text}.",
        ]
    ),
    tools=[lookup],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(scholar, "What is a trio?")
        print(run.output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# A trio is three of a kind.
