"""200 documents, read twelve at a time and merged twenty at a time, under one budget.

The documents are more than a model can read at once: each is read by itself, twenty results are
merged into one, and so on until one is left. The upper bound of the cost is reserved
before each call, so all calls together never exceed the budget. The time with real models:

    orchestrator simulate examples/map_reduce.py --fan-out 200 --model-seconds 12
"""

import json
from collections import Counter

import attrs
import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    Transcript,
    budget,
    map_reduce,
    open_orchestrator,
    usd,
)
from orchestrator.models import Price

TOPICS = ["delivery", "delivery", "delivery", "price", "price", "quality", "manners"]
LETTERS = [
    f"Letter {number}: I write to you about your {TOPICS[number % 7]}." for number in range(200)
]
PRICE = Price(input=0.25, output=2)  # dollars for a million tokens


@attrs.frozen
class Complaints:
    by_topic: dict[str, int]


def read_one(transcript: Transcript) -> str:
    topic = transcript[0].text.split()[-1].rstrip(".")
    return json.dumps({"by_topic": {topic: 1}})


def add_up(transcript: Transcript) -> str:
    total: Counter[str] = Counter()
    for part in json.loads(transcript[0].text):
        total.update(part["by_topic"])
    return json.dumps({"by_topic": total})


reader = Agent(
    "reader",
    instructions="Which topics does this letter complain of? Count each once.",
    output=Complaints,
    model=NAMED or ScriptedModel.always(read_one, price=PRICE),
)
merger = Agent(
    "merger",
    instructions="Add up these counts; topics that mean the same become one.",
    output=Complaints,
    model=NAMED or ScriptedModel.always(add_up, price=PRICE),
)
survey = map_reduce(reader, merger, limit=12, at_once=20).named("survey")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=0.50, calls=250):
            run = await orchestrator.run(survey, LETTERS)
        for topic, letters in Counter(run.output.by_topic).most_common():
            print(f"{letters:3} {topic}")
        tasks = Counter(run.tree[task].agent for task in run.tree)
        print(tasks["reader"], "letters were read,", tasks["merger"], "times merged")
        print(run.usage.calls, "model calls,", usd(run.usage), "of $0.50")


if __name__ == "__main__":
    trio.run(main)

# prints:
#  87 delivery
#  57 price
#  28 manners
#  28 quality
# 200 letters were read, 11 times merged
# 211 model calls, $0.0051 of $0.50
