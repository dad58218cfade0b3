"""Tools that take one text: passed on as custom tools, and as functions where there are none."""

import attrs
import pytest
import trio

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.providers.openai_chat import OpenAIModel, completion_request
from orchestrator.agents.models.providers.openai_responses import ResponsesModel, response_request
from orchestrator.agents.models.registry import has_custom_tools
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.tools.text_input import TextInput, input_of
from tests.fake_provider import Raw, open_provider, stream

pytestmark = pytest.mark.realtime


@tool
def shell(input: str) -> str:  # noqa: A002 (its name on the wire)
    """Run a line."""
    return input


ANY = attrs.evolve(shell, name="any", text_input=TextInput())
LS = attrs.evolve(shell, text_input=TextInput("regex", "ls .*"))
CALL = ToolCall("shell", {"input": "ls -l"}, id=CallId("c_1"))
REQUEST = ModelRequest(
    instructions="",
    transcript=[UserMessage("?"), AssistantMessage("", (CALL,)), ToolMessage(CALL.id, "a.txt")],
    tools=[ANY, LS],
    settings=ModelSettings(tool_choice="shell"),
)


def test_responses_receive_the_grammar_and_the_earlier_calls() -> None:
    body = response_request("gpt-5", REQUEST, None)

    assert [it["type"] for it in body["tools"]] == ["custom", "custom"]
    assert body["tools"][0]["format"] == {"type": "text"}
    assert body["tools"][1]["format"] == {
        "type": "grammar",
        "syntax": "regex",
        "definition": "ls .*",
    }
    assert body["tool_choice"] == {"type": "custom", "name": "shell"}
    assert body["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "c_1", "name": "shell", "input": "ls -l"},
        {"type": "custom_tool_call_output", "call_id": "c_1", "output": "a.txt"},
    ]


def test_openai_chat_completions_receive_custom_tools_and_others_functions() -> None:
    ours = completion_request("gpt-5", REQUEST, None, has_custom_tools=True)
    others = completion_request("qwen", REQUEST, None)

    assert ours["tools"][0]["custom"]["format"] == {"type": "text"}
    assert ours["tools"][1]["custom"]["format"]["grammar"]["syntax"] == "regex"
    assert ours["tool_choice"] == {"type": "custom", "custom": {"name": "shell"}}
    (call,) = ours["messages"][1]["tool_calls"]
    assert (call["type"], call["custom"]["input"]) == ("custom", "ls -l")
    assert [it["type"] for it in others["tools"]] == ["function", "function"]
    (call,) = others["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == '{"input":"ls -l"}'


RESPONSE = stream(
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "custom_tool_call", "call_id": "c_2", "name": "shell", "input": ""},
    },
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": " ls -"},
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "l\n"},
    {"type": "response.completed", "response": {"status": "completed", "output": []}},
)
CHAT = stream(
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "c_2",
                            "type": "custom",
                            "custom": {"name": "shell", "input": " ls -l\n"},
                        }
                    ]
                },
                "finish_reason": "tool_calls",
            }
        ]
    }
)


@pytest.mark.parametrize(("kind", "reply"), [(ResponsesModel, RESPONSE), (OpenAIModel, CHAT)])
async def test_the_text_of_a_custom_call_is_read_unchanged(
    kind: type[ResponsesModel | OpenAIModel], reply: Raw
) -> None:
    """It is no JSON, and no blank of it is lost."""
    async with open_provider() as server:
        server.replies = [reply]
        model = kind("gpt-5", key="k", base_url=f"{server.url}/v1")
        answer = await model.answer(REQUEST)
        await model.aclose()

    assert answer.calls == (ToolCall("shell", {"input": " ls -l\n"}, id=CallId("c_2")),)


def test_a_model_declares_whether_it_supports_grammars() -> None:
    responses = ResponsesModel("gpt-5", key="k")
    chat = OpenAIModel("gpt-5", key="k")
    other = OpenAIModel("qwen", key="k", base_url="http://localhost:1/v1")
    try:
        assert has_custom_tools(responses)
        assert has_custom_tools(with_retries(chat))
        assert not has_custom_tools(other)
        assert not has_custom_tools(with_fallback(chat, other))
        assert has_custom_tools("openai:gpt-5|openai-responses:gpt-5")
        assert not has_custom_tools("openai:gpt-5|anthropic:claude-5")
    finally:
        for model in (responses, chat, other):
            trio.run(model.aclose)


def test_arguments_that_a_model_makes_up_are_shown_as_json() -> None:
    assert input_of({"input": "x"}) == "x"
    assert input_of({"line": 1}) == '{"line":1}'
