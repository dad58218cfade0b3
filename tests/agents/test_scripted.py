"""A scripted model keeps the contract of a model: the same one that providers keep."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    DefinitionError,
    Failure,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Price,
    ScriptedModel,
    ScriptExhaustedError,
    TextDelta,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
)


async def ask(
    model: ScriptedModel, *transcript: Message, instructions: str = ""
) -> AssistantMessage:
    return await model.answer(
        ModelRequest(instructions=instructions, transcript=transcript, tools=())
    )


async def test_a_text_is_a_final_answer() -> None:
    answer = await ask(ScriptedModel(["42"]))

    assert (answer.text, answer.calls, answer.model) == ("42", (), "scripted")


async def test_a_scripted_answer_is_streamed() -> None:
    events: list[ModelEvent] = []
    request = ModelRequest(instructions="", transcript=(), tools=(), tell=events.append)

    await ScriptedModel(["42"]).answer(request)

    assert events == [TextDelta("42")]


async def test_a_scripted_call_is_an_answer_with_a_call() -> None:
    answer = await ask(ScriptedModel([ToolCall("add", {"a": 1})]))

    (call,) = answer.calls
    assert (answer.text, call.name, call.arguments) == ("", "add", {"a": 1})


async def test_a_list_is_calls_in_parallel() -> None:
    answer = await ask(ScriptedModel([[ToolCall("add"), ToolCall("take")]]))

    assert [call.name for call in answer.calls] == ["add", "take"]


async def test_an_exception_is_raised() -> None:
    """The provider failed; a retry gets the next step."""
    overloaded = ModelError("overloaded")
    model = ScriptedModel([overloaded, "42"])

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert caught.value is overloaded
    assert (await ask(model)).text == "42"


@pytest.mark.parametrize(
    "said", ["go", ToolCall("go", id=CallId("1")), [ToolCall("go", id=CallId("1"))]]
)
async def test_a_function_step_answers_like_a_plain_step(said: Any) -> None:
    assert await ask(ScriptedModel([lambda _: said])) == await ask(ScriptedModel([said]))


async def test_a_function_reads_the_transcript() -> None:
    def echo(transcript: Transcript) -> str:
        return " ".join(message.text for message in transcript)

    answer = await ask(ScriptedModel([echo]), UserMessage("a"), UserMessage("b"))

    assert answer.text == "a b"


@pytest.mark.parametrize(("kind", "heals"), [(Failure.OVERLOADED, True), (Failure.AUTH, False)])
async def test_a_scripted_failure_may_be_transient(kind: Failure, heals: bool) -> None:
    failed = ModelError("no", kind=kind, retry_after=3, partial="Once upon")

    with pytest.raises(ModelError, match="no") as caught:
        await ask(ScriptedModel([failed]))

    assert caught.value.kind.is_transient == heals
    assert (caught.value.retry_after, caught.value.partial) == (3, "Once upon")


async def test_a_function_may_fail_like_a_provider() -> None:
    with pytest.raises(ModelError, match="overloaded"):
        await ask(ScriptedModel([lambda _: ModelError("overloaded")]))


async def test_a_function_step_must_return_a_step() -> None:
    def forgets_to_return(_: Transcript) -> Any:
        return None

    with pytest.raises(DefinitionError, match="came to None; it must be a text"):
        await ask(ScriptedModel([forgets_to_return]))


@pytest.mark.parametrize(
    ("steps", "counted"), [([], "0 steps,"), (["a"], "1 step,"), (["a"] * 2, "2 steps,")]
)
async def test_an_exhausted_script_is_an_error(steps: Sequence[str], counted: str) -> None:
    model = ScriptedModel(steps)
    for _ in steps:
        await ask(model)

    with pytest.raises(ScriptExhaustedError, match=f"it has {counted}") as caught:
        await ask(model)

    assert caught.value.steps == len(steps)
    assert isinstance(caught.value, ModelError)


async def test_an_exhausted_script_reports_how_many_tasks_share_it() -> None:
    model = ScriptedModel(["a", "b"])
    await ask(model, UserMessage("one"))
    await ask(model, UserMessage("another"))

    with pytest.raises(ScriptExhaustedError, match="3 tasks share it") as caught:
        await ask(model, UserMessage("a third"))

    assert caught.value.conversations == 3


async def test_a_step_may_have_text_and_calls() -> None:
    calls = [ToolCall("look", {"at": number}) for number in (1, 2)]
    model = ScriptedModel([["I will look. ", *calls, "Both."]])

    answer = await ask(model)

    assert answer.text == "I will look. Both."
    assert [call.arguments for call in answer.calls] == [{"at": 1}, {"at": 2}]
    assert len({call.id for call in answer.calls}) == 2


async def test_always_never_runs_out() -> None:
    model = ScriptedModel.always(lambda transcript: str(len(transcript)))
    user = UserMessage("a")

    answers = [await ask(model), await ask(model, user), await ask(model, user, user)]

    assert [answer.text for answer in answers] == ["0", "1", "2"]
    assert trio.current_time() == 0


async def test_every_answer_takes_its_seconds() -> None:
    model = ScriptedModel([ToolCall("look"), ModelError("overloaded"), "42"], 30)

    await ask(model)
    with pytest.raises(ModelError):
        await ask(model)
    await ask(model)
    await ask(ScriptedModel.always("43", 10))

    assert trio.current_time() == 100


async def test_steps_go_out_in_the_order_they_are_asked_for() -> None:
    """Two tasks may share a script, and the one that asks first gets the first step."""
    model = ScriptedModel(["first", "second"], seconds=1)
    got: dict[str, str] = {}

    async def asker(name: str) -> None:
        got[name] = (await ask(model)).text

    async with trio.open_nursery() as nursery:
        for name in ("early", "late"):
            nursery.start_soon(asker, name)
            await trio.testing.wait_all_tasks_blocked()

    assert got == {"early": "first", "late": "second"}


async def test_an_answer_that_takes_no_time_is_a_checkpoint_too() -> None:
    with trio.testing.assert_checkpoints():
        await ask(ScriptedModel(["42"]))


@pytest.mark.parametrize("make", [lambda *a, **k: ScriptedModel([*a], **k), ScriptedModel.always])
async def test_tokens_are_counted_and_priced(make: Callable[..., ScriptedModel]) -> None:
    """Four characters are a token; a dollar a million tokens is a micro-dollar each."""
    model = make("y" * 41, price=Price(input=3, output=10))

    answer = await ask(model, UserMessage("x" * 40), instructions="x" * 80)

    assert answer.usage == Usage(1, input_tokens=30, output_tokens=11, micro_usd=90 + 110)


async def test_every_message_of_the_transcript_is_read_again() -> None:
    call = ToolCall("look", {"where": "everywhere"})
    model = ScriptedModel([call, "done"])
    user = UserMessage("go on")

    asked = await ask(model, user)
    done = await ask(model, user, asked, ToolMessage(asked.calls[0].id, "seen"))

    assert asked.usage.output_tokens > 0
    assert done.usage.input_tokens == asked.usage.tokens + 1


@pytest.mark.parametrize("model", [ScriptedModel(["a"]), ScriptedModel.always("a")])
async def test_an_answer_without_a_price_is_free_and_known_to_be(model: ScriptedModel) -> None:
    usage = (await ask(model, UserMessage("hello"))).usage

    assert (usage.calls, usage.micro_usd, usage.unpriced) == (1, 0, 0)


def test_a_price_is_rounded_to_micro_dollars() -> None:
    price = Price(input=0.15, output=0.6)

    assert price.cost_of(input_tokens=1_000_000, output_tokens=0) == 150_000
    assert price.cost_of(input_tokens=3, output_tokens=2) == 2


async def test_ids_of_calls_are_unique_in_a_transcript() -> None:
    transcript: list[Message] = [UserMessage("go")]
    for _ in range(3):
        model = ScriptedModel([[ToolCall("look"), ToolCall("look")]])
        asked = await ask(model, *transcript)
        transcript += [asked, *(ToolMessage(call.id, "seen") for call in asked.calls)]

    ids = [m.call for m in transcript if isinstance(m, ToolMessage)]
    assert len(set(ids)) == len(ids) == 6
    assert all(ids)


async def test_an_id_in_the_script_is_kept() -> None:
    mine = ToolCall("look", id=CallId("mine"))

    answer = await ask(ScriptedModel([[mine, replace(mine, id=CallId(""))]]))

    assert answer.calls[0] is mine
    assert answer.calls[1].id not in {"", "mine"}


async def test_a_model_shows_how_far_it_is() -> None:
    model = ScriptedModel(["a", "b"])
    await ask(model)

    assert repr(model) == "<ScriptedModel 1 of 2 steps taken>"


@pytest.mark.parametrize("step", ["y" * 41, ToolCall("look", {"at": "y" * 41})])
async def test_an_answer_that_is_too_long_is_cut_off_and_paid_for(step: Any) -> None:
    model = ScriptedModel([step], price=Price(input=3, output=10))
    events: list[ModelEvent] = []
    request = ModelRequest(
        instructions="x" * 80, transcript=(), tools=(), max_output=5, tell=events.append
    )

    with pytest.raises(ModelError, match="scripted was cut off at its limit") as caught:
        await model.answer(request)

    said = "y" * 20 if isinstance(step, str) else ""
    assert (caught.value.kind, caught.value.partial) == (Failure.CUT_OFF, said)
    assert caught.value.usage == Usage(1, 20, 5, micro_usd=60 + 50)
    assert events == ([TextDelta(said)] if said else [])


@pytest.mark.parametrize("step", ["y" * 20, ToolCall("y" * 8, {"at": "y"})])
async def test_an_answer_that_just_fits_is_whole(step: Any) -> None:
    fits = ModelRequest(instructions="", transcript=(), tools=(), max_output=5)

    answer = await ScriptedModel([step]).answer(fits)

    assert answer.usage.output_tokens == 5
    assert answer.text == (step if isinstance(step, str) else "")


async def test_a_scripted_model_counts_its_input_and_knows_its_price() -> None:
    price = Price(input=3)
    model = ScriptedModel(["42"], price=price)
    request = ModelRequest(instructions="Be brief.", transcript=[UserMessage("go")], tools=())

    counted = model.count_tokens(request)

    assert counted == (await model.answer(request)).usage.input_tokens
    assert (model.price, ScriptedModel([]).price) == (price, Price())
