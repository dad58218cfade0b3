"""The provider `openai`: the requests that it sends, and the answers of other servers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallDelta,
    CallId,
    Failure,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    take_turn,
    tool,
)
from orchestrator.agents.models.providers.openai_chat import (
    BASE_URL,
    OpenAIModel,
    completion_request,
    output_limit_field,
)
from orchestrator.agents.models.registry import model_named
from tests.agents.turn_kit import MemoryHost
from tests.fake_provider import FakeProvider, Raw, Say, encode, open_provider, stream

pytestmark = pytest.mark.realtime

HELLO = UserMessage("hello")


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider() as provider:
        yield provider


@pytest.fixture
async def model(server: FakeProvider) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("gpt-5-mini", key="sk-secret", base_url=f"{server.url}/v1/")
    yield model
    await model.aclose()


async def ask(model: OpenAIModel, *transcript: Message, **more: Any) -> AssistantMessage:
    given = {"instructions": "", "transcript": transcript or (HELLO,), "tools": ()}
    return await model.answer(ModelRequest(**{**given, **more}))


def chunk(finish_reason: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"delta": delta, "finish_reason": finish_reason}]}


async def test_a_request_names_the_key_and_the_model(
    server: FakeProvider, model: OpenAIModel
) -> None:
    server.replies = [Say(text="hi")]

    await ask(model, instructions="Be kind.")

    (received,) = server.heard
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == "Bearer sk-secret"
    assert received.headers["content-type"] == "application/json"
    assert received.body == {
        "model": "gpt-5-mini",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hello"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_tool_call_goes_there_and_back(server: FakeProvider, model: OpenAIModel) -> None:
    """The whole turn over the wire: every answer names the call that it answers."""

    @tool
    async def double(number: int) -> int:
        """Double a number.

        Args:
            number: any.
        """
        await trio.lowlevel.checkpoint()
        return number * 2

    host = MemoryHost()
    call = ToolCall("double", {"number": 21}, id=CallId("call_7"))
    server.replies = [Say(calls=(call,)), Say(text="42")]

    answer = await take_turn(
        Agent("counter", model=model), [HELLO], model=model, tools=[double], host=host
    )

    assert answer == "42"
    first, second = (received.body for received in server.heard)
    assert first["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "double",
                "description": "Double a number.",
                "parameters": double.parameters,
            },
        }
    ]
    assert second["tools"] == first["tools"]
    function = {"name": "double", "arguments": '{"number":21}'}
    assert second["messages"] == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_7", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_7", "content": "42"},
    ]


async def test_a_transcript_is_sent_in_its_original_order_and_wording(
    server: FakeProvider, model: OpenAIModel
) -> None:
    look = ToolCall("look", {"at": "ä"}, id=CallId("a"))
    server.replies = [Say(text="done")]

    await ask(
        model,
        HELLO,
        AssistantMessage("one moment", (look,)),
        ToolMessage(look.id, "it is dark", failed=True),
        AssistantMessage("nothing there"),
        UserMessage("look again"),
    )

    function = {"name": "look", "arguments": '{"at":"ä"}'}
    assert server.heard[0].body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "one moment",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "it is dark"},
        {"role": "assistant", "content": "nothing there"},
        {"role": "user", "content": "look again"},
    ]


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, True),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, False),
    ],
)
async def test_an_answer_of_a_shape_is_asked_for_by_its_schema(
    server: FakeProvider, model: OpenAIModel, schema: dict[str, Any], *, strict: bool
) -> None:
    server.replies = [Say(text='{"n": 1}')]

    assert (await ask(model, output=schema)).text == '{"n": 1}'

    format_ = server.heard[0].body["response_format"]["json_schema"]
    assert format_["strict"] is strict


async def test_an_output_schema_other_than_an_object_is_wrapped(
    server: FakeProvider, model: OpenAIModel
) -> None:
    server.replies = [Say(text='{"answer": [1, 2]}'), Say(text="no idea")]
    numbers = {"type": "array", "items": {"type": "integer"}}

    assert (await ask(model, output=numbers)).text == "[1, 2]"
    assert (await ask(model, output=numbers)).text == "no idea"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_is_read_from_either_field_name(
    server: FakeProvider, model: OpenAIModel, field: str
) -> None:
    emitted: list[ModelEvent] = []
    server.replies = [stream(chunk(**{field: "hm"}), chunk("stop", content="hi"))]

    assert (await ask(model, tell=emitted.append)).text == "hi"
    assert ReasoningDelta("hm") in emitted


def piece(**call: object) -> dict[str, object]:
    return {"function": {"name": "look", "arguments": "{}"}, **call}


@pytest.mark.parametrize(
    "calls",
    [
        # Ollama gave every call the first place.
        [piece(index=0, id="a"), piece(index=0, id="b")],
        # Some give no places, and some no ids.
        [piece(id="a"), piece(id="b")],
        [piece(), piece()],
        [piece(index=0, id="same"), piece(index=1, id="same")],
    ],
)
async def test_calls_with_missing_or_equal_ids_get_distinct_ids(
    server: FakeProvider, model: OpenAIModel, calls: list[object]
) -> None:
    server.replies = [stream(chunk("tool_calls", tool_calls=calls), b"[DONE]")]

    answer = await ask(model)

    assert [call.name for call in answer.calls] == ["look", "look"]
    assert len({call.id for call in answer.calls} - {""}) == 2


async def test_an_id_that_was_taken_is_not_taken_again(
    server: FakeProvider, model: OpenAIModel
) -> None:
    """Some servers count their calls anew in every answer."""
    before = ToolCall("look", id=CallId("call_0"))
    also = ToolCall("look", id=CallId("call_3_0"))
    asked = AssistantMessage("", (before, also))
    server.replies = [Say(calls=(before,))]

    (call,) = (await ask(model, HELLO, asked, ToolMessage(before.id, "x"))).calls

    assert call.id not in {before.id, also.id}


async def test_a_repeated_function_name_is_emitted_once(
    server: FakeProvider, model: OpenAIModel
) -> None:
    emitted: list[ModelEvent] = []
    pieces = [
        chunk(tool_calls=[{"index": 0, "id": "a", "function": function}])
        for function in (
            {"name": "look", "arguments": '{"at":'},
            {"name": "look", "arguments": '"x"}'},
            {"name": "look"},
        )
    ]
    server.replies = [stream(*pieces, chunk("tool_calls"))]

    answer = await ask(model, tell=emitted.append)

    assert answer.calls == (ToolCall("look", {"at": "x"}, id=CallId("a")),)
    assert emitted == [CallDelta(0, "look", '{"at":'), CallDelta(0, "", '"x"}')]


@pytest.mark.parametrize("arguments", ["", " ", "null", "{}"])
async def test_empty_arguments_are_accepted_in_many_forms(
    server: FakeProvider, model: OpenAIModel, arguments: str
) -> None:
    function = {"name": "look", "arguments": arguments}
    call = {"index": 0, "id": "a", "function": function}
    server.replies = [stream(chunk("tool_calls", tool_calls=[call]))]

    assert (await ask(model)).calls == (ToolCall("look", id=CallId("a")),)


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([chunk("length", content="so")], Failure.CUT_OFF),
        ([chunk("content_filter", content="so")], Failure.FILTERED),
        ([chunk(content="so"), {"error": {"code": 429}}], Failure.RATE_LIMIT),
        ([chunk(content="so"), {"error": {"code": 502}}], Failure.OVERLOADED),
        ([chunk(content="so"), {"error": {"type": "api_error"}}], Failure.OVERLOADED),
        (
            [chunk(content="so"), {"error": {"code": "context_length_exceeded"}}],
            Failure.CONTEXT_TOO_LONG,
        ),
        ([chunk(content="so"), {"error": "something"}], Failure.OTHER),
        ([chunk(content="so"), {"choices": [7]}], Failure.MALFORMED),
    ],
)
async def test_an_answer_that_fails_midway_keeps_its_partial_text(
    server: FakeProvider, model: OpenAIModel, events: list[object], kind: Failure
) -> None:
    server.replies = [stream(*events)]

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert caught.value.kind is kind
    assert caught.value.partial == "so"


@pytest.mark.parametrize(
    "reply",
    [
        stream(b"[DONE]"),
        stream({"choices": []}, b"[DONE]"),
        Raw(b'{"choices":[]}'),
        Raw(b'{"choices":[{"message":{"content":7}}]}'),
        Raw(b'{"choices":[{"message":{"content":"\xff"}}]}'),
    ],
)
async def test_an_answer_without_choices_is_malformed(
    server: FakeProvider, model: OpenAIModel, reply: Raw
) -> None:
    server.replies = [reply]

    with pytest.raises(ModelError, match="gave an answer that is no chat completion") as caught:
        await ask(model)

    assert caught.value.kind is Failure.MALFORMED


async def test_an_error_may_come_as_a_success(server: FakeProvider, model: OpenAIModel) -> None:
    """A router has sent its status before the provider behind it fails."""
    server.replies = [Raw(encode({"error": {"message": "busy", "code": 429}}))]

    with pytest.raises(ModelError, match=r"failed: .*busy") as caught:
        await ask(model)

    assert caught.value.kind is Failure.RATE_LIMIT


@pytest.mark.parametrize("end", [[b"[DONE]"], [chunk("stop")], [chunk("stop"), {}]])
async def test_a_stream_may_end_in_either_way(
    server: FakeProvider, model: OpenAIModel, end: list[object]
) -> None:
    server.replies = [stream(chunk(content="hi"), *end)]

    assert (await ask(model)).text == "hi"


async def test_a_named_model_finds_its_server_and_its_key(server: FakeProvider) -> None:
    """Other servers speak the same protocol, and a key comes with the line end of its file."""
    environ = {"OPENAI_API_KEY": "sk-secret\n", "OPENAI_BASE_URL": f"{server.url}/v1"}
    server.replies = [Say(text="hi")]
    model = model_named("openai:gpt-5-mini", environ)
    request = ModelRequest(instructions="", transcript=[HELLO], tools=())

    assert (await model.answer(request)).text == "hi"
    assert server.heard[0].headers["authorization"] == "Bearer sk-secret"
    await model.aclose()


async def test_a_server_on_this_machine_needs_no_key(server: FakeProvider) -> None:
    server.replies = [Say(text="hi")]
    model = model_named("openai:llama", {"OPENAI_BASE_URL": f"{server.url}/v1"})
    request = ModelRequest(instructions="", transcript=[HELLO], tools=())

    assert (await model.answer(request)).text == "hi"
    assert "authorization" not in server.heard[0].headers
    await model.aclose()


@pytest.mark.parametrize("most", [1, 500])
async def test_other_servers_get_the_output_limit_by_its_old_name(
    server: FakeProvider, model: OpenAIModel, most: int
) -> None:
    server.replies = [stream(chunk("stop", content="hi"))]

    await ask(model, max_output=most)

    assert server.heard[0].body["max_tokens"] == most
    assert "max_completion_tokens" not in server.heard[0].body


def test_openai_gets_the_output_limit_by_its_new_name() -> None:
    request = ModelRequest(instructions="", transcript=[HELLO], tools=(), max_output=9)

    body = completion_request("gpt-5", request, None, limit_field=output_limit_field(BASE_URL))

    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1/", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://openrouter.ai/api/v1", "max_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
        ("https://api.openai.com.example.org/v1", "max_tokens"),
        ("https://not-api.openai.com/v1", "max_tokens"),
        ("http://[", "max_tokens"),
    ],
)
def test_the_output_limit_field_depends_on_the_provider(url: str, field: str) -> None:
    assert output_limit_field(url) == field


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize(
    ("stop", "kind"), [("length", Failure.CUT_OFF), ("content_filter", Failure.FILTERED)]
)
async def test_an_unusable_answer_reports_its_usage(
    server: FakeProvider, model: OpenAIModel, stop: str, kind: Failure, *, is_plain: bool
) -> None:
    """In a stream, the count comes after the reason for the end."""
    server.replies = [Say(text="so", stop=stop, read=20, wrote=5, is_plain=is_plain)]

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert (caught.value.kind, caught.value.partial) == (kind, "so")
    assert caught.value.usage == Usage(1, 20, 5, unpriced=1)
