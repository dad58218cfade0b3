"""Tools that a client of chat completions runs itself."""

import base64
from typing import Any

import pytest

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Limits,
    Part,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from orchestrator.testing import hand_on
from tests.server.chat_kit import HELLO, answering
from tests.server.kit import serving

pytestmark = pytest.mark.realtime


async def test_the_client_runs_its_own_tools_and_the_agent_goes_on_with_the_answers() -> None:
    @tool
    def clock() -> str:
        """Tell the time."""
        return "noon"

    def answer(request: Any) -> Any:
        answered = [it.text for it in request.transcript if isinstance(it, ToolMessage)]
        if "sunny" in answered:
            return "it is sunny"
        return [
            ToolCall("weather", {"city": "Köln"}, id=CallId("call_a")),
            ToolCall("clock", {}, id=CallId("call_b")),
        ]

    model = answering(answer)
    weather: Any = {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "How it is outside.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            "strict": True,
        },
    }
    async with serving(Agent("helper", model=model, tools=[clock])) as served:
        create = served.openai.chat.completions.create
        first = await create(model="helper", messages=HELLO, tools=[weather])
        message: Any = first.choices[0].message
        assert message.tool_calls is not None
        second = await create(
            model="helper",
            messages=[
                *HELLO,
                message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
            ],
            tools=[weather],
        )

    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    # The agent has run its own tool itself: the client is not asked to.
    assert [call.model_dump() for call in message.tool_calls] == [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"Köln"}'},
        }
    ]
    shown = {it.name: it for it in model.requests[0].tools}
    assert shown["weather"].description == "How it is outside."
    assert shown["weather"].parameters == weather["function"]["parameters"]
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content == "it is sunny"
    assert [*model.requests[1].transcript] == [
        UserMessage("hello"),
        AssistantMessage("", (ToolCall("weather", {"city": "Köln"}, id=CallId("call_a")),)),
        ToolMessage(CallId("call_a"), "sunny"),
    ]


async def test_a_client_that_forbids_tool_calls_has_its_tools_hidden() -> None:
    model = answering(lambda _: "no tools")
    async with serving(Agent("helper", model=model)) as served:
        await served.openai.chat.completions.create(
            model="helper",
            messages=HELLO,
            tools=[{"type": "function", "function": {"name": "weather"}}],
            tool_choice="none",
        )

    assert not model.requests[0].tools


async def test_a_copy_of_the_agent_has_no_tools_of_the_client() -> None:
    """No client could run them for a task: only the agent itself answers the client."""
    names: list[list[str]] = []

    def answer(request: Any) -> Any:
        names.append([it.name for it in request.tools])
        is_copy = "copy" in request.transcript[0].text
        is_first = len(request.transcript) == 1
        return [hand_on("copy")] if is_first and not is_copy else "done"

    async with serving(Agent("helper", model=answering(answer), copies=True)) as served:
        await served.openai.chat.completions.create(
            model="helper",
            messages=HELLO,
            tools=[{"type": "function", "function": {"name": "weather"}}],
        )

    assert ["weather" in shown for shown in names] == [True, False, True]


PNG = b"\x89PNG\r\n\x1a\n not a real one"


async def test_a_request_with_results_is_a_turn_of_its_own() -> None:
    model = answering(lambda request: [ToolCall("look", {}, id=CallId("call_b"))])
    agent = Agent("helper", model=model, limits=Limits(calls=1))
    call = {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "nothing"},
    ]
    look: Any = {"type": "function", "function": {"name": "look"}}
    async with serving(agent) as served:
        answer = await served.openai.chat.completions.create(
            model="helper", messages=messages, tools=[look], tool_choice="required"
        )

    assert answer.choices[0].finish_reason == "tool_calls"
    assert [it.settings.tool_choice for it in model.requests] == ["required"]


async def test_an_image_in_the_result_of_a_tool_reaches_the_model() -> None:
    model = answering(lambda _: "a cat")
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    call = {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "call_a",
            "content": [{"type": "image_url", "image_url": {"url": url}}],
        },
    ]
    items: Any = [
        *HELLO,
        {"type": "function_call", "call_id": "call_a", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_a",
            "output": [{"type": "input_image", "image_url": url}],
        },
    ]
    async with serving(Agent("helper", model=model)) as served:
        await served.openai.chat.completions.create(model="helper", messages=messages)
        await served.openai.responses.create(model="helper", input=items)

    result = ToolMessage(CallId("call_a"), "", parts=(Part("image/png", data=PNG),))
    assert [it.transcript[-1] for it in model.requests] == [result, result]
