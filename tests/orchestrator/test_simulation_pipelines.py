"""Pipelines are simulated as they are: their programs run, and only models pretend."""

import math

import attrs
import pytest
import trio

from orchestrator import delegate, map_each
from orchestrator.agents import Agent, agent
from orchestrator.delegation import Rules
from orchestrator.simulation import SimulationSettings, estimate, simulate, simulate_once
from orchestrator.testing import assert_laws, assert_tree


@attrs.frozen
class Plan:
    questions: list[str]


planner = Agent("planner", model="openai:gpt-5", output=Plan)
researcher = Agent("researcher", model="openai:gpt-5-mini")
writer = Agent("writer", model="openai:gpt-5")


@agent
async def brief(topic: str) -> str:
    """Plan, research every question at the same time, write."""
    plan = await delegate(planner, topic)
    found: list[str] = []

    async def research(question: str) -> None:
        found.append(await delegate(researcher, question))

    async with trio.open_nursery() as nursery:
        for question in plan.questions:
            nursery.start_soon(research, question)
    return await delegate(writer, f"{len(found)} findings")


@agent
async def summary(plan: Plan) -> int:
    """Count what is planned."""
    await delegate(writer, plan.questions[0])
    return len(plan.questions)


def test_a_program_runs_with_answers_of_the_types_that_it_uses() -> None:
    run = simulate_once(brief, "go", SimulationSettings(fan_out=3), seed=1)

    assert_tree(
        run.tree,
        """
        brief succeeded
          planner[1] succeeded
          researcher[1] succeeded
          researcher[2] succeeded
          researcher[3] succeeded
          writer[1] succeeded joined: 3 findings
        """,
    )
    assert_laws(run.entries)


def test_a_pipeline_that_takes_a_type_is_given_one() -> None:
    lead = Agent("lead", model="openai:gpt-5", delegates=[summary])
    settings = SimulationSettings(fan_out=2, seeds=1)

    assert simulate(summary, None, settings).runs == {"succeeded": 1}
    report = simulate(lead, None, settings)
    assert report.endings == {"succeeded": 5}


def test_a_seed_gives_the_same_report_of_a_program_with_nurseries() -> None:
    """Its tasks begin at the same time, in an order that trio shuffles."""
    settings = SimulationSettings(fan_out=6, failure_rate=0.1, rules=Rules(live_tasks=2), seeds=1)
    reports = {simulate(brief, "go", settings).to_json() for _ in range(15)}

    assert len(reports) == 1


def test_the_calls_of_a_pipeline_have_no_bound() -> None:
    found = estimate(brief, "go", SimulationSettings(seeds=2))

    assert found.calls.p50 == 5
    assert found.worst.calls is None


@pytest.mark.parametrize(("limit", "limited_by"), [(2, "fan-out limit"), (None, "critical path")])
def test_the_limit_of_a_fan_out_is_named_where_it_limits(
    limit: int | None, limited_by: str
) -> None:
    @agent
    async def many(topic: str) -> int:
        topics = [f"{topic} {number}" for number in range(20)]
        return len(await delegate(map_each(researcher, limit=limit), topics))

    report = simulate(many, "go", SimulationSettings(spread=0, seeds=2))

    assert report.limited_by == limited_by, report.shares
    assert math.fsum(report.shares.values()) == pytest.approx(1, abs=0.01)
    # The last pair works for a tenth of the time; before, it is held back.
    expected = 0.9 if limit else 0
    assert report.shares["fan-out limit"] == pytest.approx(expected, abs=0.02)
    # Twice as many at once take half the time.
    assert (report.doubled is None) == (limit is None)
    if report.doubled is not None:
        assert report.doubled.makespan == report.makespan.p50
        half = report.doubled.makespan / 2
        assert report.doubled.doubled == pytest.approx(half, rel=0.05)
        assert report.doubled.sentence in report.sentence
