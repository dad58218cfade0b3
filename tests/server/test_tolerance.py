"""The default fields of clients are accepted: references, reasoning, unknown tools."""

from typing import Any

import openai
import pytest

from orchestrator.agents import Agent, ToolCall
from orchestrator.products.server.openai.conversation import CONTINUE
from orchestrator.products.server.openai.requested_settings import IGNORED
from orchestrator.products.server.state import Settings
from orchestrator.testing import SpyModel
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
HOSTED: list[Any] = [{"type": "web_search"}, {"type": "namespace", "name": "x"}]


def said_to(model: SpyModel) -> list[str]:
    return [message.text for message in model.requests[-1].transcript]


async def test_an_item_of_a_stored_response_is_referred_to_by_its_id() -> None:
    """The default provider of Vercel's AI SDK sends its second turn so."""
    call = ToolCall("weather", {"city": "Lima"})
    model = speaker(("Let me look.", call), "Sunny.", "And dry.")
    async with serving(Agent("a", model=model)) as served:
        client = served.openai
        first = await client.responses.create(model="a", input="How is it?", tools=[WEATHER])
        said, called = first.output
        assert called.type == "function_call"
        result: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "sun"}
        references: list[Any] = [
            {"role": "user", "content": "How is it?"},
            {"type": "item_reference", "id": said.id},
            {"type": "item_reference", "id": called.id},
            result,
        ]
        second = await client.responses.create(model="a", input=references, tools=[WEATHER])
        (item,) = second.output
        more: list[Any] = [
            *references,
            {"type": "item_reference", "id": item.id},
            {"role": "user", "content": "And else?"},
        ]
        third = await client.responses.create(model="a", input=more, tools=[WEATHER])
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.create(
                model="a", input=[{"type": "item_reference", "id": "msg_1"}, *more]
            )

    assert third.output_text == "And dry."
    assert said_to(model) == ["How is it?", "Let me look.", "sun", "Sunny.", "And else?"]
    assert missing.value.param == "input[0].id"


async def test_items_of_reasoning_are_taken() -> None:
    model = speaker("42")
    items: list[Any] = [
        {"role": "user", "content": "?"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "encrypted_content": "AAAA",
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": None},
        {"role": "assistant", "content": [{"type": "output_text", "text": "!"}]},
        {"role": "user", "content": "??"},
    ]
    async with serving(Agent("a", model=model)) as served:
        await served.openai.responses.create(model="a", input=items)

    assert said_to(model) == ["?", "!", "??"]


async def test_tools_that_no_client_runs_are_refused_by_name() -> None:
    async with serving(Agent("a", model=speaker("unused"))) as served:
        for tool in HOSTED:
            with pytest.raises(openai.BadRequestError) as response:
                await served.openai.responses.create(model="a", input="?", tools=[WEATHER, tool])
            with pytest.raises(openai.BadRequestError) as chat:
                await served.openai.chat.completions.create(model="a", messages=HELLO, tools=[tool])

            assert tool["type"] in response.value.message
            assert response.value.param == "tools[1].type"
            assert chat.value.param == "tools[0].type"


async def test_tools_that_no_client_runs_are_left_out_by_an_option() -> None:
    model = speaker("42", "42")
    settings = Settings(token=TOKEN, ignores_hosted_tools=True)
    async with serving(Agent("a", model=model), settings=settings) as served:
        response = await served.openai.responses.with_raw_response.create(
            model="a", input="?", tools=[WEATHER, *HOSTED]
        )
        chat = await served.openai.chat.completions.with_raw_response.create(
            model="a", messages=HELLO, tools=HOSTED
        )

    names = "tools.namespace, tools.web_search"
    assert ", ".join(sorted(response.headers[IGNORED].split(", "))) == names
    assert ", ".join(sorted(chat.headers[IGNORED].split(", "))) == names
    assert [[it.name for it in request.tools] for request in model.requests] == [["weather"], []]


@pytest.mark.parametrize("name", ["task", "delegate_task"])
async def test_a_tool_has_any_name_where_the_agent_does_not_delegate(name: str) -> None:
    """`opencode` has a tool called `task`."""
    tool: Any = {"type": "function", "function": {"name": name}}
    leaf = Agent("leaf", model=speaker((ToolCall(name, {"of": "mine"}),)))
    boss = Agent("boss", model=speaker("unused"), delegates=[leaf])
    async with serving(leaf, boss) as served:
        answer = await served.openai.chat.completions.create(
            model="leaf", messages=HELLO, tools=[tool]
        )
        with pytest.raises(openai.BadRequestError) as refused:
            await served.openai.chat.completions.create(model="boss", messages=HELLO, tools=[tool])

    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].to_dict()["function"] == {
        "name": name,
        "arguments": '{"of":"mine"}',
    }
    assert refused.value.code == "tool_name_taken"


ENDINGS: list[tuple[list[dict[str, Any]], str, list[str]]] = [
    ([{"role": "system", "content": "Say yes."}], "", ["Say yes."]),
    ([*HELLO, {"role": "assistant", "content": "I was"}], "", ["hello", "I was", CONTINUE]),
    (
        [{"role": "system", "content": "Be kind."}, {"role": "assistant", "content": "I was"}],
        "Be kind.",
        ["I was", CONTINUE],
    ),
]


@pytest.mark.parametrize(("messages", "instructions", "said"), ENDINGS)
async def test_a_conversation_without_a_last_user_message_is_answered(
    messages: list[Any], instructions: str, said: list[str]
) -> None:
    model = speaker("yes", "yes")
    async with serving(Agent("a", model=model)) as served:
        chat = await served.openai.chat.completions.create(model="a", messages=messages)
        response = await served.openai.responses.create(model="a", input=messages)

    assert (chat.choices[0].message.content, response.output_text) == ("yes", "yes")
    for request in model.requests:
        assert request.instructions == instructions
        assert [it.text for it in request.transcript] == said


async def test_items_about_work_of_hosted_tools_are_left_out_and_named() -> None:
    model = speaker("42")
    items: list[Any] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": "?"},
    ]
    async with serving(Agent("a", model=model)) as served:
        answer = await served.openai.responses.with_raw_response.create(model="a", input=items)

    assert answer.headers[IGNORED] == "input.compaction, input.web_search_call"
    assert [it.text for it in model.requests[0].transcript] == ["?"]


async def test_the_user_of_a_response_comes_back_beside_its_metadata() -> None:
    async with serving(Agent("a", model=speaker("42"))) as served:
        made = await served.openai.responses.create(
            model="a", input="?", user="ann", metadata={"ticket": "12"}
        )
        found = await served.openai.responses.retrieve(made.id)

    for it in (made, found):
        assert (it.user, it.metadata) == ("ann", {"ticket": "12"})
