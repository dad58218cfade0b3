"""A parent chooses the model, the effort and the budget of each task that it delegates.

`Agent(models=...)` and `Agent(efforts=...)` list the choices that an agent leaves to its parent.
`Agent(gives_budgets=True)` lets the parent give each task a part of its own budget.
"""

import json
from collections.abc import Callable

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Budget,
    ScriptedModel,
    ToolCall,
    Transcript,
    delegate,
    open_orchestrator,
)
from orchestrator import agent as agent_function
from orchestrator.testing import SpyModel

SMALL = SpyModel("A short note.", name="small")
LARGE = SpyModel("A long report.", name="large")


def analyst() -> Agent:
    return Agent(
        "analyst",
        instructions="Answer one question.",
        model=NAMED or ScriptedModel.always("A usual answer."),
        models=[SMALL, LARGE],
        efforts=["low", "high"],
    )


TASKS = [
    {"goal": "Which year was it?", "model": "small", "effort": "low", "budget": {"calls": 1}},
    {"goal": "Why did it happen?", "model": "large", "budget": {"tokens": 20_000, "seconds": 60}},
    {"goal": "Who was there?"},
]


def merge(transcript: Transcript) -> str:
    results = json.loads(transcript[-1].text)["results"]
    return " ".join(result["output"] for result in results)


def said(transcript: Transcript) -> str:
    return transcript[-1].text


def editor(call: ToolCall, then: Callable[[Transcript], str]) -> Agent:
    return Agent(
        "editor",
        instructions="Have an analyst for each question, on the smallest model that will do.",
        model=NAMED or ScriptedModel([call, then]),
        delegates=[analyst()],
        gives_budgets=True,
        budget=Budget(calls=9),
    )


@agent_function
async def report(goal: str) -> str:
    """Choose in Python."""
    return await delegate(analyst(), goal, model="small", budget=Budget(calls=2))


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        boss = editor(ToolCall("delegate_task", {"tasks": TASKS}), merge)
        run = await orchestrator.run(boss, "Report.")
        print(run.output)
        for row in run.tree.rows():
            print(f"  {row.name}: {row.about}")
        print((await orchestrator.run(report, "Which year?")).output)

        # A model that the agent does not allow, and a budget that is more than the rest.
        for wrong in ({"model": "huge"}, {"budget": {"calls": 9}}):
            boss = editor(ToolCall("delegate_task", {"goal": "Why?"} | wrong), said)
            print((await orchestrator.run(boss, "Report.")).output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# A short note. A long report. A usual answer.
#   editor: Report.
#   analyst[1]: model small, effort low, budget (calls=1) · Which year was …
#   analyst[2]: model large, budget (tokens=20000, seconds=60.0) · Why did …
#   analyst[3]: Who was there?
# A short note.
# model is 'huge'; for agent 'analyst' it must be one of: small, large; no task was started
# the budget (calls=9) of /editor has 8 model calls left, not the 9 model calls of this call
