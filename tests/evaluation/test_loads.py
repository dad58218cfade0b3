"""Recorded runs under another load, in virtual time."""

import math
from typing import Any

import pytest

from orchestrator import Agent, agent, delegate, map_each, open_orchestrator
from orchestrator.delegation import SessionId
from orchestrator.evaluation import evaluate
from orchestrator.products.evaluation.page import page_of
from orchestrator.products.history.simulation import SimulationSettings, simulate_once
from orchestrator.products.history.simulation.load import (
    RecordedCalls,
    most_calls_at_once,
    recorded_calls,
    simulate_load,
)
from tests.evaluation.made_sets import CASES, correct, team

MODEL = "openai:gpt-5-mini"
WORKER = Agent("worker", model=MODEL)


@agent(delegates=[WORKER])
async def program(goal: str) -> str:
    """Do two steps, then several at once, at most two of them at the same time."""
    first = await delegate(WORKER, goal)
    second = await delegate(WORKER, first[:5])
    goals = [f"{second[:5]} {it}" for it in range(5)]
    found = await delegate(map_each(WORKER, limit=2), goals)
    return await delegate(WORKER, str(len(found)))


def record(run_agent: Agent[Any], seed: int, **settings: Any) -> tuple[RecordedCalls, float]:
    """Return a simulated run, and the seconds that it took."""
    run = simulate_once(run_agent, "go", SimulationSettings(**settings), seed=seed)
    assert run.outcome.succeeded
    session = SessionId(run.tree.root)
    return recorded_calls(run.entries, session), run.makespan


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "run_agent", [Agent("lead", model=MODEL, delegates=[WORKER]), program], ids=["lead", "program"]
)
def test_a_run_alone_takes_its_recorded_time(run_agent: Agent[Any], seed: int) -> None:
    calls, makespan = record(run_agent, seed, fan_out=4)
    load = simulate_load([calls], 1, 100)
    assert load.seconds.p95 == pytest.approx(makespan, abs=0.05)
    assert load.runs_per_hour == pytest.approx(3600 / makespan, rel=0.02)


def test_calls_wait_for_places_at_the_provider() -> None:
    lead = Agent("lead", model=MODEL, delegates=[WORKER])
    calls, makespan = record(lead, 1, fan_out=4)
    assert most_calls_at_once([calls]) == 4
    work = math.fsum(end - begin for begin, end in calls.spans)
    alone = simulate_load([calls], 1, 1).seconds
    assert alone.p50 == pytest.approx(work, abs=0.1), "one call at a time"
    crowded = simulate_load([calls], 10, 4)
    assert crowded.seconds.p50 > 2 * makespan
    assert simulate_load([calls], 10, 40).seconds.p95 == pytest.approx(makespan, abs=0.05)


@pytest.mark.realtime
async def test_a_sweep_reports_computed_loads() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        versions = {"dear": team(7, 10), "cheap": team(7, 5)}
        report = await evaluate(orchestrator, versions, CASES, scorers=[correct], loads=[1, 50])
    assert [(it.version, it.at_once) for it in report.loads] == [
        *(("dear", 1), ("dear", 50)),
        *(("cheap", 1), ("cheap", 50)),
    ]
    dear, _, cheap, _ = report.loads
    # The cost of each call is rounded.
    assert dear.cost == pytest.approx(2 * (cheap.cost or 0), rel=0.05)
    assert "computed by simulation, not measured" in page_of(report)
    assert "computed by simulation, not measured" in report.to_markdown()
    assert '"computed_loads"' in report.to_json()
