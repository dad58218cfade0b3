"""A budget of model calls is never passed, however the calls end."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import trio

from orchestrator import Run, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
)
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.delegation import Ending, Reserved, Rules
from orchestrator.testing import CountingModel, FailingModel
from tests.kit import FunctionModel, hand_on
from tests.orchestrator.budgets_kit import Meter, lead


@pytest.mark.parametrize("children", [8, 1_000])
async def test_a_tree_limited_to_five_calls_makes_five_however_wide_it_is(children: int) -> None:
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


async def test_a_refused_call_leaves_no_reservation_in_memory() -> None:
    """A server refuses calls for as long as it lives."""

    def held() -> int:
        return sum(type(it) is Reserved for it in gc.get_objects())

    agent = Agent("worker", model=ScriptedModel.always("done"))
    async with open_orchestrator(":memory:") as orchestrator:
        before = held()
        with budget(tokens=1):
            run = await orchestrator.run(agent, "go")
        assert run.outcome.ending is Ending.OVER_BUDGET
        assert held() == before


def raising(exc: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise exc

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(raising(ModelError("HTTP 500")), id="a provider that fails"),
        pytest.param(raising(ValueError("a bug")), id="a bug"),
        pytest.param(object, id="no message"),
        pytest.param(
            lambda: AssistantMessage("", (ToolCall("t", {"n": object()}),)),
            id="what cannot be written down",
        ),
    ],
)
async def test_a_call_that_failed_was_made(fail: Callable[[], Any]) -> None:
    meter = Meter()

    async def fails(_: ModelRequest) -> Any:
        await trio.sleep(1)
        return fail()

    broken = CountingModel(FunctionModel(fails))
    child = Agent("worker", model=broken)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(lead(meter, 8, child), "go")

    assert meter.calls + broken.calls == 5
    assert run.tree.counts() == {"failed": 4, "over_budget": 5}


@pytest.mark.parametrize("waiting", [0, 1, 2])
async def test_a_call_that_was_cancelled_in_flight_was_made(waiting: int) -> None:
    meter = Meter()

    async def waits(request: ModelRequest) -> str:
        """Wait in a nursery of its own, as a model that streams does."""
        if not waiting:
            await trio.sleep(100)
        async with trio.open_nursery() as nursery:
            for _ in range(waiting):
                nursery.start_soon(trio.sleep, 100)
        return "done"

    slow = CountingModel(FunctionModel(waits))
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
    flaky = CountingModel(FailingModel([503, 503, None] * 5))
    agent = Agent("top", model=with_retries(flaky))
    runs: list[Run[str]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            for _ in range(5):
                runs.append(await orchestrator.run(agent, "go"))  # noqa: PERF401

    assert flaky.calls == 5
    assert sum(run.usage.calls for run in runs) == 5


async def test_a_run_over_budget_names_the_budget_and_the_path() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=1, name="lunch"):
            run = await orchestrator.run(lead(meter, 1, meter.worker()), "go")
    (child,) = run.tree.children(run.tree.root)

    assert run.outcome.kind == "calls"
    assert run.outcome.error == (
        "the budget 'lunch' (calls=1) of /top is used up: 1 model call made"
    )
    assert run.tree[child].error == run.outcome.error
