"""A budget of model calls is never passed, however the calls end."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    Failure,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Usage,
)
from agents.models.wrappers.retry import retrying
from delegation import Ending, Rules
from orchestrator import Run, budget, open_orchestrator
from tests.kit import hand_on
from tests.orchestrator.budgets_kit import Meter, lead


@pytest.mark.parametrize("children", [8, 1_000])
async def test_a_tree_limited_to_five_calls_makes_five_however_wide_it_is(
    children: int,
) -> None:
    meter = Meter()
    rules = Rules(children_per_call=1_000)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(lead(meter, children, meter.worker()), "go")

    assert meter.calls == run.usage.calls == 5
    assert run.outcome.ending is Ending.OVER_BUDGET
    assert run.tree.counts() == {"succeeded": 4, "over_budget": children - 4 + 1}


async def test_a_tree_limited_to_five_calls_makes_five_however_deep_it_is() -> None:
    meter = Meter()
    model = meter.on(ScriptedModel.always(hand_on("deeper")))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(Agent("top", model=model, copies=True), "go")

    assert meter.calls == run.usage.calls == 5
    assert run.tree.counts() == {"over_budget": 5 + 1}
    assert run.outcome.kind == "calls"


class Broken:
    """A model that fails in a way of its own."""

    name = "broken"

    def __init__(self, fail: Callable[[], Any]) -> None:
        self.calls = 0
        self._fail = fail

    async def answer(self, _: ModelRequest) -> AssistantMessage:
        self.calls += 1
        await trio.sleep(1)
        answer: AssistantMessage = self._fail()
        return answer


def raising(exc: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise exc

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(raising(ModelError("HTTP 500")), id="a provider that fails"),
        pytest.param(raising(ValueError("a bug")), id="a bug"),
        pytest.param(lambda: "no message", id="no message"),
        pytest.param(
            lambda: AssistantMessage("", (ToolCall("t", {"n": object()}),)),
            id="what cannot be written down",
        ),
    ],
)
async def test_a_call_that_failed_was_made(fail: Callable[[], Any]) -> None:
    meter = Meter()
    broken = Broken(fail)
    child = Agent("worker", model=broken)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(lead(meter, 8, child), "go")

    assert meter.calls + broken.calls == 5
    assert run.tree.counts() == {"failed": 4, "over_budget": 5}


class InANursery:
    """A model that waits in a nursery of its own, as one that streams does."""

    name = "nursery"

    def __init__(self, waiting: int) -> None:
        self.calls = 0
        self._waiting = waiting

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.calls += 1
        if not self._waiting:
            await trio.sleep(100)
        async with trio.open_nursery() as nursery:
            for _ in range(self._waiting):
                nursery.start_soon(trio.sleep, 100)
        return AssistantMessage("done", usage=Usage(calls=1))


@pytest.mark.parametrize("waiting", [0, 1, 2])
async def test_a_call_that_was_cancelled_in_flight_was_made(waiting: int) -> None:
    meter = Meter()
    slow = InANursery(waiting)
    child = Agent("worker", model=slow)
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            with budget(calls=5):
                nursery.start_soon(orchestrator.run, lead(meter, 8, child), "go")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            # Those in flight are not known by name: as many are cancelled as it takes.
            for task in tree.children(tree.root)[:6]:
                await orchestrator.cancel(task)

    assert meter.calls + slow.calls == 5
    assert tree.total.calls == 5
    assert tree.counts()["cancelled"] >= 2


async def test_every_attempt_of_a_model_that_is_asked_again_is_a_call() -> None:
    """Also one that failed without a word of what it has used."""
    attempts: list[float] = []

    class Flaky:
        name = "flaky"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            attempts.append(trio.current_time())
            await trio.sleep(1)
            if len(attempts) % 3:
                raise ModelError("HTTP 503", kind=Failure.OVERLOADED)
            return AssistantMessage("done", usage=Usage(calls=1))

    agent = Agent("top", model=retrying(Flaky()))
    runs: list[Run[str]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            for _ in range(5):
                runs.append(await orchestrator.run(agent, "go"))  # noqa: PERF401

    # The last one that was let through may be asked again before anybody knows.
    assert len(attempts) < 5 + 3
    assert sum(run.usage.calls for run in runs) == len(attempts)


async def test_what_ran_out_and_where_is_said() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=1, name="lunch"):
            run = await orchestrator.run(lead(meter, 1, meter.worker()), "go")
    (child,) = run.tree.children(run.tree.root)

    assert run.outcome.kind == "calls"
    assert run.outcome.error == (
        "the budget 'lunch' (calls=1) of /top is used up: 1 model call made"
    )
    assert run.tree[child]["error"] == run.outcome.error
