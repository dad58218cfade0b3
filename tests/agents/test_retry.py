"""Temporary failures are retried, in time and in sight; other errors are raised unchanged."""

import random
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    ScriptedModel,
    TextDelta,
)
from orchestrator.agents.models.wrappers.retry import RETRACTED, with_retries
from orchestrator.testing import StreamingModel

HEALS = [kind for kind in Failure if kind.is_transient]
STAYS = [kind for kind in Failure if not kind.is_transient]


class Longest(random.Random):
    """Draws the longest wait there may be."""

    def uniform(self, a: float, b: float) -> float:
        return b


def breaks_off(*events: ModelEvent, partial: str = "") -> StreamingModel:
    """Return a model that begins to answer and fails; the second time it succeeds."""
    cut = ModelError("cut", kind=Failure.CONNECTION, partial=partial)
    return StreamingModel([[*events, cut], [AssistantMessage("whole")]])


class Told(list[ModelEvent]):
    """The events of a model, in order."""

    @property
    def waits(self) -> list[float]:
        return [event.seconds for event in self if isinstance(event, Retrying)]


def overloaded(retry_after: float | None = None) -> ModelError:
    return ModelError("busy", kind=Failure.OVERLOADED, retry_after=retry_after)


async def ask(model: Model, emitted: list[ModelEvent] | None = None) -> AssistantMessage:
    tell = (emitted if emitted is not None else []).append
    return await model.answer(ModelRequest(instructions="", transcript=(), tools=(), tell=tell))


def test_a_retrying_model_keeps_the_name_of_its_model() -> None:
    assert with_retries(ScriptedModel([])).name == "scripted"


async def test_an_answer_at_once_is_just_passed_on() -> None:
    emitted = Told()

    assert (await ask(with_retries(ScriptedModel(["42"])), emitted)).text == "42"
    assert emitted == [TextDelta("42")]
    assert trio.current_time() == 0


@pytest.mark.parametrize("kind", HEALS)
async def test_a_transient_failure_is_retried(kind: Failure) -> None:
    model = with_retries(ScriptedModel([ModelError("no", kind=kind), "42"]))

    assert (await ask(model)).text == "42"


@pytest.mark.parametrize("kind", STAYS)
async def test_a_permanent_failure_is_raised_at_once(kind: Failure) -> None:
    error = ModelError("no", kind=kind)
    emitted = Told()

    with pytest.raises(ModelError) as caught:
        await ask(with_retries(ScriptedModel([error, "42"])), emitted)

    assert caught.value is error
    assert emitted == []
    assert trio.current_time() == 0


async def test_an_error_of_ours_is_not_the_providers() -> None:
    with pytest.raises(ZeroDivisionError):
        await ask(with_retries(ScriptedModel([ZeroDivisionError(), "42"])))


async def test_the_last_error_is_raised_unchanged() -> None:
    errors = [overloaded() for _ in range(4)]
    emitted = Told()

    with pytest.raises(ModelError) as caught:
        await ask(with_retries(ScriptedModel([*errors, "42"])), emitted)

    assert caught.value is errors[-1]
    assert caught.value.__context__ is None
    assert not hasattr(caught.value, "__notes__")
    assert len(emitted.waits) == 3


async def test_the_longest_wait_doubles_up_to_a_limit() -> None:
    failing = ScriptedModel.always(overloaded())
    emitted = Told()

    with pytest.raises(ModelError):
        await ask(with_retries(failing, attempts=9, jitter=Longest()), emitted)

    assert emitted.waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert trio.current_time() == sum(emitted.waits)


async def test_many_attempts_do_not_overflow() -> None:
    failing = ScriptedModel.always(overloaded())
    emitted = Told()

    with pytest.raises(ModelError):
        await ask(with_retries(failing, attempts=2000, max_seconds=1), emitted)

    assert len(emitted.waits) == 1999
    assert max(emitted.waits) <= 1


@settings(deadline=None)
@given(seed=st.integers(), attempts=st.integers(1, 8), base=st.floats(0, 10))
def test_a_wait_is_random_up_to_its_longest(seed: int, attempts: int, base: float) -> None:
    emitted = Told()

    async def main() -> None:
        failing = ScriptedModel.always(overloaded())
        jitter = random.Random(seed)
        model = with_retries(failing, attempts=attempts, base_seconds=base, jitter=jitter)
        with pytest.raises(ModelError):
            await ask(model, emitted)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert len(emitted.waits) == attempts - 1
    for failures, seconds in enumerate(emitted.waits):
        assert 0 <= seconds <= min(30, base * 2**failures)


async def test_a_retry_waits_at_least_as_long_as_the_provider_asks() -> None:
    """And a little more, since the provider asks all clients for the same wait."""
    emitted = Told()
    model = ScriptedModel([overloaded(retry_after=100), "42"])

    await ask(with_retries(model, jitter=Longest()), emitted)

    assert emitted.waits == [100.5]
    assert trio.current_time() == 100.5


async def test_an_event_reports_the_failure_before_the_wait_begins() -> None:
    heard_at: list[float] = []

    def tell(event: ModelEvent) -> None:
        if isinstance(event, Retrying):
            heard_at.append(trio.current_time())
            assert (event.kind, event.error) == (Failure.OVERLOADED, "busy")

    model = with_retries(ScriptedModel([overloaded(7), "42"]))
    await model.answer(ModelRequest(instructions="", transcript=(), tools=(), tell=tell))

    assert heard_at == [0]
    assert trio.current_time() >= 7


@pytest.mark.parametrize("retry_after", [60, 61, 3600])
async def test_a_retry_does_not_sleep_past_the_deadline(retry_after: float) -> None:
    error = overloaded(retry_after)
    emitted = Told()

    with trio.fail_after(60), pytest.raises(ModelError) as caught:
        await ask(with_retries(ScriptedModel([error, "42"])), emitted)

    assert caught.value is error
    assert caught.value.__context__ is None
    assert trio.current_time() == 0
    assert emitted == []


async def test_a_wait_that_ends_before_the_deadline_is_waited() -> None:
    with trio.fail_after(60):
        answer = await ask(with_retries(ScriptedModel([overloaded(59), "42"])))

    assert answer.text == "42"


async def test_a_wait_can_be_cancelled() -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, with_retries(ScriptedModel([overloaded(100), "42"])))
            await trio.sleep(5)
            scope.cancel()

    assert scope.cancelled_caught
    assert trio.current_time() == 5


async def test_a_cancelled_retry_is_cancelled_when_the_model_fails() -> None:
    emitted = Told()
    with trio.CancelScope() as scope:

        def cancel_and_fail(_: Any) -> Exception:
            scope.cancel()
            return overloaded()

        await ask(with_retries(ScriptedModel([cancel_and_fail, "42"])), emitted)

    assert scope.cancelled_caught
    assert emitted == []


@pytest.mark.parametrize(
    "model",
    [
        breaks_off(TextDelta("ha"), partial="ha"),
        breaks_off(TextDelta("ha")),
        breaks_off(ReasoningDelta("hm")),
        breaks_off(partial="ha"),
    ],
)
async def test_the_text_of_a_broken_stream_is_retracted(model: StreamingModel) -> None:
    emitted = Told()

    assert (await ask(with_retries(model), emitted)).text == "whole"
    event = emitted[-1]
    assert isinstance(event, Retrying)
    assert event.error == "cut" + RETRACTED


async def test_a_retracted_text_is_not_retracted_twice() -> None:
    model = breaks_off(TextDelta("ha"), Retrying(Failure.TIMEOUT, "slow", 1))
    emitted = Told()

    await ask(with_retries(model), emitted)

    event = emitted[-1]
    assert isinstance(event, Retrying)
    assert event.error == "cut"


async def test_a_model_that_is_asked_once_is_not_asked_again() -> None:
    with pytest.raises(ModelError):
        await ask(with_retries(ScriptedModel([overloaded(), "42"]), attempts=1))


def test_a_model_must_be_asked_at_least_once() -> None:
    with pytest.raises(DefinitionError, match="scripted must be asked at least once"):
        with_retries(ScriptedModel([]), attempts=0)


async def test_answering_is_a_checkpoint() -> None:
    with trio.testing.assert_checkpoints():
        await ask(with_retries(ScriptedModel(["42"])))


async def test_a_retry_does_not_wait_for_a_day() -> None:
    """A day's wait is a failure for now: a fallback may do better."""
    with pytest.raises(ModelError):
        await ask(with_retries(ScriptedModel([overloaded(86_400), "42"])))

    assert trio.current_time() == 0
