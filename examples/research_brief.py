"""A research brief: plan, research in parallel, write, and rewrite until a critic is content.

Every step has an output type: steps that do not fit together are an error for mypy, and an answer
that does not fit is asked for again. The pipeline is an agent like any other, so this works, too:

    orchestrator run examples/research_brief.py:brief "Heat pumps in old houses"
    orchestrator simulate examples/research_brief.py --fan-out 20
"""

import json

import attrs
import trio
from models import NAMED

from orchestrator import (
    Agent,
    Review,
    ScriptedModel,
    Transcript,
    map_each,
    open_orchestrator,
    refine,
)


@attrs.frozen
class Finding:
    answer: str
    source: str


@attrs.frozen
class Brief:
    title: str
    text: str
    sources: list[str]


FACTS = {
    "Do heat pumps need floor heating?": ("Radiators will do.", "Fraunhofer, 2022"),
    "What do heat pumps cost to run?": ("As much as gas.", "Consumer advice, 2024"),
    "What does a house need first?": ("A warm roof.", "Energy agency, 2023"),
}
SOURCES = [source for _, source in FACTS.values()]
TITLE = "Heat pumps in old houses"
TEXT = "They work with radiators, for the price of gas. Insulate the roof first."


def find(transcript: Transcript) -> str:
    answer, source = FACTS[transcript[0].text]
    return json.dumps({"answer": answer, "source": source})


plan = Agent(
    "plan",
    instructions="Split the topic into three questions, each clear by itself.",
    output=list[str],
    model=NAMED or ScriptedModel.always(json.dumps(list(FACTS))),
)
research = Agent(
    "research",
    instructions="Answer the question in one sentence, and name your source.",
    output=Finding,
    model=NAMED or ScriptedModel.always(find),
)
write = Agent(
    "write",
    instructions="Write a brief of two sentences from these findings.",
    output=Brief,
    model=NAMED
    or ScriptedModel(
        [
            json.dumps({"title": TITLE, "text": "They work.", "sources": []}),
            json.dumps({"title": TITLE, "text": TEXT, "sources": SOURCES}),
        ]
    ),
)
critic = Agent(
    "critic",
    instructions="Does the brief say what to do, and name its sources?",
    output=Review,
    model=NAMED
    or ScriptedModel(
        [
            json.dumps({"passes": False, "complaint": "It names no sources."}),
            json.dumps({"passes": True}),
        ]
    ),
)

edit = refine(write, until=critic, rounds=3, or_last=True).named("edit")
brief = (plan >> map_each(research, limit=10) >> edit).named("brief")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(brief, "Heat pumps in old houses")
        print(run.output.title)
        print(run.output.text)
        print("Sources:", "; ".join(run.output.sources))
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# Heat pumps in old houses
# They work with radiators, for the price of gas. Insulate the roof first.
# Sources: Fraunhofer, 2022; Consumer advice, 2024; Energy agency, 2023
# brief ✓
# ├─ plan[1] ✓
# ├─ map_each[1] ✓
# │  ├─ research[1] ✓
# │  ├─ research[2] ✓
# │  └─ research[3] ✓
# └─ edit[1] ✓
#    ├─ write[1] ✓
#    ├─ critic[1] ✓
#    ├─ write[2] ✓
#    └─ critic[2] ✓
