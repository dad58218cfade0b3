"""The prefix of a request: siblings send the same bytes up to their goals."""

import json
from typing import Any

import pytest
import trio

from orchestrator.agents import ModelRequest, ModelSettings, Price, UserMessage, tool
from orchestrator.agents.models.prompt_prefix import LEAST_TOKENS, cache_key, least_tokens
from orchestrator.agents.models.provider_table import PROVIDERS, WireProtocol
from orchestrator.agents.models.providers.anthropic import message_request
from orchestrator.agents.models.providers.openai_chat import completion_request
from orchestrator.agents.models.registry import model_named
from orchestrator.agents.models.usage_bound import quote
from orchestrator.agents.models.wrappers.cut_request import cut_message
from orchestrator.testing import ScriptedModel
from tests.fake_provider import FakeProvider, Say, open_provider

CONTEXT = "Context:\n" + "All of it is in the minutes of the meeting.\n" * 120
LOGINS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "eu-west-1",
    "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.token",
    "GOOGLE_CLOUD_PROJECT": "lab",
    "GOOGLE_CLOUD_LOCATION": "europe-west1",
}


@tool
async def look(at: str = "") -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return at


@tool
async def ask(who: str = "") -> str:
    """Ask somebody."""
    await trio.lowlevel.checkpoint()
    return who


def sibling(goal: str, context: str = CONTEXT, **more: Any) -> ModelRequest:
    first = UserMessage(context + goal, shared=len(context))
    request: dict[str, Any] = {
        "instructions": "Be kind.",
        "transcript": [first],
        "tools": (look, ask),
        **more,
    }
    return ModelRequest(**request)


def environ(name: str, server: FakeProvider) -> dict[str, str]:
    provider = PROVIDERS[name]
    url = {provider.base_url_variable: f"{server.url}/at-{name}/v1"}
    return {provider.key_variable: "sk-0123456789abcdef", **LOGINS, **url}


@pytest.mark.realtime
@pytest.mark.parametrize("name", PROVIDERS)
async def test_sibling_requests_are_identical_up_to_the_goal(name: str) -> None:
    """Instructions, tools and shared context precede the goal, in the same bytes."""
    async with open_provider(Say(text="so")) as server:
        model = model_named(f"{name}:m", environ(name, server))
        for goal in ("GOAL one", "GOAL two"):
            await model.answer(sibling(goal, max_output=99 if goal.endswith("one") else 98))
        await model.aclose()

    one, two = (json.dumps(heard.body) for heard in server.heard)
    start, goal, _ = one.partition("GOAL")
    assert goal
    assert two.startswith(start)
    for text in ("Be kind.", "Look at something.", "Ask somebody.", "minutes of the meeting"):
        assert text in start
    body = server.heard[0].body
    if PROVIDERS[name].protocol is WireProtocol.MESSAGES:
        shared, goal_block = body["messages"][0]["content"]
        assert (shared["text"], goal_block["text"]) == (CONTEXT, "GOAL one")
        assert shared["cache_control"] == {"type": "ephemeral"}
        assert start.count("cache_control") == one.count("cache_control") == 1


@pytest.mark.parametrize(
    ("model", "context", "caching", "is_marked"),
    [
        ("claude-opus-5", CONTEXT, None, True),
        ("claude-opus-5", CONTEXT[:999], None, False),
        ("claude-opus-4-5", CONTEXT, None, False),
        ("claude-opus-4-5", CONTEXT * 4, None, True),
        ("claude-opus-5", "", None, False),
        ("claude-opus-5", CONTEXT, False, False),
    ],
)
def test_a_long_shared_context_is_marked_by_default(
    model: str, context: str, caching: Any, is_marked: bool
) -> None:
    """A mark on a prefix below the minimum of its model would do nothing."""
    request = sibling("GOAL", context, settings=ModelSettings(prompt_caching=caching))
    body = message_request(model, request, None)

    assert ("cache_control" in json.dumps(body)) is is_marked


@pytest.mark.parametrize("time", [True, "1h"])
def test_marks_on_request_include_the_shared_context(time: Any) -> None:
    """The provider takes four marks."""
    request = sibling("GOAL", settings=ModelSettings(prompt_caching=time))
    body = message_request("claude-opus-5", request, None)

    assert all("cache_control" in block for block in body["messages"][0]["content"])
    assert "cache_control" in body["system"][0]
    assert json.dumps(body).count("cache_control") == 3


def test_the_cache_key_names_the_prefix() -> None:
    key = cache_key(sibling("one"))
    assert key is not None
    assert key == cache_key(sibling("two"))
    assert key != cache_key(sibling("one", instructions="Be brief."))
    assert key != cache_key(sibling("one", CONTEXT + "More."))
    assert cache_key(sibling("one", "")) is None


def test_only_a_server_that_knows_the_cache_key_receives_it() -> None:
    for known in (False, True):
        body = completion_request("m", sibling("one"), None, has_cache_key=known)
        assert ("prompt_cache_key" in body) is known


def test_a_budget_reserves_the_price_of_writing_a_shared_context_to_the_cache() -> None:
    model = ScriptedModel.always("so")
    model.price = Price(input=4, output=0, cache_write=5)
    shared, own = (quote(model, sibling("one", it), answer_tokens=0) for it in (CONTEXT, ""))

    assert shared.micro_usd == shared.input_tokens * 5
    assert own.micro_usd == own.input_tokens * 4


def test_a_first_message_that_is_cut_shares_nothing() -> None:
    whole = sibling("GOAL").transcript[0]
    assert isinstance(whole, UserMessage)
    cut = cut_message(whole, 1_000)
    assert isinstance(cut, UserMessage)
    assert cut.shared == 0


def test_the_minimum_length_depends_on_the_model() -> None:
    names = (
        "openai:gpt-5",
        "gemini:gemini-2.5-pro",
        "gemini:gemini-3-pro",
        "anthropic:claude-3-haiku",
    )
    assert [*map(least_tokens, names)] == [LEAST_TOKENS, 2_048, 4_096, 2_048]
