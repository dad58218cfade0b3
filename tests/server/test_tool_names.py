"""Names of a client's tools that models do not take: legal for each provider, and mapped back."""

from typing import Any

import pytest

from orchestrator.agents import Agent, CallId, ScriptedModel, Tool, ToolCall, tool
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.tools.model_names import model_name
from tests.fake_provider import FakeProvider, Say, open_provider
from tests.server.kit import Served, serving

pytestmark = pytest.mark.realtime

DOTTED, PLAIN, LONG = "weather.get", "weather_get", f"mcp__weather__{'x' * 80}"
NAMES = (DOTTED, PLAIN, LONG)
SCHEMA: Any = {"type": "object", "properties": {}}
CHAT: Any = {
    "model": "a",
    "messages": [{"role": "user", "content": "?"}],
    "tools": [{"type": "function", "function": {"name": it, "parameters": SCHEMA}} for it in NAMES],
    "tool_choice": {"type": "function", "function": {"name": DOTTED}},
}
RESPONSE: Any = {
    "model": "a",
    "input": [{"role": "user", "content": "?"}],
    "tools": [{"type": "function", "name": it, "parameters": SCHEMA} for it in NAMES],
    "tool_choice": {"type": "function", "name": DOTTED},
}
MESSAGE: Any = {
    "model": "a",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "?"}],
    "tools": [{"name": it, "input_schema": SCHEMA} for it in NAMES],
    "tool_choice": {"type": "tool", "name": DOTTED},
}


async def answer_of(served: Served, path: str, body: Any) -> Any:
    response = await served.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def call_in_a_chat(served: Served) -> tuple[str, Any]:
    """Return the name of the call that the client gets, and the answer to its result."""
    path = "/v1/chat/completions"
    message = (await answer_of(served, path, CHAT))["choices"][0]["message"]
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "foggy"}
    messages = [*CHAT["messages"], message, result]
    answer = await answer_of(served, path, {**CHAT, "messages": messages, "tool_choice": "auto"})
    return call["function"]["name"], answer["choices"][0]["message"]["content"]


async def call_in_a_response(served: Served) -> tuple[str, Any]:
    first = await answer_of(served, "/v1/responses", RESPONSE)
    (call,) = first["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "foggy"}
    more = {"input": [result], "previous_response_id": first["id"], "tool_choice": "auto"}
    second = await answer_of(served, "/v1/responses", {**RESPONSE, **more})
    items = (await served.http.get(f"/v1/responses/{second['id']}/input_items")).json()["data"]
    assert DOTTED in {it.get("name") for it in items}
    assert [it["name"] for it in second["tools"]] == [*NAMES]
    return call["name"], second["output"][0]["content"][0]["text"]


async def call_in_a_message(served: Served) -> tuple[str, Any]:
    first = await answer_of(served, "/v1/messages", MESSAGE)
    (call,) = first["content"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "foggy"}
    said = {"role": "assistant", "content": first["content"]}
    messages = [*MESSAGE["messages"], said, {"role": "user", "content": [result]}]
    more = {"messages": messages, "tool_choice": {"type": "auto"}}
    second = await answer_of(served, "/v1/messages", {**MESSAGE, **more})
    return call["name"], second["content"][0]["text"]


def names_at_the_provider(provider: FakeProvider) -> set[str]:
    tools = provider.heard[0].body["tools"]
    return {it["function"]["name"] if "function" in it else it["name"] for it in tools}


@pytest.mark.parametrize("kind", [OpenAIModel, ResponsesModel, AnthropicModel])
@pytest.mark.parametrize("call", [call_in_a_chat, call_in_a_response, call_in_a_message])
async def test_a_name_with_dots_is_legal_at_each_provider_and_the_client_gets_its_own(
    kind: type[HttpModel], call: Any
) -> None:
    """The fake provider refuses the names that the real one refuses."""
    async with open_provider() as provider:
        called = ToolCall(model_name(DOTTED), {}, id=CallId("call_1"))
        provider.replies = [Say(calls=(called,)), Say(text="It is foggy.")]
        model = kind("m", key="k", base_url=f"{provider.url}/v1")
        async with serving(Agent("a", model=model)) as served:
            name, text = await call(served)
        await model.aclose()

    assert (name, text) == (DOTTED, "It is foggy.")
    sent = names_at_the_provider(provider)
    assert sent == {model_name(it) for it in NAMES}
    assert len(sent) == len(NAMES)


@tool(name=model_name(DOTTED))
def taken() -> str:
    """Return the weather."""
    return "sunny"


@pytest.mark.parametrize(
    ("tools", "names", "error"),
    [([taken], [DOTTED], "give your tool another name"), ([], [DOTTED, taken.name], "two tools")],
)
async def test_a_name_that_a_model_would_confuse_with_another_is_refused(
    tools: list[Tool], names: list[str], error: str
) -> None:
    agent = Agent("a", model=ScriptedModel.always("done"), tools=tools)
    body = {**MESSAGE, "tools": [{"name": it, "input_schema": SCHEMA} for it in names]}
    async with serving(agent) as served:
        response = await served.http.post("/v1/messages", json=body)

    assert response.status_code == 400
    assert error in response.json()["error"]["message"]


def test_a_changed_name_keeps_two_names_apart() -> None:
    names = ["a.b", "a_b", "a-b", "a..b", "a b", "é", "x" * 65, "x" * 66, "a.b" + "x" * 70]

    assert len({model_name(it) for it in names}) == len(names)
    assert model_name("a_b") == "a_b"
