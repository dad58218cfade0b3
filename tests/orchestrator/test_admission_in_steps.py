"""Large fan-outs are admitted in steps, so that other tasks have a turn between two steps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import trio
from attrs import evolve

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, ModelRequest, ScriptedModel
from orchestrator.agents.messages import AssistantMessage
from orchestrator.delegation import Ending, Rules
from orchestrator.delegation.events import (
    Entry,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
)
from orchestrator.kernel.engine.delegator import DURABLE_AT_ONCE
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.testing import Harness
from tests.kit import hand_on, worker

CHILDREN = 4 * START_AT_ONCE + 7
GOALS = [f"goal {number}" for number in range(CHILDREN)]
UNLIMITED = Rules(children_per_call=CHILDREN, live_tasks=None, detached=None)


def lead(
    *, background: bool = False, child: Agent | None = None, goals: Sequence[str] = GOALS
) -> Agent:
    script: list[Any] = [hand_on(*goals, background=background), *["done"] * len(goals)]
    return Agent("lead", model=ScriptedModel(script), delegates=[child or worker()])


class RequestsPerStep(trio.abc.Instrument):
    """The most tasks that one step of the event loop requests."""

    def __init__(self) -> None:
        self.most = self._requests = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._requests = 0

    def receive(self, entry: Entry, _: object) -> None:
        self._requests += isinstance(entry.event, TaskRequested)
        self.most = max(self.most, self._requests)


async def most_requests(rules: Rules, *, background: bool) -> int:
    steps = RequestsPerStep()
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        trio.lowlevel.add_instrument(steps)
        with orchestrator.read.subscribe(steps.receive):
            async with orchestrator.open_session(lead(background=background)) as session:
                await session.ask("go")
                await session.wait_idle()
                assert session.tree.counts() == {Ending.SUCCEEDED: CHILDREN + 1}
        trio.lowlevel.remove_instrument(steps)
    return steps.most


async def test_joined_tasks_that_no_limit_counts_are_requested_in_steps() -> None:
    assert await most_requests(UNLIMITED, background=False) == START_AT_ONCE


async def test_detached_tasks_that_no_limit_counts_are_requested_in_steps() -> None:
    assert await most_requests(UNLIMITED, background=True) == START_AT_ONCE


async def test_tasks_that_wait_for_slots_are_requested_in_one_step() -> None:
    assert await most_requests(Rules(children_per_call=CHILDREN), background=False) == CHILDREN


async def test_a_budget_of_tasks_refuses_a_large_call_as_a_whole() -> None:
    harness = Harness(rules=UNLIMITED)
    async with harness.open() as orchestrator:
        with budget(tasks=CHILDREN - 1):
            await orchestrator.run(lead(), "go")
    assert harness.facts(TaskRequested) == []
    (answer,) = harness.facts(ToolAnswered)
    assert answer.message.failed


class Cancelling:
    """A model that cancels the run when its first child asks it."""

    name = "cancelling"

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self._scope.cancel()
        await trio.sleep_forever()
        raise AssertionError("it was cancelled")


async def test_a_cancel_between_two_steps_requests_no_more_and_settles_all() -> None:
    goals = [*["wait"] * DURABLE_AT_ONCE, *GOALS]
    harness = Harness(rules=evolve(UNLIMITED, children_per_call=len(goals)))
    async with harness.open() as orchestrator:
        with trio.CancelScope() as scope:
            child = Agent("worker", model=Cancelling(scope))
            await orchestrator.run(lead(child=child, goals=goals), "go")
    asked = [it.request.id for it in harness.facts(TaskRequested)]
    assert START_AT_ONCE <= len(asked) < len(goals)
    ended = {it.task: it.outcome.ending for it in harness.facts(TaskSettled)}
    assert ended == dict.fromkeys(asked, Ending.CANCELLED)
    harness.assert_laws()


async def test_a_crash_between_two_steps_requests_each_task_once() -> None:
    harness = Harness(rules=UNLIMITED)
    async with harness.open(crash_after=START_AT_ONCE + 20) as orchestrator:
        await orchestrator.run(lead(), "go")
    before = len(harness.facts(TaskRequested))
    assert 0 < before < CHILDREN
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        again = Agent("lead", model=ScriptedModel(["done"] * (CHILDREN + 1)), delegates=[worker()])
        run = await orchestrator.resume(again, opened.session)
    assert run.tree.counts() == {Ending.SUCCEEDED: CHILDREN + 1}
    asked = Counter(it.request.call for it in harness.facts(TaskRequested))
    assert len(asked) == CHILDREN
    assert set(asked.values()) == {1}
    harness.assert_laws()
