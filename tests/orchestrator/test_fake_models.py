"""The fake models that we ship for tests: each does one thing, and they nest."""

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    ModelError,
    ModelEvent,
    ModelRequest,
    Price,
    ReasoningDelta,
    ScriptedModel,
    ScriptExhaustedError,
    TextDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from orchestrator.testing import CountingModel, FailingModel, GatedModel, SpyModel, StreamingModel


def request(*texts: str) -> ModelRequest:
    transcript = [UserMessage(text) for text in texts or ("go",)]
    return ModelRequest(instructions="", transcript=transcript, tools=())


async def test_a_gated_model_answers_when_it_is_released() -> None:
    model = GatedModel(lambda transcript: transcript[0].text)
    answers: list[str] = []

    async def ask(text: str) -> None:
        answers.append((await model.answer(request(text))).text)

    async with trio.open_nursery() as nursery:
        for count, text in enumerate("abc", start=1):
            nursery.start_soon(ask, text)
            await model.wait_called(count)
        assert model.calls == 3
        assert answers == []
        model.release(1)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["a"]
        model.release()
    assert sorted(answers) == ["a", "b", "c"]
    assert (await model.answer(request("d"))).text == "d"


async def test_a_spy_keeps_each_request_as_it_was() -> None:
    model = SpyModel(["one", "two"])
    asked = request("hello")
    transcript = [*asked.transcript]
    asked = ModelRequest(instructions="be kind", transcript=transcript, tools=())

    answer = await model.answer(asked)
    transcript += [answer, UserMessage("and now?")]
    await model.answer(replace(asked, transcript=transcript))

    assert model.texts == [["hello"], ["hello", "one", "and now?"]]
    assert model.requests[0].instructions == "be kind"
    with pytest.raises(ScriptExhaustedError):
        await model.answer(asked)


async def test_a_failing_model_raises_its_faults_in_order() -> None:
    model = FailingModel([OSError("down"), None, 429], "fine", retry_after=7)

    with pytest.raises(OSError, match="down"):
        await model.answer(request())
    assert (await model.answer(request())).text == "fine"
    with pytest.raises(ModelError) as failed:
        await model.answer(request())
    assert (failed.value.kind, failed.value.retry_after) == (Failure.RATE_LIMIT, 7)
    assert (await model.answer(request())).text == "fine"
    with pytest.raises(DefinitionError, match="is not a fault"):
        FailingModel(["tea"])  # type: ignore[list-item]


async def test_a_streaming_model_emits_its_pieces() -> None:
    done = AssistantMessage("as it is")
    gate = trio.Event()
    model = StreamingModel(
        [
            [ReasoningDelta("hm"), "I ", 3, "look.", ToolCall("look")],
            ["half", ModelError("gone")],
            [gate, done],
        ],
        usage=Usage(calls=1, output_tokens=5),
    )
    events: list[ModelEvent] = []
    asked = ModelRequest(instructions="", transcript=(), tools=(), tell=events.append)

    started = trio.current_time()
    answer = await model.answer(asked)
    assert trio.current_time() - started == 3
    assert answer.text == "I look."
    assert [(call.name, call.id) for call in answer.calls] == [("look", "call_0_0")]
    assert answer.usage.output_tokens == 5
    assert events == [ReasoningDelta("hm"), TextDelta("I "), TextDelta("look.")]
    with pytest.raises(ModelError, match="gone"):
        await model.answer(asked)
    gate.set()
    assert await model.answer(asked) is done
    with pytest.raises(ScriptExhaustedError):
        await model.answer(asked)


async def test_a_streaming_model_may_repeat_one_answer() -> None:
    model = StreamingModel.always("a", "b", name="twice")
    assert [(await model.answer(request())).text for _ in range(2)] == ["ab", "ab"]
    assert (model.name, model.calls) == ("twice", 2)


async def test_a_counting_model_counts_calls_and_how_many_at_once() -> None:
    model = CountingModel(ScriptedModel.always("done", 5))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(model.answer, request())
        await model.wait_called(3)
        assert model.running == 3
    await model.answer(request())

    assert (model.calls, model.most_at_once, model.running) == (4, 3, 0)
    first = model.called_at[0]
    assert [at - first for at in model.called_at] == [0, 0, 0, 5]


async def test_fake_models_nest_and_keep_the_name_and_price_of_the_wrapped_model() -> None:
    price = Price(input=1)
    gate = GatedModel(ScriptedModel.always("done", price=price), name="held")
    model = CountingModel(SpyModel(gate))
    gate.release()

    assert (await model.answer(request("four"))).text == "done"
    assert (model.name, model.price) == ("held", price)
    assert model.count_tokens(request("four")) == 1


def test_a_fake_model_has_no_price_if_the_wrapped_model_has_no_price() -> None:
    model = SpyModel(StreamingModel.always("x", price=None))
    assert model.price is None
    assert model.count_tokens(request()) is None
