"""All callers of a model slow down together when its provider refuses requests."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator import Machine, Models, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Queued,
    TextDelta,
    Usage,
    UserMessage,
)
from orchestrator.agents.models.call_order import Allowance, AllowedUnit
from orchestrator.agents.models.http.allowance import read_allowances
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.pace import (
    BASE_SECONDS,
    FEWEST_BY_LATENCY,
    FIRST_CALLS,
    HOPE_SECONDS,
    IDLE_SECONDS,
    REFUSAL_SECONDS,
    Pace,
    with_pace,
)
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.kernel.execution.model_resolver import ModelResolver
from tests.fake_provider import Raw, Reply, Say, chat_plain, encode, open_provider

REQUEST = ModelRequest(instructions="", transcript=(), tools=())


class Provider:
    """Answers after a while, or refuses, by a rule of the time and of what it has accepted."""

    name = "provider"

    def __init__(
        self,
        refuses: Callable[["Provider"], float | bool],
        *,
        first_sign: float = 0.5,
        seconds: float = 2,
        has_retry_after: bool = True,
        streams: bool = True,
    ) -> None:
        self.asked_at: list[float] = []
        self.asked_by: list[str] = []
        self.refused = 0
        self.accepted_at: list[float] = []
        self._refuses = refuses
        self._first_sign = first_sign
        self._seconds = seconds
        self._has_retry_after = has_retry_after
        self._streams = streams

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked_at.append(trio.current_time())
        self.asked_by.append(request.instructions)
        await trio.sleep(0.05)
        if wait := self._refuses(self):
            self.refused += 1
            raise ModelError(
                "slow down",
                kind=Failure.RATE_LIMIT,
                retry_after=float(wait) if self._has_retry_after else None,
            )
        self.accepted_at.append(trio.current_time())
        await trio.sleep(self._first_sign)
        if self._streams:
            request.tell(TextDelta("so"))
        await trio.sleep(self._seconds)
        return AssistantMessage("so", usage=Usage(calls=1))


def storm(seconds: float) -> Callable[[Provider], float]:
    return lambda _: max(0.0, seconds - trio.current_time())


async def ask_together(model: Model, times: int) -> int:
    """Return how many of so many calls were answered."""
    answered = 0

    async def ask() -> None:
        nonlocal answered
        try:
            await model.answer(REQUEST)
        except ModelError:
            return
        answered += 1

    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(ask)
    return answered


def asked(model: Model, pace: Pace | None = None) -> Model:
    return with_retries(with_pace(model, pace or Pace()), jitter=random.Random(7))


@pytest.mark.parametrize("has_retry_after", [True, False])
async def test_a_storm_costs_few_requests_and_then_all_succeed(*, has_retry_after: bool) -> None:
    """Five hundred callers would make two thousand requests for five hundred failures."""
    provider = Provider(storm(10), has_retry_after=has_retry_after)

    assert await ask_together(asked(provider), 500) == 500

    assert provider.refused <= 50
    assert trio.current_time() < 60


async def test_a_short_storm_that_names_no_time_ends_soon() -> None:
    provider = Provider(storm(1), has_retry_after=False)

    assert await ask_together(asked(provider), 100) == 100

    assert provider.refused <= FIRST_CALLS + 2
    assert trio.current_time() < 15


async def test_answers_that_are_not_streamed_let_more_calls_pass_after_a_storm() -> None:
    provider = Provider(storm(1), seconds=0, streams=False)

    assert await ask_together(asked(provider), 100) == 100

    # One call after the other would take 55 seconds.
    assert trio.current_time() < 15


async def test_the_end_of_a_rate_limit_causes_no_stampede() -> None:
    provider = Provider(storm(10))

    await ask_together(asked(provider), 200)

    after = [at for at in provider.asked_at if at >= 10]
    together = [sum(at <= other < at + 0.5 for other in after) for at in after]
    assert together[0] == 1
    assert max(together) <= 2 * FIRST_CALLS


async def test_a_provider_that_refuses_no_call_soon_gets_all_of_them() -> None:
    provider = Provider(lambda _: False, seconds=100)

    assert await ask_together(asked(provider), 200) == 200

    assert provider.asked_at[FIRST_CALLS - 1] == 0
    assert max(provider.asked_at) < 3 * 0.6


async def test_a_slow_model_delays_no_other_call() -> None:
    """A call that is not refused soon counts as accepted before its answer begins."""
    provider = Provider(lambda _: False, first_sign=300)

    assert await ask_together(asked(provider), 200) == 200

    assert max(provider.asked_at) <= 3 * REFUSAL_SECONDS


async def test_a_limit_of_the_provider_is_found_and_kept() -> None:
    def too_many(provider: Provider) -> float:
        now = trio.current_time()
        recent = [at for at in provider.accepted_at if at > now - 60]
        return max(0.1, recent[0] + 60 - now) if len(recent) >= 60 else 0

    provider = Provider(too_many)

    assert await ask_together(asked(provider), 150) == 150

    assert provider.refused < 100
    assert trio.current_time() < 60 * 3


async def test_waiting_calls_pass_in_the_order_of_their_arrival() -> None:
    provider = Provider(storm(5))
    model = asked(provider, Pace(first_calls=1))

    async with trio.open_nursery() as nursery:
        for number in "123456":
            request = replace(REQUEST, instructions=number)
            nursery.start_soon(model.answer, request)
            await trio.sleep(0.01)

    # The first one is refused, and comes back behind those that waited meanwhile.
    assert "".join(provider.asked_by) == "1234561"


async def test_a_waiting_call_emits_events() -> None:
    emitted: list[ModelEvent] = []
    provider = Provider(storm(5))
    pace = Pace(first_calls=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked(provider, pace).answer, REQUEST)
        await trio.sleep(1)
        request = ModelRequest(instructions="", transcript=(), tools=(), tell=emitted.append)
        await asked(provider, pace).answer(request)

    assert emitted == [Queued(True), Queued(False), TextDelta("so")]


async def test_a_cancelled_wait_and_a_cancelled_trial_delay_no_other_call() -> None:
    provider = Provider(storm(5), first_sign=100)
    pace = Pace(first_calls=1)
    model = with_pace(provider, pace)
    with pytest.raises(ModelError):
        await model.answer(REQUEST)
    with trio.move_on_after(2) as impatient:
        # Its deadline is not known to the wait.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.sleep, 1))
            await trio.sleep(3)
            await model.answer(REQUEST)
    assert impatient.cancelled_caught
    with trio.move_on_after(10) as trial:
        await model.answer(REQUEST)
    assert trial.cancelled_caught
    assert pace.waiting == 0

    quick = with_pace(Provider(lambda _: False), pace)
    with trio.fail_after(10):
        await quick.answer(REQUEST)


@pytest.mark.parametrize(("wait", "seconds"), [(3600, None), (60, 30)])
async def test_a_hold_that_is_too_long_fails_at_once_without_a_request(
    wait: float, seconds: float | None
) -> None:
    """So a fallback can continue, and a task does not wait past its deadline."""
    provider = Provider(lambda _: wait)
    pace = Pace()
    with pytest.raises(ModelError):
        await with_pace(provider, pace).answer(REQUEST)

    with trio.move_on_after(seconds or 1e9), pytest.raises(ModelError) as caught:
        await with_pace(provider, pace).answer(REQUEST)

    assert caught.value.kind is Failure.RATE_LIMIT
    assert caught.value.usage == Usage()
    assert len(provider.asked_at) == 1
    assert trio.current_time() < 1
    other = Provider(lambda _: False)
    model = with_fallback(asked(provider, pace), asked(other))
    if seconds is None:
        assert (await model.answer(REQUEST)).text == "so"


@pytest.mark.parametrize("has_retry_after", [True, False])
async def test_a_provider_that_refuses_for_ever_is_left_after_a_minute(
    *, has_retry_after: bool
) -> None:
    """For another model, if there is one. A few go on trying, and cost few requests."""
    provider = Provider(lambda _: 20, has_retry_after=has_retry_after)
    other = Provider(lambda _: False)
    model = asked(provider)

    assert await ask_together(model, 100) == 0
    assert trio.current_time() < 3 * HOPE_SECONDS
    assert len(provider.asked_at) < FIRST_CALLS + 20

    assert await ask_together(with_fallback(model, asked(other)), 100) == 100


async def test_a_failure_without_a_rate_limit_slows_no_other_call() -> None:
    """A request that the server cannot digest is no reason to slow down the others."""

    class Failing(Provider):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.sleep(0.1)
            raise ModelError("oops", kind=Failure.OVERLOADED)

    pace = Pace()
    with pytest.raises(ModelError):
        await with_pace(Failing(lambda _: False), pace).answer(REQUEST)

    told: list[ModelEvent] = []
    await pace.begin("model", told.append)
    assert told == []


async def test_a_long_silence_resets_the_pace() -> None:
    provider = Provider(lambda _: False, seconds=0)
    pace = Pace()
    await ask_together(asked(provider, pace), 100)
    await trio.sleep(IDLE_SECONDS + 1)
    begun = len(provider.asked_at)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_together, asked(provider, pace), 100)
        await trio.sleep(0.01)
        assert len(provider.asked_at) == begun + FIRST_CALLS


async def test_after_a_long_silence_one_refusal_is_the_first_again() -> None:
    """An hour idle is no hour of refusals: the others wait half a second, and are not refused."""
    refusals = iter([True, True, True, False, True])
    provider = Provider(lambda _: next(refusals, False), seconds=0, has_retry_after=False)
    model = asked(provider)
    assert await ask_together(model, 1) == 1
    assert provider.refused == 3
    await trio.sleep(3600)
    begun = trio.current_time()

    assert await ask_together(model, 1 + FIRST_CALLS) == 1 + FIRST_CALLS

    assert provider.refused == 4
    later = [at - begun for at in provider.asked_at[4:] if at > begun]
    assert later[0] == pytest.approx(0.05 + BASE_SECONDS)


async def test_a_limiter_and_a_pace_go_together() -> None:
    provider = Provider(storm(10))
    model = asked(with_rate_limit(provider, Limiter(requests_per_minute=600, in_flight=40)))

    assert await ask_together(model, 100) == 100

    assert provider.refused <= 50


async def test_a_call_that_waited_for_the_limiter_keeps_to_a_refusal_meanwhile() -> None:
    provider = Provider(lambda it: 10.0 if len(it.asked_at) == 1 else False, seconds=5)
    limiters = {"openai": Limiter(in_flight=1)}
    models = ModelResolver({}, Models(limiters=limiters), connect=lambda _: provider)
    model = models.model_of(Agent("a", model="openai:gpt-5"))

    assert await ask_together(model, 2) == 2

    first, *others = provider.asked_at
    assert min(others) >= first + 10


DATE = "Wed, 18 Nov 2026 07:00:00 GMT"


@pytest.mark.parametrize("unit", [AllowedUnit.REQUESTS, AllowedUnit.TOKENS])
@pytest.mark.parametrize(
    ("headers", "allowance"),
    [
        (("60", "0", "6m0s"), (60, 0, 1 / 6)),
        (("60", "59", "20ms"), (60, 59, 50)),
        (("60", "60", "1s"), None),
        (("60", "1", "soon"), None),
        (("100", "0", "8760h"), None),
        (("100", "99", "9" * 60 + "s"), None),
        (("60", "1", "1" * 65 + "s"), None),
        (("60", "-1", "1s"), None),
        (("1" * 10, "1", "1s"), None),
        (("many", "1", "1s"), None),
    ],
)
def test_the_headers_of_openai_name_the_amounts_that_are_left(
    headers: tuple[str, str, str], allowance: tuple[int, int, float] | None, unit: AllowedUnit
) -> None:
    names = ("limit", "remaining", "reset")
    named = {f"x-ratelimit-{name}-{unit}": it for name, it in zip(names, headers, strict=True)}

    known = [] if allowance is None else [Allowance(unit, *allowance)]
    assert [*read_allowances(named)] == known


@pytest.mark.parametrize("unit", AllowedUnit)
def test_the_headers_of_anthropic_name_the_amounts_that_are_left(unit: AllowedUnit) -> None:
    start = f"anthropic-ratelimit-{unit.replace('_', '-')}"
    headers = {
        f"{start}-limit": "50",
        f"{start}-remaining": "20",
        f"{start}-reset": "2026-11-18T07:01:00Z",
        "date": DATE,
    }

    assert [*read_allowances(headers)] == [Allowance(unit, 50, 20, 0.5)]
    assert [*read_allowances({**headers, "date": ""})] == []


async def test_calls_keep_to_the_requests_that_the_headers_allow() -> None:
    """A bucket of ten, one more each second: none of forty calls is refused."""

    class Bucket(Provider):
        level, at = 10.0, 0.0

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            now = trio.current_time()
            self.level, self.at = min(10.0, self.level + now - self.at), now
            is_refused = self.level < 1
            self.level -= not is_refused
            self._refuses = lambda _: is_refused
            assert request.call is not None
            assert request.call.note_allowance is not None
            request.call.note_allowance(Allowance(AllowedUnit.REQUESTS, 10, int(self.level), 1.0))
            return await super().answer(request)

    provider = Bucket(lambda _: False)

    assert await ask_together(asked(provider, Pace(first_calls=4)), 40) == 40

    assert provider.refused == 0
    assert trio.current_time() < 40


class TokenBucket(Provider):
    """Allows 4,000 tokens, and 1,000 more each second."""

    level, at = 4_000.0, 0.0

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        now = trio.current_time()
        self.level, self.at = min(4_000.0, self.level + 1_000 * (now - self.at)), now
        is_refused = self.level < 1_000
        self.level -= 0 if is_refused else 1_000
        self._refuses = lambda _: is_refused
        assert request.call is not None
        assert request.call.note_allowance is not None
        unit = AllowedUnit.INPUT_TOKENS
        request.call.note_allowance(Allowance(unit, 4_000, int(self.level), 1_000.0))
        return await super().answer(request)


async def test_calls_keep_to_the_tokens_that_the_headers_allow() -> None:
    provider = TokenBucket(lambda _: False)

    assert await ask_together(asked(provider, Pace(first_calls=2)), 20) == 20

    assert provider.refused == 0
    assert 15 < trio.current_time() < 30


async def test_a_header_that_names_a_far_time_costs_one_try_a_minute() -> None:
    """The provider decides: without it a wrong header would hold all calls for years."""

    class Wrong(Provider):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            assert request.call is not None
            assert request.call.note_allowance is not None
            request.call.note_allowance(Allowance(AllowedUnit.REQUESTS, 10, 0, 1e-9))
            return await super().answer(request)

    provider = Wrong(lambda _: False)
    assert await ask_together(asked(provider, Pace(first_calls=1)), 3) == 3

    assert [round(it) for it in provider.asked_at] == [0, 60, 120]


class Slowing:
    """Begins its answers after a number of seconds, which a test changes."""

    name = "slowing"

    def __init__(self) -> None:
        self.seconds = 0.1
        self.unanswered = self.most = 0

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.unanswered += 1
        self.most = max(self.most, self.unanswered)
        await trio.sleep(self.seconds)
        self.unanswered -= 1
        request.tell(TextDelta("so"))
        return AssistantMessage("so")


async def test_fewer_calls_are_unanswered_when_responses_begin_much_later() -> None:
    provider, pace = Slowing(), Pace(first_calls=32)
    model = with_pace(provider, pace)
    assert await ask_together(model, 200) == 200
    at_first = provider.most

    provider.seconds, provider.most = 1.0, 0
    assert await ask_together(model, 200) == 200
    provider.most = 0
    assert await ask_together(model, 20) == 20

    assert at_first > 32
    assert FEWEST_BY_LATENCY <= provider.most < 20


async def test_another_model_that_is_slow_from_the_start_is_not_held_back() -> None:
    fast, slow, pace = Slowing(), Slowing(), Pace(first_calls=32)
    slow.name, slow.seconds = "slow", 1.5
    assert await ask_together(with_pace(fast, pace), 100) == 100

    assert await ask_together(with_pace(slow, pace), 100) == 100

    assert slow.most > 32


ASKED = ModelRequest(instructions="", transcript=[UserMessage("go")], tools=())


@pytest.mark.realtime
async def test_the_token_headers_of_a_real_response_hold_the_next_call_back() -> None:
    headers = {
        "content-type": "application/json",
        "x-ratelimit-limit-tokens": "4000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "4s",
    }
    async with open_provider(Raw(encode(chat_plain(Say(text="ok"))), headers=headers)) as provider:
        direct = OpenAIModel("m", key="k", base_url=provider.url)
        model = with_pace(direct, Pace())
        begun = trio.current_time()
        await model.answer(ASKED)
        await model.answer(ASKED)
        seconds = trio.current_time() - begun
        await direct.aclose()

    # About 1,000 tokens of 4,000: a fourth of the time.
    assert seconds >= 0.99
    assert len(provider.heard) == 2


@settings(max_examples=15, deadline=None)
@given(
    callers=st.integers(1, 30),
    first=st.integers(1, 40),
    length=st.floats(0, 40),
    has_retry_after=st.booleans(),
    leaving=st.lists(st.floats(0, 60), max_size=10),
)
def test_every_waiting_caller_is_served(
    callers: int, first: int, length: float, leaving: list[float], *, has_retry_after: bool
) -> None:
    async def main() -> None:
        provider = Provider(storm(length), has_retry_after=has_retry_after)
        pace = Pace(first_calls=first)
        model = with_retries(with_pace(provider, pace), attempts=50, jitter=random.Random(1))

        async def leave(after: float) -> None:
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(_in_scope, scope, model))
                await trio.sleep(after)
                scope.cancel()

        async with trio.open_nursery() as nursery:
            for after in leaving:
                nursery.start_soon(leave, after)
            assert await ask_together(model, callers) == callers
        assert pace.waiting == 0
        told: list[ModelEvent] = []
        await pace.begin("model", told.append)
        assert told == []

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def _in_scope(scope: trio.CancelScope, model: Model) -> None:
    with scope:
        await model.answer(REQUEST)


@pytest.mark.realtime
async def test_children_in_a_storm_over_http_all_succeed() -> None:
    """Real sockets: the server refuses for half a second, and then answers."""
    refusal = Raw(b"slow down", 429, {"retry-after": "0.5"})
    async with open_provider(Say(text="hello")) as server:
        opened = trio.current_time()

        def reply() -> Reply:
            is_storm = trio.current_time() < opened + 0.5
            return refusal if is_storm else Say(text="hello")

        server.choose = reply
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        agent = Agent("child", model="openai:busy")
        answers: list[str] = []
        async with open_orchestrator(":memory:", machine=Machine(environ=environ)) as orchestrator:

            async def ask() -> None:
                answers.append((await orchestrator.run(agent, "go")).output)

            async with trio.open_nursery() as nursery:
                for _ in range(60):
                    nursery.start_soon(ask)

    assert answers == ["hello"] * 60
    assert len(server.heard) <= 60 + 40
