"""`ModelSettings`: checked where they are written, and sent as each protocol calls them."""

from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    DefinitionError,
    Message,
    ModelRequest,
    ModelSettings,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    take_turn,
    tool,
)
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.retry import with_retries
from tests.agents.turn_kit import MemoryHost
from tests.fake_provider import FakeProvider, Say, open_provider


@tool
async def look(at: str = "") -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return at


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider(Say(text="hi")) as provider:
        yield provider


async def sent(
    kind: type[HttpModel],
    server: FakeProvider,
    settings: ModelSettings,
    model: str = "claude-opus-5-5",
    **more: Any,
) -> dict[str, Any]:
    """Return the settings that a server got, which has refused nothing."""
    client = kind(model, key="sk-0123456789", base_url=server.url)
    assert client.settings_problem(settings) is None
    request = ModelRequest(
        instructions="",
        transcript=[UserMessage("hello")],
        **{"tools": [look], "settings": settings, **more},
    )
    try:
        assert (await client.answer(request)).text == "hi"
    finally:
        await client.aclose()
    ours = {"model", "messages", "input", "stream", "stream_options", "tools", "store"}
    body = server.heard[-1].body
    return {name: value for name, value in body.items() if name not in ours}


@pytest.mark.realtime
async def test_chat_completions_get_every_setting(server: FakeProvider) -> None:
    settings = ModelSettings(
        temperature=0,
        top_p=0.5,
        reasoning_effort="low",
        seed=7,
        stop="END",
        parallel_tool_calls=False,
        prompt_caching=True,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        tool_choice="look",
        top_logprobs=2,
        extra={"service_tier": "flex"},
    )

    assert await sent(OpenAIModel, server, settings) == {
        "temperature": 0,
        "top_p": 0.5,
        "reasoning_effort": "low",
        "seed": 7,
        "stop": ["END"],
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "logprobs": True,
        "top_logprobs": 2,
        "service_tier": "flex",
    }


@pytest.mark.realtime
async def test_responses_get_their_settings(server: FakeProvider) -> None:
    settings = ModelSettings(
        temperature=0.2,
        reasoning_effort="high",
        parallel_tool_calls=True,
        tool_choice="look",
        top_logprobs=2,
        extra={"reasoning": {"summary": "auto"}},
    )

    assert await sent(ResponsesModel, server, settings) == {
        # A model that thinks is sent back what it thought.
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "top_logprobs": 2,
        "temperature": 0.2,
        "reasoning": {"effort": "high", "summary": "auto"},
        "parallel_tool_calls": True,
        "tool_choice": {"type": "function", "name": "look"},
    }


@pytest.mark.realtime
async def test_messages_get_their_settings(server: FakeProvider) -> None:
    settings = ModelSettings(
        temperature=0.2,
        top_p=0.9,
        stop=("END", "STOP"),
        parallel_tool_calls=False,
        tool_choice="required",
    )

    assert await sent(AnthropicModel, server, settings) == {
        "max_tokens": 32_000,
        "temperature": 0.2,
        "top_p": 0.9,
        "stop_sequences": ["END", "STOP"],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("choice", "parallel", "received"),
    [
        ("auto", None, {"type": "auto"}),
        ("none", True, {"type": "none"}),
        ("look", None, {"type": "tool", "name": "look"}),
        (None, True, {"type": "auto", "disable_parallel_tool_use": False}),
    ],
)
async def test_messages_have_words_of_their_own_for_the_choice_of_tools(
    server: FakeProvider, choice: str | None, parallel: bool | None, received: Any
) -> None:
    settings = ModelSettings(tool_choice=choice, parallel_tool_calls=parallel)

    body = await sent(AnthropicModel, server, settings)

    assert body["tool_choice"] == received


@pytest.mark.realtime
@pytest.mark.parametrize("kind", [OpenAIModel, ResponsesModel, AnthropicModel])
async def test_a_request_without_tools_has_no_settings_for_calls(
    server: FakeProvider, kind: type[HttpModel]
) -> None:
    """Every provider refuses that."""
    settings = ModelSettings(tool_choice="auto", parallel_tool_calls=False)

    body = await sent(kind, server, settings, tools=())

    assert not body.keys() & {"tool_choice", "parallel_tool_calls"}


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("model", "effort", "limit", "received"),
    [
        ("claude-opus-5-5", "none", None, {"thinking": {"type": "disabled"}}),
        (
            "claude-opus-4-6",
            "max",
            None,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        (
            "claude-fable",
            "low",
            None,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (
            "claude-sonnet-4-20250514",
            "high",
            None,
            {"thinking": {"type": "enabled", "budget_tokens": 16_000}},
        ),
        (
            "claude-haiku-4-5-20251001",
            "low",
            None,
            {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        ),
        (
            "claude-3-7-sonnet-20250219",
            "medium",
            1_500,
            {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
        ),
        # A budget has left no more.
        ("claude-opus-4-5", "medium", 1_024, {"thinking": {"type": "disabled"}}),
    ],
)
async def test_each_generation_of_claude_gets_its_reasoning_settings(
    server: FakeProvider, model: str, effort: Any, limit: int | None, received: Any
) -> None:
    settings = ModelSettings(reasoning_effort=effort)

    body = await sent(AnthropicModel, server, settings, model, max_output=limit)

    del body["max_tokens"]
    assert body == received


@pytest.mark.realtime
async def test_an_effort_and_a_schema_share_their_field(server: FakeProvider) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    settings = ModelSettings(reasoning_effort="low")

    body = await sent(AnthropicModel, server, settings, output=schema)

    assert body["output_config"]["effort"] == "low"
    assert body["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"temperature": 3}, "number from 0 to 2"),
        ({"temperature": True}, "number from 0 to 2"),
        ({"temperature": float("nan")}, "number from 0 to 2"),
        ({"top_p": -0.1}, "number from 0 to 1"),
        ({"max_output_tokens": 0}, "whole number from 1"),
        ({"max_output_tokens": 1.5}, "whole number from 1"),
        ({"seed": "7"}, "whole number"),
        ({"reasoning_effort": "lots"}, "one of 'none', 'minimal', 'low'"),
        ({"stop": ("",)}, "texts that are not empty"),
        ({"stop": 3}, "texts that are not empty"),
        ({"stop": (1,)}, "texts that are not empty"),
        ({"parallel_tool_calls": 1}, "one of True, False"),
        ({"prompt_caching": "2h"}, "one of True, False, '5m', '1h'"),
        ({"presence_penalty": 9}, "number from -2 to 2"),
        ({"top_logprobs": 21}, "whole number from 0 to 20"),
        ({"top_logprobs": -1}, "whole number from 0 to 20"),
        ({"tool_choice": ""}, "the name of a tool"),
        ({"extra": {"a": object()}}, "that JSON can carry"),
        ({"extra": ["a"]}, "that JSON can carry"),
    ],
)
def test_an_invalid_setting_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        ModelSettings(**wrong)


@pytest.mark.parametrize(
    ("model", "settings", "problem"),
    [
        ("anthropic:claude-opus-5", {"seed": 1}, "it has no seed"),
        ("anthropic:claude-opus-5", {"temperature": 1.5}, "at most 1"),
        ("anthropic:claude-opus-5", {"reasoning_effort": "minimal"}, "one of 'none'"),
        (
            "anthropic:claude-opus-5",
            {"reasoning_effort": "high", "temperature": 0},
            "while it thinks",
        ),
        (
            "anthropic:claude-opus-5",
            {"reasoning_effort": "high", "tool_choice": "look"},
            "no call can be forced",
        ),
        (
            "anthropic:claude-opus-5",
            {"reasoning_effort": "low", "max_output_tokens": 500},
            "1024 tokens at least",
        ),
        ("anthropic:claude-opus-5", {"top_logprobs": 0}, "it has no top_logprobs"),
        ("openai-responses:gpt-5", {"stop": "x"}, "it has no stop"),
        ("openai:gpt-5", {"stop": tuple("abcde")}, "at most 4 texts"),
        ("openai:gpt-5", {"prompt_caching": "1h"}, "caches prompts by itself"),
        ("openai:gpt-5", {"prompt_caching": False}, "caches prompts by itself"),
        ("openai:gpt-5", {"extra": {"n": 3, "messages": []}}, "cannot have messages, n"),
        ("openai:gpt-5 | anthropic:claude", {"seed": 1}, "anthropic:claude: it has no"),
        ("local:smollm2", {"reasoning_effort": "low"}, "it has no reasoning_effort"),
    ],
)
def test_an_agent_refuses_settings_that_its_provider_does_not_support(
    model: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem) as caught:
        Agent("writer", model=model, tools=[look], settings=ModelSettings(**settings))

    assert "agent 'writer'" in str(caught.value)


def test_a_model_of_ones_own_may_check_them_too() -> None:
    class Careful(ScriptedModel):
        def settings_problem(self, settings: ModelSettings) -> str | None:
            return "it never guesses" if settings.temperature else None

    wrapped = with_fallback(ScriptedModel(["so"]), with_retries(Careful(["so"])))
    Agent("writer", model=wrapped, settings=ModelSettings(temperature=0))

    with pytest.raises(DefinitionError, match="it never guesses"):
        Agent("writer", model=wrapped, settings=ModelSettings(temperature=1))


def test_settings_are_settings() -> None:
    given: Any = {"temperature": 0}

    with pytest.raises(DefinitionError, match="must be ModelSettings"):
        Agent("writer", model=ScriptedModel(["so"]), settings=given)


@pytest.mark.parametrize(
    ("choice", "options"), [("required", {}), ("look", {}), ("delegate_task", {"tools": [look]})]
)
def test_a_tool_that_has_to_be_called_must_be_there(choice: str, options: dict[str, Any]) -> None:
    settings = ModelSettings(tool_choice=choice)

    with pytest.raises(DefinitionError, match=f"tool_choice is '{choice}'"):
        Agent("writer", model=ScriptedModel(["so"]), settings=settings, **options)


def test_the_tool_that_delegates_can_be_demanded() -> None:
    helper = Agent("helper", model=ScriptedModel(["so"]))

    Agent(
        "writer",
        model=ScriptedModel(["so"]),
        delegates=[helper],
        settings=ModelSettings(tool_choice="delegate_task"),
    )


def test_settings_of_a_request_override_settings_of_an_agent() -> None:
    agents = ModelSettings(temperature=0, top_p=0.5, extra={"a": 1, "b": 1})
    requested = ModelSettings(temperature=1, stop="END", extra={"b": 2})

    both = requested.over(agents)

    assert both == ModelSettings(temperature=1, top_p=0.5, stop="END", extra={"a": 1, "b": 2})
    assert NO_SETTINGS.over(agents) == agents
    assert agents.over(NO_SETTINGS) == agents
    assert hash(both) == hash(requested.over(agents))


def test_only_settings_with_a_value_become_fields() -> None:
    settings = ModelSettings(temperature=0, parallel_tool_calls=False, stop=["a"])

    assert settings.as_fields() == {"temperature": 0, "parallel_tool_calls": False, "stop": ["a"]}
    assert str(settings) == "temperature=0, stop=['a'], parallel_tool_calls=False"
    assert NO_SETTINGS.as_fields() == {}


class Spy:
    """Remembers the settings of each request, and answers by a script."""

    name = "spy"

    def __init__(self, *steps: Any) -> None:
        self.asked: list[tuple[ModelSettings, int | None]] = []
        self._model = ScriptedModel(steps)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self.asked.append((request.settings, request.max_output))
        return await self._model.answer(request)


async def test_a_forced_call_is_forced_once_a_turn() -> None:
    """A model that always has to call would never give its answer."""
    spy = Spy(ToolCall("look", {"at": "x"}), "so")
    settings = ModelSettings(temperature=0, max_output_tokens=99, tool_choice="look")
    agent = Agent("writer", model=spy, tools=[look], settings=settings)

    await take_turn(
        agent,
        [UserMessage("go")],
        model=spy,
        tools=agent.tools,
        host=MemoryHost(),
        settings=ModelSettings(temperature=0.5),
    )

    first = attrs.evolve(settings, temperature=0.5)
    assert spy.asked == [(first, 99), (attrs.evolve(first, tool_choice=None), 99)]


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("caching", "mark"),
    [
        (True, {"type": "ephemeral"}),
        ("5m", {"type": "ephemeral"}),
        ("1h", {"type": "ephemeral", "ttl": "1h"}),
    ],
)
async def test_messages_are_marked_where_they_are_to_be_cached(
    server: FakeProvider, caching: Any, mark: Any
) -> None:
    """The next request reads the entry that this one writes."""
    call = ToolCall("look", {"at": "x"}, id=CallId("toolu_1"))
    model = AnthropicModel("claude-opus-5-5", key="sk-0123456789", base_url=server.url)
    transcript: list[Message] = [
        UserMessage("hello"),
        AssistantMessage("", (call,)),
        ToolMessage(call.id, "dark"),
        AssistantMessage("so"),
        UserMessage("and?"),
    ]
    settings = ModelSettings(prompt_caching=caching)

    for length in (1, 3, 5):
        request = ModelRequest(
            instructions="Be kind.", transcript=transcript[:length], tools=[look], settings=settings
        )
        await model.answer(request)
    await model.aclose()

    marked = [
        [
            index
            for index, message in enumerate(heard.body["messages"])
            if message["content"][-1].get("cache_control") == mark
        ]
        for heard in server.heard
    ]
    assert marked == [[0], [0, 2], [2, 4]]
    body = server.heard[-1].body
    assert body["system"] == [{"type": "text", "text": "Be kind.", "cache_control": mark}]
    assert body["tools"][-1]["cache_control"] == mark


@pytest.mark.realtime
async def test_tokens_read_from_and_written_to_a_cache_are_counted() -> None:
    async with open_provider(Say(text="hi", read=100, cached=40, wrote=5)) as server:
        model = AnthropicModel("m", key="sk-0123456789", base_url=server.url)
        request = ModelRequest(instructions="", transcript=[UserMessage("hello")], tools=())
        used = (await model.answer(request)).usage
        await model.aclose()

    assert (used.input_tokens, used.cached_tokens) == (100, 40)
    assert used.cache_written_tokens == 30
    assert (used + used).cache_written_tokens == 60
