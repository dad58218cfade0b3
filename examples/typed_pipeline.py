"""Plan, research four at a time, vote, write: every step has a type, and nothing is lost.

`>>` hands on the answer of a step, and nothing else. Where a later step needs an earlier value, a
function keeps it: here the writer gets the findings and the verdict about them.
"""

import json
from dataclasses import dataclass
from typing import Literal

import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    Transcript,
    agent,
    delegate,
    map_each,
    open_orchestrator,
    vote,
)


@dataclass
class Finding:
    question: str
    answer: str


@dataclass
class Verdict:
    advice: Literal["buy", "wait"]


@dataclass
class Material:
    findings: list[Finding]
    verdict: Verdict


@dataclass
class Article:
    title: str
    text: str


FACTS = {
    "What does it cost?": "As much as gas.",
    "Does it work in winter?": "Down to -20 degrees.",
    "How long does it last?": "Twenty years.",
    "Is it loud?": "No.",
    "Who installs it?": "There is a waiting list.",
}


def find(transcript: Transcript) -> str:
    question = transcript[0].text
    return json.dumps({"question": question, "answer": FACTS[question]})


def compose(transcript: Transcript) -> str:
    material = json.loads(transcript[0].text)
    text = " ".join(it["answer"] for it in material["findings"])
    title = f"Heat pumps: {material['verdict']['advice']}"
    return json.dumps({"title": title, "text": text})


plan = Agent(
    "plan",
    instructions="Split the topic into five questions, each clear by itself.",
    output=list[str],
    model=NAMED or ScriptedModel.always(json.dumps(list(FACTS))),
)
research = Agent(
    "research",
    instructions="Answer the question in one sentence.",
    output=Finding,
    model=NAMED or ScriptedModel.always(find),
)
judge = Agent(
    "judge",
    instructions="Is now the time to buy, or to wait?",
    output=Verdict,
    model=NAMED or ScriptedModel(['{"advice": "buy"}', '{"advice": "wait"}', '{"advice": "buy"}']),
)
write = Agent(
    "write",
    instructions="Write an article from the findings. It ends with the verdict.",
    output=Article,
    model=NAMED or ScriptedModel.always(compose),
)
inquire = (plan >> map_each(research, limit=4)).named("inquire")
panel = vote(judge, times=3, key=lambda verdict: verdict.advice).named("panel")


@agent
async def article(topic: str) -> Article:
    """Write an article about a topic."""
    findings = await delegate(inquire, topic)
    verdict = await delegate(panel, findings)
    return await delegate(write, Material(findings, verdict))


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(article, "Heat pumps")
        print(run.output.title)
        print(run.output.text)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# Heat pumps: buy
# As much as gas. Down to -20 degrees. Twenty years. No. There is a waiting list.
# article ✓
# ├─ inquire[1] ✓
# │  ├─ plan[1] ✓
# │  └─ map_each[1] ✓
# │     ├─ research[1] ✓
# │     ├─ research[2] ✓
# │     ├─ research[3] ✓
# │     ├─ research[4] ✓
# │     └─ research[5] ✓
# ├─ panel[1] ✓
# │  ├─ judge[1] ✓
# │  ├─ judge[2] ✓
# │  └─ judge[3] ✓
# └─ write[1] ✓
