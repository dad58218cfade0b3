"""Planted faults: how often `blame` finds the faulty task, and how often its intervals are right.

Each scripted tree has one task that answers wrongly in the run. A fork of it with the stronger
model is right with a known probability, so the true effect of each task is known. The score is pass
or fail, or a number with noise.
"""

import random
import sys
from collections import Counter
from typing import Any

import attrs
import trio

from orchestrator import Agent, ScriptedModel, ToolCall, open_orchestrator
from orchestrator.agents import ToolMessage, Transcript
from orchestrator.evaluation import BlameReport, TaskResult, blame

TREES = 100
TIMES = 8


@attrs.define
class PlantedTree:
    """A team of leads and workers, with one faulty worker."""

    seed: int
    calls: Counter[str] = attrs.field(factory=Counter[str])
    strong: bool = False
    chance: random.Random = attrs.field(init=False)
    leads: int = attrs.field(init=False)
    workers: int = attrs.field(init=False)
    faulty: str = attrs.field(init=False)
    mended: float = attrs.field(init=False)
    """The probability that the stronger model answers the faulty task rightly."""
    passes: bool = attrs.field(init=False)
    """Whether the score is pass and fail; otherwise it is a number with noise."""

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 (a benchmark)
        self.leads, self.workers = self.chance.randint(1, 3), self.chance.randint(2, 3)
        self.faulty = f"{self.chance.randrange(self.leads)}.{self.chance.randrange(self.workers)}"
        self.passes = self.chance.random() < 0.5
        self.mended = self.chance.choice([0.8, 0.9, 1.0]) if self.passes else 1.0

    def team(self) -> Agent:
        worker = Agent("worker", model=ScriptedModel.always(self._work))
        lead = Agent("lead", model=ScriptedModel.always(self._lead), delegates=[worker])
        return Agent("editor", model=ScriptedModel.always(self._edit), delegates=[lead])

    def change(self, agent: Agent[Any]) -> Agent[Any]:
        if agent.name != "worker":
            return agent
        return attrs.evolve(agent, model=ScriptedModel.always(self._work_strong))

    def _work(self, transcript: Transcript) -> str:
        goal = _goal(transcript)
        self.calls[goal] += 1
        return f"{goal}={'bad' if goal == self.faulty else 'good'};"

    def _work_strong(self, transcript: Transcript) -> str:
        goal = _goal(transcript)
        self.calls[goal] += 1
        is_good = goal != self.faulty or self.chance.random() < self.mended
        return f"{goal}={'good' if is_good else 'bad'};"

    def _lead(self, transcript: Transcript) -> Any:
        goal = _goal(transcript)
        self.calls[goal] += 1
        return _joined(transcript, [f"{goal}.{it}" for it in range(self.workers)])

    def _edit(self, transcript: Transcript) -> Any:
        self.calls["editor"] += 1
        return _joined(transcript, [str(it) for it in range(self.leads)])

    def score(self, result: TaskResult) -> float:
        share = 1.0 if "=bad" not in result.answer else 0.0
        return share if self.passes else share + self.chance.gauss(0, 0.05)

    def true_effect(self, path: str, before: float) -> float:
        """Return the true effect of a task: the faulty one and its lead mend the score."""
        numbers = [int(it.rpartition("[")[2].rstrip("]")) - 1 for it in path.split("/")[2:]]
        name = ".".join(map(str, numbers))
        is_above = name in {self.faulty, self.faulty.partition(".")[0]}
        return (self.mended if is_above else 0.0) - before


def _goal(transcript: Transcript) -> str:
    return transcript[0].text.splitlines()[-1]


def _joined(transcript: Transcript, goals: list[str]) -> Any:
    if not isinstance(transcript[-1], ToolMessage):
        tasks = [{"goal": it} for it in goals]
        return ToolCall("delegate_task", {"tasks": tasks, "background": False})
    return "".join(it for it in transcript[-1].text.split('"') if it.endswith(";"))


@attrs.frozen
class Found:
    """The result for one tree."""

    is_found: bool
    covered: int
    effects: int
    wrong_calls: int
    """The calls for tasks that the forks keep."""


async def run_tree(seed: int, times: int = TIMES) -> Found:
    """Run a team with a planted fault, and blame its workers."""
    tree = PlantedTree(seed)
    team = tree.team()
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(team, "go")
        tree.calls.clear()
        workers = [it.path for it in map(run.tree.__getitem__, run.tree) if it.agent == "worker"]
        report = await blame(
            orchestrator, team, run.id, tree.score, tasks=workers, times=times, change=tree.change
        )
    guilty = report.guilty
    indexes = [int(it) + 1 for it in tree.faulty.split(".")]
    path = f"/editor/lead[{indexes[0]}]/worker[{indexes[1]}]"
    return Found(
        is_found=guilty is not None and guilty.path == path,
        covered=_covered(tree, report),
        effects=len(report.effects),
        wrong_calls=_wrong_calls(tree, len(workers), times),
    )


def _covered(tree: PlantedTree, report: BlameReport) -> int:
    return sum(
        it.effect.low - 1e-9 <= tree.true_effect(it.path, report.score) <= it.effect.high + 1e-9
        for it in report.effects
    )


def _wrong_calls(tree: PlantedTree, workers: int, times: int) -> int:
    """Return how many calls there were besides the forked worker, its lead and the editor."""
    expected = Counter({"editor": workers * times})
    for lead in range(tree.leads):
        expected[str(lead)] = tree.workers * times
        expected.update({f"{lead}.{it}": times for it in range(tree.workers)})
    return (tree.calls - expected).total() + (expected - tree.calls).total()


def measure_planted_faults(trees: int = TREES) -> None:
    """Print the share of found faults and of right intervals; raise if one is too low."""
    found = [trio.run(run_tree, seed) for seed in range(trees)]
    effects = sum(it.effects for it in found)
    named = sum(it.is_found for it in found)
    right = sum(it.covered for it in found) / effects
    wrong_calls = sum(it.wrong_calls for it in found)
    print(
        f"planted faults: found in {named} of {trees} trees; intervals cover the truth in"
        f" {right:.1%} of {effects:,}; {wrong_calls} calls for kept tasks"
    )
    if named < 0.95 * trees or right < 0.93 or wrong_calls:
        raise SystemExit("blame misses its bars: 95 % found, 93 % covered, no call for kept tasks")


if __name__ == "__main__":
    measure_planted_faults(int(sys.argv[1]) if len(sys.argv) > 1 else TREES)
