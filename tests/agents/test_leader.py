"""Of several calls with the same prefix one leads, and fills the provider's cache."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Queued,
    ScriptedModel,
    TextDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from orchestrator.agents.models.call_order import Call, RunWork
from orchestrator.agents.models.wrappers.hedge import with_hedge
from orchestrator.agents.models.wrappers.leader import LIFETIME, LONGEST_WAIT, with_leader
from orchestrator.agents.models.wrappers.pace import Pace, with_pace
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from tests.caching_provider import ALL, ANTHROPIC, OPENAI, CacheRules, CachingProvider

SHARED = "Context:\n" + "All of it is in the minutes of the meeting.\n" * 2_000


def request(goal: str = "go", shared: str = SHARED, **more: Any) -> ModelRequest:
    first = UserMessage(shared + goal, shared=len(shared))
    fields: dict[str, Any] = {"instructions": "", "transcript": [first], "tools": (), **more}
    return ModelRequest(**fields)


def led(provider: CachingProvider) -> Model:
    return with_leader(provider, needs_marks=provider.rules is ANTHROPIC)


async def ask_all(model: Model, requests: Sequence[ModelRequest]) -> float:
    """Send requests at once, and return the seconds until all are answered."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for each in requests:
            nursery.start_soon(model.answer, each)
    return trio.current_time() - began


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.model)
async def test_fifty_siblings_pay_for_their_prefix_once(rules: CacheRules) -> None:
    """The prefix costs an eighth, and the fan-out takes one time-to-first-token longer."""
    siblings = [request(f"goal {number}") for number in range(50)]
    provider, unled = CachingProvider(rules), CachingProvider(rules)
    uncached = uncached_cost(rules, 50)

    assert await ask_all(led(provider), siblings) == 6
    assert await ask_all(unled, siblings) == 5
    assert uncached / provider.micro_usd >= 8
    assert unled.micro_usd >= uncached * 0.99


def uncached_cost(rules: CacheRules, siblings: int) -> int:
    """Return the cost of siblings that no cache serves."""
    price = rules.price
    tokens = len(SHARED) // 4
    return siblings * price.cost_of(input_tokens=tokens, output_tokens=1)


async def test_a_later_fan_out_reads_the_prefix_at_once_until_it_expires() -> None:
    provider = CachingProvider(ANTHROPIC)
    model = led(provider)
    await ask_all(model, [request("a")])
    assert await ask_all(model, [request("b"), request("c")]) == 5
    await trio.sleep(LIFETIME)
    assert await ask_all(model, [request("d"), request("e")]) == 6

    assert [bool(usage.cached_tokens) for usage in provider.answered] == [
        False,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "alike",
    [
        pytest.param([request("a", "short"), request("b", "short")], id="a short prefix"),
        pytest.param([request("a", SHARED + "1"), request("b", SHARED + "2")], id="two prefixes"),
        pytest.param(
            [request("a", settings=ModelSettings(prompt_caching=False))] * 2, id="no caching"
        ),
        pytest.param(
            [request(transcript=[*request().transcript, AssistantMessage("x"), UserMessage("y")])]
            * 2,
            id="later calls",
        ),
    ],
)
async def test_calls_without_a_common_cached_prefix_do_not_wait(alike: list[ModelRequest]) -> None:
    assert await ask_all(led(CachingProvider(ANTHROPIC)), alike) == 5


async def test_long_instructions_are_a_prefix_where_the_provider_caches_by_itself() -> None:
    provider = CachingProvider(OPENAI)
    requests = [request(goal, "", instructions=SHARED) for goal in ("a", "b", "c")]

    assert await ask_all(led(provider), requests) == 6
    assert [usage.cached_tokens > 20_000 for usage in provider.answered] == [False, True, True]


async def test_the_next_call_leads_if_the_leader_fails() -> None:
    provider = CachingProvider(ANTHROPIC)
    provider.fail_first = 2
    model = led(provider)
    failed: list[str] = []

    async def ask(goal: str) -> None:
        try:
            await model.answer(request(goal))
        except ModelError:
            failed.append(goal)

    async with trio.open_nursery() as nursery:
        for goal in "abcde":
            nursery.start_soon(ask, goal)

    assert len(failed) == 2
    assert provider.asked_at == [0, 0.5, 1, 2, 2]
    assert [bool(usage.cached_tokens) for usage in provider.answered] == [False, True, True]


async def test_the_next_call_leads_if_the_leader_is_cancelled() -> None:
    provider = CachingProvider(ANTHROPIC)
    model = led(provider)

    async def lead() -> None:
        with trio.move_on_after(0.5):
            await model.answer(request("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead)
        await trio.sleep(0.1)
        for goal in "bc":
            nursery.start_soon(model.answer, request(goal))

    assert provider.asked_at == [0, 0.5, 1.5]


async def test_a_silent_leader_holds_calls_for_a_bounded_time() -> None:
    """A model that thinks for minutes has read its prompt long before it writes."""
    provider = CachingProvider(ANTHROPIC, first_token=100, seconds=101)

    assert await ask_all(led(provider), [request("a"), request("b")]) == LONGEST_WAIT + 101


async def test_leaders_that_fail_do_not_prolong_the_wait() -> None:
    provider = CachingProvider(ANTHROPIC, first_token=16, seconds=20)
    provider.fail_first = 10
    model = led(provider)

    async def ask(goal: str) -> None:
        with trio.CancelScope(), pytest.raises(ModelError):
            await model.answer(request(goal))

    async with trio.open_nursery() as nursery:
        for goal in "abcdefghij":
            nursery.start_soon(ask, goal)

    assert max(provider.asked_at) == LONGEST_WAIT


class SlowFirst:
    """A model whose first call takes an hour, and the others a second."""

    name = OPENAI.model

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked_at.append(trio.current_time())
        await trio.sleep(1 if len(self.asked_at) > 1 else 3_600)
        request.tell(TextDelta("so"))
        return AssistantMessage("so", usage=Usage(calls=1))


async def test_a_leader_that_is_repeated_does_not_wait_for_itself() -> None:
    provider = SlowFirst()
    model = with_hedge(with_leader(provider), first_seconds=2)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.answer, request("a"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(model.answer, request("b"))

    # The second call of the leader begins to answer after a second, and its follower is sent.
    assert [it - began for it in provider.asked_at] == [0, 2, 3]


async def test_a_call_that_waits_for_its_leader_says_so() -> None:
    model = led(CachingProvider(ANTHROPIC))
    told: list[ModelEvent] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.answer, request("a"))
        await trio.sleep(0.1)
        nursery.start_soon(model.answer, request("b", tell=told.append))

    assert told == [Queued(True), Queued(False), TextDelta("so")]


async def test_a_leader_that_waits_for_its_provider_does_not_end_the_wait() -> None:
    """The seconds count from the time at which the leader is sent."""
    provider = CachingProvider(ANTHROPIC)
    pace = Pace()
    held = await pace.begin("x", lambda _: None)
    held.refuse(30)
    model = with_leader(with_pace(provider, pace), needs_marks=True)
    await ask_all(model, [request("a"), request("b")])

    assert provider.asked_at == [30, 31]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 8), st.sampled_from(["ok", "fail", "cancel"]))
    )
)
def test_no_call_hangs_and_every_call_that_succeeds_is_answered(
    calls: list[tuple[int, int, str]],
) -> None:
    """Calls of four prefixes arrive, fail and are cancelled at any time."""
    answered: list[int] = []

    class Provider:
        name = "provider"

        async def answer(self, asked: ModelRequest) -> AssistantMessage:
            await trio.sleep(2)
            if asked.transcript[0].text.endswith("fail"):
                raise ModelError("broken")
            return AssistantMessage("so")

    async def ask(model: Model, number: int, prefix: int, at: int, end: str) -> None:
        await trio.sleep(at)
        with trio.move_on_after(3 if end == "cancel" else 1_000):
            try:
                await model.answer(request(end, f"{prefix}{SHARED}"))
            except ModelError:
                assert end == "fail"
            answered.append(number)

    async def main() -> None:
        model = with_leader(Provider())
        with trio.fail_after(200):
            async with trio.open_nursery() as nursery:
                for number, (prefix, at, end) in enumerate(calls):
                    nursery.start_soon(partial(ask, model, number, prefix, at, end))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert {number for number, it in enumerate(calls) if it[2] != "cancel"} <= {*answered}


async def test_delegated_siblings_share_their_context() -> None:
    """The whole way: `delegate_task` with a context, its children, and the provider's bill."""
    provider = CachingProvider(ANTHROPIC)
    call = ToolCall(
        "delegate_task",
        {
            "context": SHARED[:8_000],
            "tasks": [{"goal": f"goal {it}"} for it in range(20)],
            "background": False,
        },
    )
    worker = Agent("worker", model=led(provider))
    lead = Agent("lead", model=ScriptedModel([call, "done"]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(lead, "all")

    cached = [usage.cached_tokens > 1_900 for usage in provider.answered]
    assert cached == [False] + [True] * 19
    assert sum(usage.cache_written_tokens > 0 for usage in provider.answered) == 1


async def test_calls_with_equal_prefixes_stand_next_to_each_other_in_the_queue() -> None:
    """One run, two contexts: the limiter sends the calls of one context first, then the others."""
    asked: list[str] = []

    class Provider:
        name = "provider"

        async def answer(self, asked_for: ModelRequest) -> AssistantMessage:
            asked.append(asked_for.transcript[0].text[:3])
            await trio.sleep(1)
            return AssistantMessage("so")

    class OneRun:
        run = RunWork("run")

        def queued_call(self, size: int) -> Call:
            del size
            return Call(self.run)

        def ended_call(self, size: int, seconds: float) -> None:
            del size, seconds

        def has_siblings(self) -> bool:
            return True

    caller = OneRun()
    model = with_rate_limit(Provider(), Limiter(in_flight=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.answer, request(shared="first"))
        await trio.sleep(0.5)
        for _ in range(3):
            for shared in ("one", "two"):
                nursery.start_soon(model.answer, request(shared=shared, caller=caller))

    assert asked[0] == "fir"
    assert asked[1:] in (["one"] * 3 + ["two"] * 3, ["two"] * 3 + ["one"] * 3)
