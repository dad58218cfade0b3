"""Sets of evaluations for tests: two versions of a team, each in a journal of its own."""

import json
from pathlib import Path
from typing import Any

import trio

from orchestrator import Agent, ScriptedModel, ToolMessage, Transcript, open_orchestrator
from orchestrator.evaluation import Case, Dataset, Score, TaskResult, evaluate
from orchestrator.models import Price
from tests.kit import hand_on

WORDS = ("tree", "house", "river", "stone", "cloud", "light", "<b>bold</b>")
CASES = Dataset(
    name="shouting",
    cases=tuple(Case(name=it, inputs=it, expected_output=it.upper()) for it in WORDS),
)


def team(knows: int, price: float) -> Agent:
    """Return a lead that hands each word to a writer, who shouts only the words that it knows."""

    def write(said: Transcript) -> str:
        word = said[0].text.splitlines()[-1]
        return word.upper() if word in WORDS[:knows] else word

    def lead(said: Transcript) -> Any:
        last = said[-1]
        if isinstance(last, ToolMessage):
            return json.loads(last.text)["results"][0]["output"]
        return hand_on(last.text, agent="writer")

    writer = Agent("writer", model=ScriptedModel.always(write, price=Price(input=price)))
    model = ScriptedModel.always(lead, price=Price(input=price))
    return Agent("team", model=model, delegates=[writer], version=f"{knows} {price}")


def correct(result: TaskResult) -> Score:
    is_right = result.answer == result.expected
    return Score(float(is_right), "It shouts." if is_right else "It whispers.", is_pass=True)


def quick(result: TaskResult) -> float:
    return 1.0 if result.seconds < 3600 else 0.0


def make_sets(folder: Path, **versions: Agent) -> None:
    """Make a set for each version; by default `a` and `b`, which is better and cheaper."""
    versions = versions or {"a": team(1, 10), "b": team(7, 6)}
    folder.mkdir(exist_ok=True)

    async def make(name: str, agent: Agent) -> None:
        async with open_orchestrator(folder / f"{name}.db") as orchestrator:
            await evaluate(orchestrator, {name: agent}, CASES, scorers=[correct, quick])

    for name, agent in versions.items():
        trio.run(make, name, agent)
