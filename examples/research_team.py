"""An editor delegates three questions at once, waits for them, and merges the answers.

`orchestrator.run` returns one answer and cannot deliver later, so all children are joined. The
executed tree is a `networkx` graph.
"""

import json

import networkx as nx
import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator

QUESTIONS = ["What is it?", "Who uses it?", "What does it cost?"]


def merge(transcript: Transcript) -> str:
    results = json.loads(transcript[-1].text)["results"]
    return "\n".join(f"{result['path']}: {result['output']}" for result in results)


researcher = Agent(
    "researcher",
    instructions="Answer one question in one sentence.",
    model=NAMED or ScriptedModel.always(lambda transcript: f"An answer to: {transcript[0].text}"),
)
editor = Agent(
    "editor",
    instructions="Split the question into three, hand all on in one call, and merge.",
    model=NAMED
    or ScriptedModel(
        [ToolCall("delegate_task", {"tasks": [{"goal": q} for q in QUESTIONS]}), merge]
    ),
    delegates=[researcher],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(editor, "Tell me about trio.")
        print(run.output)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph} {row.mode}")
        print("an arborescence:", nx.is_arborescence(run.tree.to_networkx()))
        print("model calls:", run.usage.calls)


if __name__ == "__main__":
    trio.run(main)

# prints:
# /editor/researcher[1]: An answer to: What is it?
# /editor/researcher[2]: An answer to: Who uses it?
# /editor/researcher[3]: An answer to: What does it cost?
# editor ✓ root
# ├─ researcher[1] ✓ joined
# ├─ researcher[2] ✓ joined
# └─ researcher[3] ✓ joined
# an arborescence: True
# model calls: 5
