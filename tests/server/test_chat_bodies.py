"""Chat completions refuse wrong bodies and name the wrong part."""

from typing import Any

import openai
import pytest

from orchestrator.agents import Agent, ScriptedModel, agent, tool
from tests.kit import worker
from tests.server.chat_kit import HELLO
from tests.server.kit import serving

pytestmark = pytest.mark.realtime


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


HELPER = Agent("helper", model=ScriptedModel.always("done"), tools=[clock])


@agent
async def program(goal: str) -> str:  # noqa: RUF029 (a program may not wait)
    return goal


def call(id_: str = "c1", arguments: str = "{}") -> Any:
    return {"id": id_, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def function(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


def part(**given: Any) -> Any:
    return [{"role": "user", "content": [given]}]


ASSISTANT: Any = {"role": "assistant", "content": "hi"}
CALLS: Any = {"role": "assistant", "content": None, "tool_calls": [call()]}
ANSWER: Any = {"role": "tool", "tool_call_id": "c1", "content": "x"}


REFUSED: list[tuple[Any, str, str, str]] = [
    ({"n": 0}, "n", "invalid_body", ">= 1"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.name",
        "invalid_body",
        "",
    ),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported", "only in text"),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio", "unsupported", "only in text"),
    ({"web_search_options": {}}, "web_search_options", "unsupported", "tools"),
    ({"stream_options": {}}, "stream_options", "invalid_body", "stream=true"),
    ({"tool_choice": "any"}, "tool_choice", "invalid_body", "'auto'"),
    ({"tool_choice": function("f")}, "tool_choice", "invalid_body", "'f'"),
    ({"temperature": 3}, "temperature", "invalid_body", "from 0 to 2"),
    ({"max_tokens": -1}, "max_tokens", "invalid_body", "from 1"),
    ({"max_tokens": 10**400}, "max_tokens", "invalid_body", "from 1"),
    ({"temperature": "hot"}, "temperature", "invalid_body", ""),
    ({"reasoning_effort": "heroic"}, "reasoning_effort", "invalid_body", "'low'"),
    (
        {"tools": [function("f"), function("clock")]},
        "tools[1].function.name",
        "tool_name_taken",
        "helper has its own tool 'clock'",
    ),
    (
        {"tools": [function("f"), function("f")]},
        "tools[1].function.name",
        "invalid_body",
        "two tools",
    ),
    ({"tools": [function("a b")]}, "tools[0].function.name", "invalid_body", "128"),
    ({"tools": [{"type": "custom"}]}, "tools[0].custom", "invalid_body", "a name"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "invalid_body", "function"),
    ({"model": 7}, "model", "invalid_body", "Expected `str`"),
    ({"stream": "yes"}, "stream", "invalid_body", "Expected `bool"),
    ({"messages": []}, "messages", "invalid_body", "length >= 1"),
    ({"messages": "hello"}, "messages", "invalid_body", "Expected `array`"),
    ({"messages": [{}]}, "messages[0].role", "invalid_body", "role"),
    (
        {"messages": [{"role": "function", "name": "f", "content": "x"}]},
        "messages[0].tool_call_id",
        "invalid_body",
        "waits for a result",
    ),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_body", "content"),
    (
        {"messages": [{"role": "user", "content": None}]},
        "messages[0].content",
        "invalid_body",
        "null",
    ),
    (
        {"messages": [*HELLO, CALLS]},
        "messages[1]",
        "invalid_body",
        "no tool message for the tool call 'c1'",
    ),
    (
        {"messages": [*HELLO, CALLS, *HELLO]},
        "messages[2]",
        "invalid_body",
        "no tool message for the tool call 'c1'",
    ),
    (
        {"messages": [*HELLO, ANSWER]},
        "messages[1].tool_call_id",
        "invalid_body",
        "with the id 'c1'",
    ),
    (
        {"messages": [*HELLO, CALLS, ANSWER, ANSWER]},
        "messages[3].tool_call_id",
        "invalid_body",
        "with the id 'c1'",
    ),
    (
        {"messages": [*HELLO, {**CALLS, "tool_calls": [call(arguments="[1]")]}, ANSWER]},
        "messages[1].tool_calls[0].function.arguments",
        "invalid_body",
        "JSON object",
    ),
    (
        {"messages": part(type="input_audio", input_audio={})},
        "messages[0].content[0]",
        "unsupported",
        "audio is not supported",
    ),
    (
        {"messages": part(type="video_url")},
        "messages[0].content[0].type",
        "invalid_body",
        "video_url",
    ),
    (
        {"messages": part(type="image_url", image_url={"url": "file:///etc/passwd"})},
        "messages[0].content[0]",
        "invalid_body",
        "https://",
    ),
    (
        {"messages": part(type="image_url", image_url={"url": "data:image/png,x"})},
        "messages[0].content[0]",
        "invalid_body",
        "base64",
    ),
    (
        {"messages": part(type="image_url", image_url={"url": "data:image/png;base64,%"})},
        "messages[0].content[0]",
        "invalid_body",
        "not base64",
    ),
    (
        {"messages": part(type="image_url", image_url={"url": "data:image/png;base64,"})},
        "messages[0].content[0]",
        "invalid_body",
        "cannot be empty",
    ),
    (
        {"messages": part(type="file", file={"file_id": "file-1"})},
        "messages[0].content[0].file",
        "unsupported",
        "stores no files",
    ),
    (
        {"messages": part(type="file", file={"file_data": "aGk="})},
        "messages[0].content[0]",
        "invalid_body",
        "tells the media type",
    ),
    ({"model": "program", "tools": [function("f")]}, "tools", "unsupported", "is a pipeline"),
    (
        {"model": "program", "messages": [*HELLO, CALLS, ANSWER]},
        "messages[2]",
        "unsupported",
        "is a pipeline",
    ),
    (
        {
            "model": "program",
            "messages": part(type="image_url", image_url={"url": "https://example.org/a.png"}),
        },
        "messages[0]",
        "unsupported",
        "neither images nor files",
    ),
]


async def test_unsupported_parameters_are_refused_by_name() -> None:
    async with serving(HELPER, program) as served:
        for body, param, code, words in REFUSED:
            answer = await served.http.post(
                "/v1/chat/completions", json={"model": "helper", "messages": HELLO, **body}
            )

            error = answer.json()["error"]
            assert (answer.status_code, error["param"], error["code"]) == (400, param, code), body
            assert words in error["message"], body
            assert error["type"] == "invalid_request_error"
        # Nothing was begun for any of them.
        assert not served.orchestrator.read.records.sessions


NO_SUCH_JSON = (b"", b"{", b"[]", b"null", b"\xff", b'{"model": "\\ud800"}', b"[" * 100_000)


async def test_an_invalid_json_body_is_refused() -> None:
    async with serving(worker()) as served:
        for body in NO_SUCH_JSON:
            answer = await served.http.post(
                "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
            )

            assert answer.status_code == 400, body
            assert answer.json()["error"]["code"] == "invalid_body"


async def test_a_model_that_does_not_exist_is_not_found() -> None:
    async with serving(worker("one"), worker("two")) as served:
        with pytest.raises(openai.NotFoundError) as caught:
            await served.openai.chat.completions.create(model="three", messages=HELLO)

    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "there are: one, two" in caught.value.message


async def test_an_invalid_header_is_refused() -> None:
    async with serving(worker()) as served:
        with pytest.raises(openai.BadRequestError) as caught:
            await served.openai.chat.completions.create(
                model="worker",
                messages=HELLO,
                extra_headers={"X-Session-Workspace": "../elsewhere"},
            )

    assert caught.value.param == "x-session-workspace"


async def test_a_conversation_with_tools_may_continue_with_a_message() -> None:
    async with serving(HELPER) as served:
        answer = await served.openai.chat.completions.create(
            model="helper", messages=[*HELLO, CALLS, ANSWER, ASSISTANT, *HELLO]
        )

    assert answer.choices[0].message.content == "done"
