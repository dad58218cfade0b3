"""The provider `openai-responses`: the requests that it sends, and the events that it reads."""

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
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.registry import model_named
from tests.fake_provider import FakeProvider, Raw, Say, encode, open_provider, stream

pytestmark = pytest.mark.realtime

HELLO = UserMessage("hello")
CALL = ToolCall("look", {"at": "x"}, id=CallId("call_1"))


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider() as provider:
        yield provider


@pytest.fixture
async def model(server: FakeProvider) -> AsyncIterator[ResponsesModel]:
    model = ResponsesModel("gpt-5", key="sk-secret", base_url=f"{server.url}/v1")
    yield model
    await model.aclose()


async def ask(model: ResponsesModel, *transcript: Message, **more: Any) -> AssistantMessage:
    given = {"instructions": "", "transcript": transcript or (HELLO,), "tools": ()}
    return await model.answer(ModelRequest(**{**given, **more}))


async def test_the_server_gets_the_whole_conversation_and_stores_no_part_of_it(
    server: FakeProvider, model: ResponsesModel
) -> None:
    @tool
    def look(at: str = "") -> str:
        """Look at something."""
        return at

    server.replies = [Say(text="hi")]

    await ask(
        model,
        HELLO,
        AssistantMessage("one moment", (CALL,)),
        ToolMessage(CALL.id, "it is dark"),
        AssistantMessage("nothing"),
        UserMessage("again"),
        instructions="Be kind.",
        tools=[look],
    )

    (received,) = server.heard
    assert received.path == "/v1/responses"
    assert received.headers["authorization"] == "Bearer sk-secret"
    assert received.body == {
        "model": "gpt-5",
        "instructions": "Be kind.",
        "input": [
            {"type": "message", "role": "user", "content": "hello"},
            {"type": "message", "role": "assistant", "content": "one moment"},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "look",
                "arguments": '{"at":"x"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "it is dark"},
            {"type": "message", "role": "assistant", "content": "nothing"},
            {"type": "message", "role": "user", "content": "again"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look at something.",
                "parameters": look.parameters,
                "strict": False,
            }
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


async def test_an_answer_of_a_shape_is_asked_for_by_its_schema(
    server: FakeProvider, model: ResponsesModel
) -> None:
    server.replies = [Say(text='{"answer": 7}')]

    assert (await ask(model, output={"type": "integer"})).text == "7"

    format_ = server.heard[0].body["text"]["format"]
    assert format_["strict"] is True
    assert format_["schema"]["required"] == ["answer"]


def response(status: str = "completed", **more: object) -> dict[str, object]:
    return {"status": status, "output": [], **more}


def event(kind: str, **more: object) -> dict[str, object]:
    return {"type": kind, **more}


HALF = event("response.output_text.delta", delta="so", output_index=0)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (
            event(
                "response.failed",
                response=response(
                    "failed", error={"code": "rate_limit_exceeded", "message": "slow"}
                ),
            ),
            Failure.RATE_LIMIT,
        ),
        (
            event("response.failed", response=response("failed", error={"code": "server_error"})),
            Failure.OVERLOADED,
        ),
        (event("response.failed", response=response("failed")), Failure.OTHER),
        (event("error", code="insufficient_quota", message="no"), Failure.QUOTA),
        (event("error", error={"code": "context_length_exceeded"}), Failure.CONTEXT_TOO_LONG),
        (
            event(
                "response.incomplete",
                response=response("incomplete", incomplete_details={"reason": "content_filter"}),
            ),
            Failure.FILTERED,
        ),
        (
            event(
                "response.incomplete",
                response=response("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            ),
            Failure.CUT_OFF,
        ),
        (event("response.incomplete", response=response("incomplete")), Failure.CUT_OFF),
        (event("response.output_text.delta", delta=7), Failure.MALFORMED),
        (b"[DONE]", Failure.CONNECTION),
    ],
)
async def test_an_answer_that_fails_midway_keeps_its_partial_text(
    server: FakeProvider, model: ResponsesModel, end: object, kind: Failure
) -> None:
    server.replies = [stream(HALF, end)]

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert caught.value.kind is kind
    assert caught.value.partial == "so"


async def test_a_server_may_send_the_whole_answer_in_its_last_event(
    server: FakeProvider, model: ResponsesModel
) -> None:
    item = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at": "x"}',
    }
    said = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    thought = {"type": "reasoning", "content": [{"text": "hm"}]}
    search = {"type": "web_search_call", "id": "ws_1"}
    whole = response(output=[thought, said, search, item])
    server.replies = [stream(event("response.completed", response=whole))]
    events: list[ModelEvent] = []

    answer = await ask(model, tell=events.append)

    assert answer.text == "hi"
    assert answer.calls == (CALL,)
    assert events[0] == ReasoningDelta("hm")


async def test_a_server_may_send_all_arguments_at_once(
    server: FakeProvider, model: ResponsesModel
) -> None:
    item = {"type": "function_call", "call_id": "call_1", "name": "look"}
    server.replies = [
        stream(
            event("response.output_item.added", output_index=0, item=item),
            event("response.something.new", delta={"not": "text"}),
            event(
                "response.output_item.done",
                output_index=0,
                item={**item, "arguments": '{"at": "x"}'},
            ),
            event("response.completed", response=response()),
            b"[DONE]",
        )
    ]

    assert (await ask(model)).calls == (CALL,)


async def test_a_reasoning_summary_is_emitted_too(
    server: FakeProvider, model: ResponsesModel
) -> None:
    events: list[ModelEvent] = []
    server.replies = [
        stream(
            event("response.reasoning_summary_text.delta", delta="hm"),
            HALF,
            event("response.completed", response=response()),
        )
    ]

    assert (await ask(model, tell=events.append)).text == "so"
    assert events[0] == ReasoningDelta("hm")


async def test_an_error_may_come_as_a_success(server: FakeProvider, model: ResponsesModel) -> None:
    failed = response("failed", error={"code": "server_error", "message": "oh"})
    server.replies = [Raw(encode(failed))]

    with pytest.raises(ModelError, match=r"failed: .*oh") as caught:
        await ask(model)

    assert caught.value.kind is Failure.OVERLOADED


async def test_responses_have_their_own_name_and_the_key_of_openai() -> None:
    with pytest.raises(DefinitionError, match="set OPENAI_API_KEY"):
        model_named("openai-responses:gpt-5", {})

    model = model_named("openai-responses:gpt-5", {"OPENAI_API_KEY": "sk-secret"})

    assert model.name == "openai-responses:gpt-5"
    await model.aclose()


async def test_the_request_holds_the_output_limit(
    server: FakeProvider, model: ResponsesModel
) -> None:
    whole = stream(event("response.completed", response=response()))
    server.replies = [whole, whole]

    await ask(model, max_output=500)
    await ask(model)

    first, second = (received.body for received in server.heard)
    assert first["max_output_tokens"] == 500
    assert "max_output_tokens" not in second


async def test_a_cut_off_answer_reports_its_usage(
    server: FakeProvider, model: ResponsesModel
) -> None:
    server.replies = [Say(text="so", stop="max_output_tokens", read=20, wrote=5)]

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert (caught.value.kind, caught.value.partial) == (Failure.CUT_OFF, "so")
    assert caught.value.usage == Usage(1, 20, 5, unpriced=1)
