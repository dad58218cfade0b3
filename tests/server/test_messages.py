"""`POST /v1/messages`, with Anthropic's official client against a real server."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Failure,
    ModelError,
    Part,
    ReasoningBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from orchestrator.products.server.state import Settings
from tests.kit import FunctionModel
from tests.server.chat_kit import HELLO, USAGE, answering, streaming
from tests.server.kit import NO_CERTIFICATES, TOKEN, Served, serving

pytestmark = pytest.mark.realtime

WEATHER: Any = {
    "name": "weather",
    "description": "How it is outside.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
PNG = b"\x89PNG\r\n\x1a\n not a real one"


@asynccontextmanager
async def client_of(served: Served, **options: Any) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    """Open the official client, which asks once and not again."""
    given: dict[str, Any] = {"api_key": TOKEN, **options}
    async with anthropic.AsyncAnthropic(
        base_url=served.url,
        max_retries=0,
        timeout=30,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES),
        **given,
    ) as client:
        yield client


async def test_a_message_is_answered_with_its_usage_and_ids() -> None:
    model = answering(lambda _: "hi")
    async with serving(Agent("helper", model=model)) as served, client_of(served) as client:
        raw = await client.messages.with_raw_response.create(
            model="helper",
            max_tokens=100,
            system=[{"type": "text", "text": "Be short."}],
            messages=HELLO,
            stop_sequences=["END"],
            extra_body={"temperature": 0.5},
            metadata={"user_id": "u1"},
        )
        answer = await raw.parse()
        run = (await served.http.get(f"/v1/runs/{raw.headers['x-run-id']}")).json()

    assert answer.type == "message"
    assert answer.role == "assistant"
    assert answer.model == "helper"
    assert answer.id.startswith("msg_")
    assert [it.model_dump(exclude_none=True) for it in answer.content] == [
        {"type": "text", "text": "hi"}
    ]
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (7, 3)
    assert answer.usage.output_tokens == 4
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    asked = model.requests[0]
    assert asked.instructions.endswith("Be short.")
    assert (asked.settings.stop, asked.settings.temperature) == (("END",), 0.5)
    assert asked.settings.max_output_tokens == 100
    assert run["metadata"] == {"user": "u1"}


async def test_the_bearer_token_is_accepted_as_well() -> None:
    async with (
        serving(Agent("helper", model=answering(lambda _: "hi"))) as served,
        client_of(served, api_key=None, auth_token=TOKEN) as client,
    ):
        answer = await client.messages.create(model="helper", max_tokens=9, messages=HELLO)

    assert answer.stop_reason == "end_turn"


async def test_a_stream_has_the_events_of_the_protocol() -> None:
    async with serving(Agent("helper", model=streaming("he", "llo"))) as served:
        request = {"model": "helper", "max_tokens": 9, "messages": HELLO, "stream": True}
        body = (await served.http.post("/v1/messages", json=request)).text
        async with (
            client_of(served) as client,
            client.messages.stream(model="helper", max_tokens=9, messages=HELLO) as stream,
        ):
            texts = [it async for it in stream.text_stream]
            message = await stream.get_final_message()

    names = [line.removeprefix("event: ") for line in body.splitlines() if "event:" in line]
    deltas = names.count("content_block_delta")
    assert names == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert "".join(texts) == "hello"
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 4)


def _weather_answer(request: Any) -> Any:
    if isinstance(request.transcript[-1], ToolMessage):
        return "it is sunny"
    return [ToolCall("weather", {"city": "Köln"}, id=CallId("toolu_a"))]


async def test_the_client_runs_its_own_tools_and_sends_their_results() -> None:
    model = answering(_weather_answer)
    async with serving(Agent("helper", model=model)) as served, client_of(served) as client:
        first = await client.messages.create(
            model="helper", max_tokens=9, messages=HELLO, tools=[WEATHER]
        )
        data = base64.b64encode(PNG).decode()
        image = {"type": "base64", "media_type": "image/png", "data": data}
        result: Any = {
            "type": "tool_result",
            "tool_use_id": "toolu_a",
            "is_error": True,
            "content": [{"type": "text", "text": "fog"}, {"type": "image", "source": image}],
        }
        second = await client.messages.create(
            model="helper",
            max_tokens=9,
            messages=[
                *HELLO,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result]},
            ],
            tools=[WEATHER],
        )

    assert first.stop_reason == "tool_use"
    assert [it.model_dump(exclude_none=True) for it in first.content] == [
        {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Köln"}}
    ]
    assert second.stop_reason == "end_turn"
    shown = {it.name: it for it in model.requests[0].tools}
    assert shown["weather"].parameters == WEATHER["input_schema"]
    assert [*model.requests[1].transcript] == [
        UserMessage("hello"),
        AssistantMessage("", (ToolCall("weather", {"city": "Köln"}, id=CallId("toolu_a")),)),
        ToolMessage(CallId("toolu_a"), "fog", True, parts=(Part("image/png", data=PNG),)),
    ]


async def test_a_stream_sends_a_call_with_its_arguments() -> None:
    agent = Agent("helper", model=answering(_weather_answer))
    async with (
        serving(agent) as served,
        client_of(served) as client,
        client.messages.stream(
            model="helper", max_tokens=9, messages=HELLO, tools=[WEATHER]
        ) as stream,
    ):
        message = await stream.get_final_message()

    (call,) = message.content
    assert message.stop_reason == "tool_use"
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("toolu_a", "weather", {"city": "Köln"})


@pytest.mark.parametrize(
    ("choice", "setting"),
    [({"type": "any"}, "required"), ({"type": "tool", "name": "weather"}, "weather")],
)
async def test_the_choice_of_a_tool_reaches_the_model(choice: Any, setting: str) -> None:
    model = answering(_weather_answer)
    async with serving(Agent("helper", model=model)) as served, client_of(served) as client:
        await client.messages.create(
            model="helper", max_tokens=9, messages=HELLO, tools=[WEATHER], tool_choice=choice
        )

    assert model.requests[0].settings.tool_choice == setting


async def test_an_answer_at_the_limit_of_tokens_is_cut() -> None:
    async def cut(request: Any) -> AssistantMessage:
        request.tell(TextDelta("he"))
        await trio.lowlevel.checkpoint()
        raise ModelError("cut off", kind=Failure.CUT_OFF, partial="he", usage=USAGE)

    async with (
        serving(Agent("helper", model=FunctionModel(cut))) as served,
        client_of(served) as client,
    ):
        answer = await client.messages.create(model="helper", max_tokens=1, messages=HELLO)

    assert answer.stop_reason == "max_tokens"
    assert [it.model_dump(exclude_none=True) for it in answer.content] == [
        {"type": "text", "text": "he"}
    ]


async def test_a_client_that_asks_for_thinking_gets_it_as_a_block_and_may_send_it_back() -> None:
    async def think(request: Any) -> AssistantMessage:
        request.tell(ReasoningDelta("hm"))
        await trio.lowlevel.checkpoint()
        request.tell(TextDelta("hi"))
        block = ReasoningBlock("speaker", {"type": "thinking"}, text="hm")
        return AssistantMessage("hi", usage=USAGE, reasoning=(block,))

    async with (
        serving(Agent("helper", model=FunctionModel(think))) as served,
        client_of(served) as client,
    ):
        thinking: Any = {"type": "adaptive"}
        async with client.messages.stream(
            model="helper", max_tokens=9, messages=HELLO, thinking=thinking
        ) as stream:
            first = await stream.get_final_message()
        answer: Any = {"role": "assistant", "content": first.content}
        second = await client.messages.create(
            model="helper", max_tokens=9, messages=[*HELLO, answer, *HELLO]
        )

    assert [it.type for it in first.content] == ["thinking", "text"]
    assert second.stop_reason == "end_turn"


async def test_tokens_are_counted_before_a_message_is_sent() -> None:
    model = answering(lambda _: "hi")
    async with serving(Agent("helper", model=model)) as served, client_of(served) as client:
        few = await client.messages.count_tokens(model="helper", messages=HELLO)
        more = await client.messages.count_tokens(model="helper", messages=HELLO, tools=[WEATHER])

    assert 0 < few.input_tokens < more.input_tokens
    assert not model.requests


async def test_models_are_listed_for_both_protocols() -> None:
    agents = [Agent(name, model=answering(lambda _: "hi")) for name in ("helper", "other")]
    async with serving(*agents) as served, client_of(served) as client:
        listed = [it async for it in client.models.list()]
        one = await client.models.retrieve("helper")
        of_openai = [it.id async for it in served.openai.models.list()]

    assert [it.id for it in listed] == of_openai == ["helper", "other"]
    assert (one.type, one.display_name) == ("model", "helper")
    assert one.created_at.timestamp() > 0


async def _error_of(client: anthropic.AsyncAnthropic, **given: Any) -> anthropic.APIStatusError:
    asked: Any = {"model": "helper", "max_tokens": 9, "messages": HELLO, **given}
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(**asked)
    return caught.value


async def test_errors_have_the_shape_of_the_protocol() -> None:
    async def fail(request: Any) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise ModelError("slow down", kind=Failure.RATE_LIMIT)

    async with (
        serving(Agent("helper", model=FunctionModel(fail))) as served,
        client_of(served) as client,
        client_of(served, api_key="a-wrong-token-of-the-tests") as stranger,
    ):
        found = {
            "no model": await _error_of(client, model="nobody"),
            "no messages": await _error_of(client, messages=[]),
            "hosted": await _error_of(client, tools=[{"type": "web_search_1", "name": "web"}]),
            "thread": await _error_of(client, extra_body={"thread": {"type": "create"}}),
            "limit": await _error_of(client),
            "limit in a stream": await _error_of(client, stream=True),
            "key": await _error_of(stranger),
        }

    bodies: dict[str, Any] = {name: it.body for name, it in found.items()}
    shown = {name: (it.status_code, bodies[name]["error"]["type"]) for name, it in found.items()}
    assert shown == {
        "no model": (404, "not_found_error"),
        "no messages": (400, "invalid_request_error"),
        "hosted": (400, "invalid_request_error"),
        "thread": (400, "invalid_request_error"),
        "limit": (429, "rate_limit_error"),
        "limit in a stream": (429, "rate_limit_error"),
        "key": (401, "authentication_error"),
    }
    for error in found.values():
        body: Any = error.body
        assert body["type"] == "error"
        assert body["request_id"] == error.request_id


async def test_the_tool_runner_goes_on_without_a_thread() -> None:
    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"sunny in {city}"

    model = answering(_weather_answer)
    async with serving(Agent("helper", model=model)) as served, client_of(served) as client:
        runner = client.beta.messages.tool_runner(
            model="helper", max_tokens=9, messages=HELLO, tools=[weather]
        )
        answer = await runner.until_done()

    assert [it.text for it in answer.content if it.type == "text"] == ["it is sunny"]
    assert model.requests[1].transcript[-1].text == "sunny in Köln"


async def test_a_stream_that_fails_after_its_first_text_ends_with_an_error() -> None:
    async def fail(request: Any) -> AssistantMessage:
        request.tell(TextDelta("he"))
        await trio.sleep(0.1)
        raise ModelError("no", kind=Failure.AUTH)

    async with (
        serving(Agent("helper", model=FunctionModel(fail))) as served,
        client_of(served) as client,
        client.messages.stream(model="helper", max_tokens=9, messages=HELLO) as stream,
    ):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await stream.get_final_message()

    body: Any = caught.value.body
    assert body["error"]["type"] == "api_error"


async def test_unknown_parameters_are_named() -> None:
    async with (
        serving(Agent("helper", model=answering(lambda _: "hi"))) as served,
        client_of(served) as client,
    ):
        raw = await client.messages.with_raw_response.create(
            model="helper", max_tokens=9, messages=HELLO, extra_body={"top_k": 4}
        )

    assert raw.headers["x-ignored-parameters"] == "top_k"


async def test_a_strict_server_refuses_unknown_parameters() -> None:
    settings = Settings(token=TOKEN, is_strict=True)
    agent = Agent("helper", model=answering(lambda _: "hi"))
    async with serving(agent, settings=settings) as served, client_of(served) as client:
        error = await _error_of(client, extra_body={"top_k": 4})

    assert error.status_code == 400
