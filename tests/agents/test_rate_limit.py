"""Calls never exceed the rate of a provider, and pass in order."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.call_order import Call, RunWork
from orchestrator.agents.models.call_queue import WATCHED_CALLS
from orchestrator.agents.models.token_estimate import OUTPUT_ALLOWANCE, estimated_tokens
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.testing import CountingModel, StreamingModel

REQUEST = ModelRequest(instructions="", transcript=(), tools=())


def worker_model(seconds: float = 0, *, uses: int = 0) -> CountingModel:
    """Return a model that takes its time, and counts its calls."""
    usage = Usage(calls=1, input_tokens=uses)
    model = StreamingModel.always(seconds, "done", usage=usage)
    return CountingModel(model, name="worker")


async def ask_often(model: Model, times: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(model.answer, REQUEST)


def on_a_jumping_clock(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_limited_model_keeps_the_name_of_its_model() -> None:
    assert with_rate_limit(worker_model(), Limiter()).name == "worker"


async def test_a_limiter_without_limits_passes_every_call() -> None:
    worker = worker_model(seconds=1)

    await ask_often(with_rate_limit(worker, Limiter()), 100)

    assert worker.called_at == [0] * 100


async def test_a_full_bucket_goes_at_once_and_the_rest_as_it_fills() -> None:
    worker = worker_model()

    await ask_often(with_rate_limit(worker, Limiter(requests_per_minute=6)), 9)

    assert worker.called_at == pytest.approx([0, 0, 0, 0, 0, 0, 10, 20, 30])


async def test_a_bucket_holds_no_more_than_a_minute() -> None:
    worker = worker_model()
    model = with_rate_limit(worker, Limiter(requests_per_minute=2))
    await trio.sleep(3600)

    await ask_often(model, 4)

    assert worker.called_at == pytest.approx([3600, 3600, 3630, 3660])


async def test_the_limiter_bounds_the_calls_in_flight() -> None:
    worker = worker_model(seconds=1)
    limiter = Limiter(in_flight=3)

    await ask_often(with_rate_limit(worker, limiter), 9)

    assert worker.most_at_once == 3
    assert trio.current_time() == 3
    assert limiter.in_flight == 0


async def test_models_may_share_one_limiter() -> None:
    limiter = Limiter(in_flight=1)
    one, two = worker_model(seconds=1), worker_model(seconds=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_often, with_rate_limit(one, limiter), 2)
        nursery.start_soon(ask_often, with_rate_limit(two, limiter), 2)

    assert sorted(one.called_at + two.called_at) == [0, 1, 2, 3]


async def test_the_limiter_is_first_come_first_served() -> None:
    model = with_rate_limit(ScriptedModel.always("42", 1), Limiter(requests_per_minute=1))
    order: list[int] = []

    async def asker(number: int) -> None:
        await model.answer(REQUEST)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(asker, number)
            await trio.testing.wait_all_tasks_blocked()

    assert order == list(range(20))


async def test_a_small_request_does_not_overtake_a_large_one() -> None:
    """Or a large one would wait for ever while small ones keep coming."""
    worker = worker_model()
    model = with_rate_limit(worker, Limiter(tokens_per_minute=4 * OUTPUT_ALLOWANCE))
    order: list[str] = []

    async def asker(name: str, characters: int) -> None:
        request = ModelRequest(instructions="x" * characters, transcript=(), tools=())
        await model.answer(request)
        order.append(name)

    async with trio.open_nursery() as nursery:
        for name, tokens in (("a", 2), ("large", 3), ("small", 0)):
            nursery.start_soon(asker, name, 4 * tokens * OUTPUT_ALLOWANCE)
            await trio.testing.wait_all_tasks_blocked()

    assert order == ["a", "large", "small"]


async def test_the_limiter_counts_waiting_calls() -> None:
    limiter = Limiter(in_flight=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_often, with_rate_limit(worker_model(seconds=10), limiter), 3)
        await trio.sleep(5)
        assert (limiter.in_flight, limiter.waiting) == (1, 2)
        await trio.sleep(10)
        assert (limiter.in_flight, limiter.waiting) == (1, 1)

    assert (limiter.in_flight, limiter.waiting) == (0, 0)


@pytest.mark.parametrize("position", [0, 1])
async def test_a_waiter_that_is_cancelled_gives_its_place_back(position: int) -> None:
    """The first in line looks at the clock, and the others at the first: both may go."""
    worker = worker_model()
    limiter = Limiter(requests_per_minute=1)
    model = with_rate_limit(worker, limiter)
    await model.answer(REQUEST)
    scopes = [trio.CancelScope() for _ in range(3)]

    async def asker(scope: trio.CancelScope) -> None:
        with scope:
            await model.answer(REQUEST)

    async with trio.open_nursery() as nursery:
        for scope in scopes:
            nursery.start_soon(asker, scope)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(5)
        scopes[position].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert limiter.waiting == 2

    assert worker.called_at == pytest.approx([0, 60, 120])
    assert [scope.cancelled_caught for scope in scopes].count(True) == 1


async def test_a_call_that_is_cancelled_leaves() -> None:
    limiter = Limiter(in_flight=1)
    model = with_rate_limit(ScriptedModel.always("42", 100), limiter)

    with trio.move_on_after(5):
        await model.answer(REQUEST)

    assert limiter.in_flight == 0
    assert (await model.answer(REQUEST)).text == "42"


async def test_a_call_that_fails_leaves() -> None:
    limiter = Limiter(in_flight=1)

    with pytest.raises(ModelError, match="busy"):
        await with_rate_limit(ScriptedModel([ModelError("busy")]), limiter).answer(REQUEST)

    assert limiter.in_flight == 0


async def test_tokens_are_reserved_before_the_call() -> None:
    worker = worker_model(seconds=1)
    limiter = Limiter(tokens_per_minute=2 * OUTPUT_ALLOWANCE)

    await ask_often(with_rate_limit(worker, limiter), 4)

    assert worker.called_at == pytest.approx([0, 0, 30, 60])


async def test_tokens_that_a_call_did_not_use_are_given_back() -> None:
    """A waiting call begins at once."""
    worker = worker_model(seconds=1, uses=1)
    limiter = Limiter(tokens_per_minute=2 * OUTPUT_ALLOWANCE)

    await ask_often(with_rate_limit(worker, limiter), 5)

    assert worker.called_at[:2] == [0, 0]
    assert worker.called_at[2:4] == pytest.approx([1, 1], abs=0.1)
    assert worker.called_at[4] == pytest.approx(2, abs=0.2)


async def test_tokens_that_a_call_used_beyond_its_estimate_are_owed() -> None:
    worker = worker_model(uses=10 * OUTPUT_ALLOWANCE)
    model = with_rate_limit(worker, Limiter(tokens_per_minute=2 * OUTPUT_ALLOWANCE))

    await model.answer(REQUEST)
    await model.answer(REQUEST)

    assert worker.called_at == pytest.approx([0, 270])


async def test_calls_that_wait_already_wait_for_a_debt_too() -> None:
    worker = worker_model(seconds=1, uses=3 * OUTPUT_ALLOWANCE)

    await ask_often(with_rate_limit(worker, Limiter(tokens_per_minute=OUTPUT_ALLOWANCE)), times=2)

    assert worker.called_at == pytest.approx([0, 180])


async def test_a_request_larger_than_a_minute_waits_for_a_full_bucket() -> None:
    worker = worker_model()
    model = with_rate_limit(worker, Limiter(tokens_per_minute=OUTPUT_ALLOWANCE // 2))

    await ask_often(model, 3)

    assert worker.called_at == pytest.approx([0, 60, 120])


@pytest.mark.parametrize(
    ("limiter", "limit"),
    [
        (Limiter(requests_per_minute=0), "requests_per_minute"),
        (Limiter(tokens_per_minute=0), "tokens_per_minute"),
        (Limiter(in_flight=0), "in_flight"),
    ],
)
async def test_a_limit_of_zero_fails_at_once(limiter: Limiter, limit: str) -> None:
    """No waiting heals that, so it fails at once, and a fallback moves on."""
    worker = worker_model()

    with pytest.raises(ModelError, match=f"has {limit}=0") as caught:
        await with_rate_limit(worker, limiter).answer(REQUEST)

    assert caught.value.kind is Failure.QUOTA
    assert (worker.called_at, limiter.waiting) == ([], 0)


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
def test_a_negative_limit_is_refused(limit: str) -> None:
    limits: dict[str, Any] = {limit: -1}
    with pytest.raises(DefinitionError, match=f"{limit} cannot be -1"):
        Limiter(**limits)


async def test_waiting_for_a_free_place_is_a_checkpoint() -> None:
    with trio.testing.assert_checkpoints():
        await Limiter().wait_admitted(1)


def test_the_estimate_covers_the_whole_request() -> None:
    @tool
    def look(where: str) -> str:
        """Look around."""
        return where

    empty = estimated_tokens(REQUEST)
    call = ToolCall("look", {"where": "x" * 400})
    asked = AssistantMessage("x" * 400, calls=(call,))
    requests = [
        ModelRequest(instructions="x" * 400, transcript=(), tools=()),
        ModelRequest(instructions="", transcript=[UserMessage("x" * 400)], tools=()),
        ModelRequest(instructions="", transcript=[ToolMessage(call.id, "x" * 400)], tools=()),
        ModelRequest(instructions="", transcript=[asked], tools=()),
        ModelRequest(instructions="", transcript=(), tools=(look,)),
        ModelRequest(instructions="", transcript=(), tools=(), output={"x": "y" * 400}),
    ]

    assert empty == OUTPUT_ALLOWANCE
    sizes = [estimated_tokens(request) - empty for request in requests]
    assert sizes[:3] == [100] * 3
    assert sizes[3] > 200
    assert sizes[4] > len("look" + "Look around.") // 4
    assert sizes[5] > 100


arrivals = st.lists(st.floats(0, 200), min_size=1, max_size=40)


@settings(deadline=None)
@given(arrivals=arrivals, per_minute=st.integers(1, 20), seconds=st.floats(0, 5))
def test_no_window_passes_more_calls_than_the_bucket_and_its_inflow(
    arrivals: Sequence[float], per_minute: int, seconds: float
) -> None:
    worker = worker_model(seconds)

    async def asker(model: Model, at: float) -> None:
        await trio.sleep_until(at)
        await model.answer(REQUEST)

    async def main() -> None:
        model = with_rate_limit(worker, Limiter(requests_per_minute=per_minute))
        async with trio.open_nursery() as nursery:
            for at in arrivals:
                nursery.start_soon(asker, model, at)

    on_a_jumping_clock(main)

    times = worker.called_at
    assert len(times) == len(arrivals)
    assert times == sorted(times)
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            passed = last - first + 1
            may_pass = per_minute * (1 + (times[last] - begin) / 60)
            assert passed <= may_pass + 1e-6


@settings(deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.floats(0, 200), st.integers(1, OUTPUT_ALLOWANCE)), min_size=1, max_size=30
    ),
    minutes_worth=st.integers(1, 5),
)
def test_no_window_passes_more_tokens_than_allowed(
    calls: Sequence[tuple[float, int]], minutes_worth: int
) -> None:
    per_minute = minutes_worth * OUTPUT_ALLOWANCE
    used: list[tuple[float, int]] = []

    async def asker(limiter: Limiter, at: float, tokens: int) -> None:
        await trio.sleep_until(at)
        await with_rate_limit(worker_model(uses=tokens), limiter).answer(REQUEST)
        used.append((trio.current_time(), tokens))

    async def main() -> None:
        limiter = Limiter(tokens_per_minute=per_minute)
        async with trio.open_nursery() as nursery:
            for at, tokens in calls:
                nursery.start_soon(partial(asker, limiter, at, tokens))

    on_a_jumping_clock(main)

    assert sum(tokens for _, tokens in used) == sum(tokens for _, tokens in calls)
    for first, (begin, _) in enumerate(used):
        passed = 0
        for end, tokens in used[first:]:
            passed += tokens
            assert passed <= per_minute * (1 + (end - begin) / 60) + 1e-6


async def test_several_servers_divide_the_limits_of_a_provider() -> None:
    models = [worker_model(seconds=1) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for model in models:
            limiter = Limiter(requests_per_minute=10, in_flight=7, servers=3)
            nursery.start_soon(ask_often, with_rate_limit(model, limiter), 5)

    for model in models:
        assert model.called_at[:3] == [0, 0, 1]
        assert model.called_at[3] >= 20
    with pytest.raises(DefinitionError, match="cannot be divided by 11 servers"):
        Limiter(requests_per_minute=10, servers=11)
    with pytest.raises(DefinitionError, match="servers cannot be 0"):
        Limiter(servers=0)


class CountingCaller:
    """Counts the calls of a task that are described to a limiter, and those that ended."""

    def __init__(self) -> None:
        self.described = 0
        self.ended = 0

    def queued_call(self, size: int) -> Call:
        del size
        self.described += 1
        return Call(RunWork())

    def ended_call(self, size: int, seconds: float) -> None:
        del size, seconds
        self.ended += 1

    def has_siblings(self) -> bool:
        return False


async def test_a_limiter_describes_calls_only_after_a_call_has_waited() -> None:
    caller = CountingCaller()
    request = replace(REQUEST, caller=caller)
    limiter = Limiter(in_flight=2)
    model = with_rate_limit(worker_model(seconds=1), limiter)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(model.answer, request)
    passed_at_once = caller.described
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(model.answer, request)
    after_a_wait = caller.described
    for _ in range(WATCHED_CALLS + 5):
        await model.answer(request)

    assert passed_at_once == 0
    assert after_a_wait == 1
    assert caller.described == caller.ended == 1 + WATCHED_CALLS
    assert limiter.in_flight == limiter.waiting == 0
