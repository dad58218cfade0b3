"""`blame` measures the effect of single tasks on the score of a run."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.planted_faults import PlantedTree, run_tree
from orchestrator import DefinitionError, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.evaluation import TaskResult, blame, repeat_task
from orchestrator.models import Price
from orchestrator.products.evaluation.blame import mean_interval, suspects
from tests.orchestrator.test_cli import Shell


async def test_planted_faults_are_found_without_calls_for_kept_tasks() -> None:
    found = [await run_tree(seed, 6) for seed in range(4)]

    assert all(it.is_found for it in found)
    assert not any(it.wrong_calls for it in found)
    assert sum(it.covered for it in found) >= 0.85 * sum(it.effects for it in found)


async def test_a_corrected_answer_asks_no_model_for_the_task() -> None:
    tree = PlantedTree(1)
    lead, worker = (int(it) + 1 for it in tree.faulty.split("."))
    path = f"/editor/lead[{lead}]/worker[{worker}]"
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(tree.team(), "go")
        tree.calls.clear()
        answers = {path: f"{tree.faulty}=good;"}
        report = await blame(orchestrator, tree.team(), run.id, right, times=2, answers=answers)

    assert report.guilty is not None
    assert (report.guilty.path, report.guilty.effect.value) == (path, 1.0)
    assert tree.calls == {"editor": 2, tree.faulty.partition(".")[0]: 2}


def right(result: TaskResult) -> bool:
    return "=bad" not in result.answer


async def test_the_budget_of_blame_is_exact() -> None:
    tree = PlantedTree(2)
    team = tree.team()

    def priced(agent: Agent[Any]) -> Agent[Any]:
        model = ScriptedModel.always("x", price=Price(input=1e6, output=1e6))
        return attrs.evolve(agent, model=model)

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(team, "go")
        report = await blame(orchestrator, team, run.id, right, change=priced, usd=0.5)

    assert not report.effects
    assert report.not_tried


async def test_suspects_are_ordered_and_forks_repeat() -> None:
    tree = PlantedTree(3)
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(tree.team(), "go")
        assert {*suspects(run.tree)} == {*run.tree.descendants()}
        with pytest.raises(DefinitionError, match="no task '/x'"):
            await blame(orchestrator, tree.team(), run.id, right, tasks=["/x"])
        with pytest.raises(DefinitionError, match="at least 2"):
            await blame(orchestrator, tree.team(), run.id, right, times=1)
        with pytest.raises(DefinitionError, match="at least 1"):
            await repeat_task(orchestrator, tree.team(), run.id, "/x", times=0)


def test_intervals_match_scipy() -> None:
    """`scipy.stats.binomtest(7, 8).proportion_ci()` and `scipy.stats.t.interval(0.95, 3, ...)`."""
    passes = mean_interval([1.0] * 7 + [0.0])
    assert (passes.low, passes.high) == pytest.approx((0.4735, 0.9968), abs=1e-4)
    none = mean_interval([0.0] * 8)
    assert (none.low, none.high) == pytest.approx((0.0, 0.3694), abs=1e-4)
    numbers = mean_interval([0.1, 0.2, 0.3, 0.4])
    assert (numbers.low, numbers.high) == pytest.approx((0.0446, 0.4554), abs=1e-4)


TEAM = """
from orchestrator import Agent, ScriptedModel, ToolCall


def work(said):
    goal = said[0].text.splitlines()[-1]
    return "wrong" if goal == "b" else "right"


def lead(said):
    if len(said) > 1:
        return said[-1].text
    tasks = [{"goal": it} for it in "abc"]
    return ToolCall("delegate_task", {"tasks": tasks, "background": False})


worker = Agent("worker", model=ScriptedModel.always(work))
team = Agent("team", model=ScriptedModel.always(lead), delegates=[worker])


def correct(result):
    return "wrong" not in result.answer
"""


def test_the_command_names_the_task(tmp_path: Path, python: list[str]) -> None:
    shell = Shell(tmp_path, python)
    shell.write("team.py", TEAM)
    run = json.loads(shell.run("run", "team.py:team", "go", "--json")[0])["run"]
    terms = ("blame", "--file", "team.py:team", "--scorer", "team.py:correct", "--times", "2")
    out, _ = shell.run(*terms, "--answer", "/team/worker[2]=right")
    assert "* /team/worker[2]: +1.00" in out
    out, _ = shell.run(*terms[:1], run, *terms[1:], "--task", "/team/worker[1]", "--json", code=1)
    assert json.loads(out)["effects"][0]["path"] == "/team/worker[1]"
