"""Two versions of a team on the same cases: which one is better, and which one is cheaper?

A scorer looks at each step: every researcher has to name a source. The journal is the set of runs:
a second evaluation on it asks no model again.
"""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator
from orchestrator.evaluation import Case, TaskResult, each_task, evaluate
from orchestrator.models import Price
from orchestrator.testing import hand_on

TOPICS = ["tea", "salt", "silk", "paper", "amber", "tulips"]
CASES = [Case(name=topic, inputs=f"Where does {topic} come from?") for topic in TOPICS]


def delegate_once(transcript: Transcript) -> ToolCall | str:
    return hand_on(transcript[0].text) if len(transcript) == 1 else "It came by sea."


def make_team(name: str, note: str, price: float) -> Agent:
    cost = Price(input=price, output=price)
    researcher = Agent(
        "researcher",
        instructions=f"Research one question. Version {name}.",
        model=NAMED or ScriptedModel.always(note, price=cost),
    )
    return Agent(
        "editor",
        model=NAMED or ScriptedModel.always(delegate_once, price=cost),
        delegates=[researcher],
    )


def names_source(task: TaskResult) -> bool:
    return "http" in task.answer


async def main() -> None:
    versions = {
        "old": make_team("1", "I remember that it came by sea.", 100),
        "new": make_team("2", "By sea, says http://example.com.", 60),
    }
    async with open_orchestrator(":memory:") as orchestrator:
        report = await evaluate(
            orchestrator, versions, CASES, scorers=[each_task("researcher", names_source)]
        )
    for version in report.versions:
        print(f"{version.name}: score {version.mean('score')}, {version.mean('calls'):.0f} calls")
    for compared in report.comparisons:
        print(f"{compared.second.name} is {compared.verdict}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# old: score 0.0, 3 calls
# new: score 1.0, 3 calls
# new is better
