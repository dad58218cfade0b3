"""When one model fails, the next is called, and the answer names its model."""

import pytest

from orchestrator.agents import (
    AssistantMessage,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ScriptedModel,
    Switched,
    TextDelta,
)
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.retry import RETRACTED
from orchestrator.testing import StreamingModel

STAYS = [Failure.BAD_REQUEST, Failure.REFUSED, Failure.FILTERED, Failure.CONTEXT_TOO_LONG]
MOVES = [kind for kind in Failure if kind not in STAYS]


def named(name: str, answer: str | Failure, *, signs: bool = True) -> StreamingModel:
    """Return a model that always answers alike, or fails, under a name."""
    if isinstance(answer, Failure):
        error = ModelError(f"{name} is {answer.value}", kind=answer)
        return StreamingModel.always(error, name=name)
    message = AssistantMessage(answer, model=name if signs else "")
    return StreamingModel.always(TextDelta(answer), message, name=name)


async def ask(model: Model, events: list[ModelEvent] | None = None) -> AssistantMessage:
    tell = (events if events is not None else []).append
    return await model.answer(ModelRequest(instructions="", transcript=(), tools=(), tell=tell))


def test_a_fallback_is_named_after_all_its_models() -> None:
    model = with_fallback(named("openai:a", ""), named("anthropic:b", ""))

    assert model.name == "openai:a | anthropic:b"
    assert with_fallback(named("openai:a", "")).name == "openai:a"


async def test_the_first_answer_is_the_answer() -> None:
    other = named("b", "two")

    answer = await ask(with_fallback(named("a", "one"), other))

    assert (answer.text, answer.model, other.calls) == ("one", "a", 0)


@pytest.mark.parametrize("kind", MOVES)
async def test_most_failures_switch_to_the_next_model(kind: Failure) -> None:
    events: list[ModelEvent] = []

    answer = await ask(with_fallback(named("a", kind), named("b", "two")), events)

    assert (answer.text, answer.model) == ("two", "b")
    assert events == [Switched(kind, f"a is {kind.value}", "b"), TextDelta("two")]


@pytest.mark.parametrize("kind", STAYS)
async def test_a_bad_request_does_not_fall_back_to_another_model(kind: Failure) -> None:
    other = named("b", "two")
    events: list[ModelEvent] = []

    with pytest.raises(ModelError, match=f"a is {kind.value}"):
        await ask(with_fallback(named("a", kind), other), events)

    assert (other.calls, events) == (0, [])


async def test_a_caller_may_choose_when_to_switch() -> None:
    picky = named("a", Failure.REFUSED)

    answer = await ask(with_fallback(picky, named("b", "two"), on=[Failure.REFUSED]))

    assert answer.model == "b"
    with pytest.raises(ModelError, match="a is timeout"):
        await ask(
            with_fallback(named("a", Failure.TIMEOUT), named("b", "two"), on=[Failure.REFUSED])
        )


async def test_a_caller_may_forbid_switching() -> None:
    with pytest.raises(ModelError, match="a is timeout"):
        await ask(with_fallback(named("a", Failure.TIMEOUT), named("b", "two"), on=()))


async def test_the_last_error_lists_the_failures_of_all_models() -> None:
    model = with_fallback(
        named("a", Failure.TIMEOUT), named("b", Failure.AUTH), named("c", Failure.QUOTA)
    )
    events: list[ModelEvent] = []

    with pytest.raises(ModelError) as caught:
        await ask(model, events)

    assert str(caught.value) == "3 models failed: a is timeout; b is auth; c is quota"
    assert caught.value.kind is Failure.QUOTA
    assert caught.value.is_transient, "a retry may heal the first one"
    assert [event.model for event in events if isinstance(event, Switched)] == ["b", "c"]


async def test_an_error_that_stops_the_fallback_lists_earlier_failures() -> None:
    model = with_fallback(
        named("a", Failure.TIMEOUT), named("b", Failure.REFUSED), named("c", "three")
    )

    with pytest.raises(ModelError, match="a is timeout; b is refused"):
        await ask(model)


async def test_an_answer_without_a_model_name_gets_one() -> None:
    unsigned = named("b", "two", signs=False)

    assert (await ask(with_fallback(named("a", Failure.AUTH), unsigned))).model == "b"
    assert (await ask(with_fallback(unsigned, named("a", "one")))).model == "b"


async def test_an_answer_names_the_inner_model_that_gave_it() -> None:
    inner = with_fallback(named("b", Failure.AUTH), named("c", "three"))

    assert (await ask(with_fallback(named("a", Failure.AUTH), inner))).model == "c"


async def test_the_text_of_a_broken_stream_is_retracted() -> None:
    cut = ModelError("cut", kind=Failure.CONNECTION)
    breaks_off = StreamingModel.always("ha", cut, name="a")
    events: list[ModelEvent] = []
    await ask(with_fallback(breaks_off, named("b", "two")), events)

    assert events[1] == Switched(Failure.CONNECTION, "cut" + RETRACTED, "b")


async def test_an_error_of_ours_is_not_the_providers() -> None:
    other = named("b", "two")

    with pytest.raises(ZeroDivisionError):
        await ask(with_fallback(ScriptedModel([ZeroDivisionError()]), other))

    assert other.calls == 0
