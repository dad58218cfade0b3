"""The provider `anthropic`: the requests that it sends, and the events that it reads."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    DefinitionError,
    Failure,
    Message,
    ModelError,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.providers.anthropic import MAX_TOKENS, AnthropicModel
from orchestrator.agents.models.registry import model_named
from tests.fake_provider import FakeProvider, Raw, Say, encode, open_provider, stream

pytestmark = pytest.mark.realtime

HELLO = UserMessage("hello")
LOOK = ToolCall("look", {"at": "x"}, id=CallId("toolu_1"))
WAIT = ToolCall("wait", {}, id=CallId("toolu_2"))


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider() as provider:
        yield provider


@pytest.fixture
async def model(server: FakeProvider) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel("claude-opus-5-5", key="sk-ant-secret", base_url=server.url)
    yield model
    await model.aclose()


async def ask(model: AnthropicModel, *transcript: Message, **more: Any) -> AssistantMessage:
    given = {"instructions": "", "transcript": transcript or (HELLO,), "tools": ()}
    return await model.answer(ModelRequest(**{**given, **more}))


async def test_the_request_alternates_user_and_assistant(
    server: FakeProvider, model: AnthropicModel
) -> None:
    @tool
    def look(at: str = "") -> str:
        """Look at something."""
        return at

    server.replies = [Say(text="hi")]

    await ask(
        model,
        HELLO,
        UserMessage("are you there?"),
        AssistantMessage("one moment", (LOOK, WAIT)),
        ToolMessage(WAIT.id, "waited"),
        ToolMessage(LOOK.id, "it is dark", failed=True),
        UserMessage("so?"),
        AssistantMessage("nothing"),
        AssistantMessage("at all"),
        UserMessage("again"),
        instructions="Be kind.",
        tools=[look],
    )

    (received,) = server.heard
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == "sk-ant-secret"
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.body == {
        "model": "claude-opus-5-5",
        "max_tokens": 32_000,
        "system": "Be kind.",
        "stream": True,
        "tools": [
            {"name": "look", "description": "Look at something.", "input_schema": look.parameters}
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hello"},
                    {"type": "text", "text": "are you there?"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "one moment"},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "wait", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "it is dark",
                        "is_error": True,
                    },
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "waited"},
                    {"type": "text", "text": "so?"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "nothing"},
                    {"type": "text", "text": "at all"},
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "again"}]},
        ],
    }


async def test_calls_of_tools_that_are_gone_are_still_taken(
    server: FakeProvider, model: AnthropicModel
) -> None:
    server.replies = [Say(text="hi")]

    await ask(model, HELLO, AssistantMessage("", (LOOK,)), ToolMessage(LOOK.id, "dark"))

    body = server.heard[0].body
    assert [tool["name"] for tool in body["tools"]] == ["look"]
    assert body["tool_choice"] == {"type": "none"}


async def test_an_answer_of_a_shape_is_asked_for_by_its_schema(
    server: FakeProvider, model: AnthropicModel
) -> None:
    server.replies = [Say(text='{"answer": 7}')]

    assert (await ask(model, output={"type": "integer"})).text == "7"

    body = server.heard[0].body
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert "system" not in body


async def test_a_schema_that_cannot_be_strict_is_described_in_words(
    server: FakeProvider, model: AnthropicModel
) -> None:
    server.replies = [Say(text='{"a": 7}'), Say(text="{}")]
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}

    assert (await ask(model, output=counts)).text == '{"a": 7}'
    await ask(model, output=counts, instructions="Be kind.")

    first, second = (received.body for received in server.heard)
    assert "output_config" not in first
    assert first["system"].startswith("Your final answer is JSON")
    assert '{"type":"object","additionalProperties"' in first["system"]
    assert second["system"].startswith("Be kind.\n\nYour final answer is JSON")


def event(kind: str, **more: object) -> dict[str, object]:
    return {"type": kind, **more}


def text_delta(text: str) -> dict[str, object]:
    delta = {"type": "text_delta", "text": text}
    return event("content_block_delta", index=0, delta=delta)


def stop(reason: str) -> dict[str, object]:
    return event("message_delta", delta={"stop_reason": reason})


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (stop("refusal"), Failure.REFUSED),
        (stop("max_tokens"), Failure.CUT_OFF),
        (stop("model_context_window_exceeded"), Failure.CONTEXT_TOO_LONG),
        (event("error", error={"type": "overloaded_error"}), Failure.OVERLOADED),
        (event("error", error={"type": "rate_limit_error"}), Failure.RATE_LIMIT),
        (event("error", error={"type": "authentication_error"}), Failure.AUTH),
        (event("error", error={"type": "timeout_error"}), Failure.TIMEOUT),
        (event("error", error={"type": "new_error"}), Failure.OTHER),
        (event("message_stop"), Failure.CONNECTION),
        (event("content_block_delta", index="x"), Failure.MALFORMED),
    ],
)
async def test_an_answer_that_fails_midway_keeps_its_partial_text(
    server: FakeProvider, model: AnthropicModel, end: object, kind: Failure
) -> None:
    server.replies = [stream(text_delta("so"), end)]

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert caught.value.kind is kind
    assert caught.value.partial == "so"


async def test_counts_are_taken_from_wherever_they_come(
    server: FakeProvider, model: AnthropicModel
) -> None:
    used = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"content": [], "usage": used}
    late = {"input_tokens": 7, "output_tokens": 9, "cache_read_input_tokens": None}
    server.replies = [
        stream(
            event("message_start", message=message),
            text_delta("hi"),
            event("message_delta", delta={"stop_reason": None}),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage=late),
            event("message_stop"),
        )
    ]

    assert (await ask(model)).usage == Usage(
        calls=1, input_tokens=10, output_tokens=9, unpriced=1, cached_tokens=3
    )


async def test_a_server_may_send_a_whole_call_at_once(
    server: FakeProvider, model: AnthropicModel
) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}
    server.replies = [
        stream(event("content_block_start", index=0, content_block=block), stop("tool_use"))
    ]

    assert (await ask(model)).calls == (LOOK,)


async def test_an_error_may_come_as_a_success(server: FakeProvider, model: AnthropicModel) -> None:
    failed = event("error", error={"type": "overloaded_error", "message": "busy"})
    server.replies = [Raw(encode(failed))]

    with pytest.raises(ModelError, match=r"failed: .*busy") as caught:
        await ask(model)

    assert caught.value.kind is Failure.OVERLOADED


async def test_anthropic_has_its_own_key_and_address(server: FakeProvider) -> None:
    name = "anthropic:claude-opus-5-5"
    with pytest.raises(DefinitionError, match="set ANTHROPIC_API_KEY"):
        model_named(name, {"OPENAI_API_KEY": "sk-secret"})
    server.replies = [Say(text="hi")]
    environ = {"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": server.url}
    model = model_named(name, environ)
    request = ModelRequest(instructions="", transcript=[HELLO], tools=())

    answer = await model.answer(request)

    assert answer.model == model.name == name
    assert server.heard[0].headers["x-api-key"] == "sk-ant"
    await model.aclose()


@pytest.mark.parametrize(("most", "received"), [(None, MAX_TOKENS), (500, 500), (64_000, 64_000)])
async def test_the_request_holds_the_output_limit(
    server: FakeProvider, model: AnthropicModel, most: int | None, received: int
) -> None:
    server.replies = [Say(text="hi")]

    await ask(model, max_output=most)

    assert server.heard[0].body["max_tokens"] == received


async def test_a_cut_off_answer_reports_its_usage(
    server: FakeProvider, model: AnthropicModel
) -> None:
    server.replies = [Say(text="so", stop="max_tokens", read=20, wrote=5)]

    with pytest.raises(ModelError) as caught:
        await ask(model, max_output=5)

    assert (caught.value.kind, caught.value.partial) == (Failure.CUT_OFF, "so")
    assert caught.value.usage == Usage(1, 20, 5, unpriced=1, cache_written_tokens=10)
