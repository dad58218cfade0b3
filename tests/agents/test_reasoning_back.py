"""The reasoning of a model is sent back to it with the results of its calls."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Message,
    ModelRequest,
    ModelSettings,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
    take_turn,
    tool,
)
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.registry import CloseableModel, model_named
from tests.agents.turn_kit import MemoryHost
from tests.fake_provider import FakeProvider, Say, encode, open_provider, stream
from tests.provider_rules import ENCRYPTED, signature_of

pytestmark = pytest.mark.realtime

KEY = "sk-0123456789"
LOOK = ToolCall("look", {"at": "x"}, id=CallId("toolu_1"))
THINKS = Say(thinking="Let me see", text="One moment.", calls=(LOOK,))


@tool
async def look(at: str = "") -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return f"{at} is dark"


async def turn(model: CloseableModel, **settings: Any) -> list[Any]:
    """Take a turn with one call, and return its steps."""
    agent = Agent("seer", model=model, tools=[look], settings=ModelSettings(**settings))
    host = MemoryHost()
    try:
        await take_turn(agent, [UserMessage("go")], model=model, tools=agent.tools, host=host)
    finally:
        await model.aclose()
    return host.steps


@pytest.mark.parametrize("name", ["claude-opus-4-5", "claude-opus-5-5"])
async def test_claude_gets_its_thoughts_back_with_their_signature(name: str) -> None:
    async with open_provider(Say(text="so")) as server:
        server.replies = [THINKS]
        model = AnthropicModel(name, key=KEY, base_url=server.url)
        steps = await turn(model, reasoning_effort="low")

    thought = {
        "type": "thinking",
        "thinking": "Let me see",
        "signature": signature_of("Let me see"),
    }
    assert server.heard[1].body["messages"][1]["content"] == [
        thought,
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}},
    ]
    assert steps[0].reasoning == (ReasoningBlock(f"anthropic:{name}", thought),)
    assert steps[-1].reasoning == ()


async def sent_messages(
    server: FakeProvider, transcript: Sequence[Message], **settings: Any
) -> Any:
    """Return what a server got that has refused nothing."""
    model = AnthropicModel("claude-opus-4-5", key=KEY, base_url=server.url)
    request = ModelRequest(
        instructions="", transcript=transcript, tools=[look], settings=ModelSettings(**settings)
    )
    await model.answer(request)
    await model.aclose()
    return server.heard[-1].body


def called(*blocks: ReasoningBlock) -> list[Message]:
    return [
        UserMessage("go"),
        AssistantMessage("", (LOOK,), reasoning=blocks),
        ToolMessage(LOOK.id, "dark"),
    ]


NAME = "anthropic:claude-opus-4-5"
ENCRYPTED_THOUGHT = {"type": "redacted_thinking", "data": "abc"}


async def test_an_encrypted_thought_is_sent_back_too() -> None:
    async with open_provider(Say(text="so")) as server:
        block = ReasoningBlock(NAME, ENCRYPTED_THOUGHT)
        body = await sent_messages(server, called(block), reasoning_effort="low")

    assert body["messages"][1]["content"][0] == ENCRYPTED_THOUGHT
    assert body["thinking"]["type"] == "enabled"


@pytest.mark.parametrize(
    "blocks",
    [(), (ReasoningBlock("anthropic:another", ENCRYPTED_THOUGHT),), (ReasoningBlock(NAME, {}),)],
    ids=["none", "of another model", "with a secret"],
)
async def test_a_call_without_a_thought_turns_thinking_off_until_the_next_question(
    blocks: tuple[ReasoningBlock, ...],
) -> None:
    """The provider refuses anything else of models that are told how long to think."""
    async with open_provider(Say(text="so")) as server:
        body = await sent_messages(server, called(*blocks), reasoning_effort="low")
        after = [*called(*blocks), AssistantMessage("so"), UserMessage("and?")]
        later = await sent_messages(server, after, reasoning_effort="low")

    assert body["thinking"] == {"type": "disabled"}
    assert len(body["messages"][1]["content"]) == 1
    assert later["thinking"]["type"] == "enabled"


async def test_reasoning_is_not_sent_back_when_reasoning_is_off() -> None:
    async with open_provider(Say(text="so")) as server:
        block = ReasoningBlock(NAME, ENCRYPTED_THOUGHT)
        body = await sent_messages(server, called(block), reasoning_effort="none")

    assert [it["type"] for it in body["messages"][1]["content"]] == ["tool_use"]


async def test_a_thought_stays_between_the_calls_where_it_came() -> None:
    second = replace(LOOK, id=CallId("toolu_2"))
    transcript: list[Message] = [
        UserMessage("go"),
        AssistantMessage(
            "Well",
            (LOOK, second),
            reasoning=(
                ReasoningBlock(NAME, ENCRYPTED_THOUGHT, 0),
                ReasoningBlock(NAME, ENCRYPTED_THOUGHT, 2),
            ),
        ),
        ToolMessage(LOOK.id, "dark"),
        ToolMessage(second.id, "dark"),
    ]
    async with open_provider(Say(text="so")) as server:
        body = await sent_messages(server, transcript, reasoning_effort="low")

    kinds = [it["type"] for it in body["messages"][1]["content"]]
    thought = "redacted_thinking"
    assert kinds == [thought, "text", "tool_use", thought, "tool_use"]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_responses_get_their_reasoning_back_encrypted(is_plain: bool) -> None:
    async with open_provider(Say(text="so")) as server:
        server.replies = [attrs.evolve(THINKS, is_plain=is_plain)]
        model = ResponsesModel("gpt-5", key=KEY, base_url=f"{server.url}/v1")
        await turn(model)

    first, second = (heard.body for heard in server.heard)
    assert first["include"] == ["reasoning.encrypted_content"]
    assert second["input"][2:4] == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ENCRYPTED},
        {"type": "function_call", "call_id": "toolu_1", "name": "look", "arguments": '{"at":"x"}'},
    ]


@pytest.mark.parametrize(
    ("name", "effort", "includes"),
    [
        ("gpt-5-mini", None, True),
        ("o4-mini", None, True),
        ("gpt-4o", None, False),
        ("gpt-5-chat-latest", None, False),
        ("a-deployment", None, False),
        ("a-deployment", "low", True),
    ],
)
async def test_only_a_reasoning_model_is_asked_for_reasoning(
    name: str, effort: Any, includes: bool
) -> None:
    """Other models refuse the request for encrypted reasoning."""
    async with open_provider(Say(text="so")) as server:
        model = ResponsesModel(name, key=KEY, base_url=f"{server.url}/v1")
        await turn(model, reasoning_effort=effort)

    assert ("include" in server.heard[0].body) is includes


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": "x"}'},
}
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}


@pytest.mark.parametrize(
    ("name", "deltas", "where", "back"),
    [
        (
            "deepseek",
            [{"reasoning_content": "Let me "}, {"reasoning_content": "see"}],
            (),
            {"reasoning_content": "Let me see"},
        ),
        (
            "openrouter",
            [
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Let "}]},
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "me"}]},
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]},
                {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "d"}]},
            ],
            (),
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "Let me", "signature": "s"},
                    {"type": "reasoning.encrypted", "index": 1, "data": "d"},
                ]
            },
        ),
        ("gemini", [], ("tool_calls", 0), {"extra_content": SIGNED}),
        ("groq", [{"reasoning": "Let me see"}], (), {}),
    ],
)
async def test_each_chat_completions_service_gets_its_own_reasoning_back(
    name: str, deltas: list[Any], where: tuple[Any, ...], back: dict[str, Any]
) -> None:
    call = {**CALL, **(back if name == "gemini" else {})}
    async with open_provider(Say(text="so")) as server:
        server.replies = [
            stream(*map(chunk, deltas), chunk({"tool_calls": [call]}, "tool_calls"), b"[DONE]")
        ]
        model = model_named(
            f"{name}:m",
            {
                f"{name.upper()}_API_KEY": KEY,
                f"{name.upper()}_BASE_URL": f"{server.url}/at-{name}/v1",
            },
        )
        steps = await turn(model)

    message = server.heard[1].body["messages"][1]
    for step in where:
        message = message[step]
    fields = {"reasoning_content", "reasoning_details", "extra_content"}
    assert {key: message[key] for key in message if key in fields} == back
    assert steps[-1].text == "so"
    assert encode(back)
