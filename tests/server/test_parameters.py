"""Every parameter of the installed official client is kept, named in a header, or refused by name.

A new version of the client that has more fails here, until a maintainer has decided about it.
"""

import inspect
from typing import Any, Literal, TypeAlias

import pytest
from openai.resources.chat.completions import Completions as Chats
from openai.resources.completions import Completions
from openai.resources.responses import Responses

from orchestrator.products.server.openai.requested_settings import IGNORED
from orchestrator.products.server.state import Settings
from tests.kit import worker
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, serving

pytestmark = pytest.mark.realtime

Fate: TypeAlias = Literal["kept", "told", "named", "refused"]
"""A strict server refuses a parameter that is named, and takes one that is only told about."""
OF_THE_CLIENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
NOTES = {"for": "tea"}

CHAT: dict[str, tuple[Fate, Any]] = {
    "messages": ("kept", HELLO),
    "model": ("kept", "worker"),
    "audio": ("refused", {"voice": "ash", "format": "mp3"}),
    "frequency_penalty": ("kept", 0.5),
    "function_call": ("kept", "auto"),
    "functions": ("kept", [FUNCTION]),
    "logit_bias": ("named", {"50256": -100}),
    "logprobs": ("named", True),
    "max_completion_tokens": ("kept", 50),
    "max_tokens": ("kept", 50),
    "metadata": ("kept", NOTES),
    "modalities": ("kept", ["text"]),
    "moderation": ("named", {"model": "omni-moderation-latest"}),
    "n": ("kept", 2),
    "parallel_tool_calls": ("kept", False),
    "prediction": ("told", {"type": "content", "content": "x"}),
    "presence_penalty": ("kept", 0.5),
    "prompt_cache_key": ("told", "k"),
    "prompt_cache_options": ("told", {}),
    "prompt_cache_retention": ("told", "24h"),
    "reasoning_effort": ("kept", "low"),
    "response_format": ("kept", {"type": "text"}),
    "safety_identifier": ("told", "ann"),
    "seed": ("kept", 7),
    "service_tier": ("told", "auto"),
    "stop": ("kept", ["\n"]),
    "store": ("kept", True),
    "stream": ("kept", False),
    "stream_options": ("kept", None),
    "temperature": ("kept", 0.5),
    "tool_choice": ("kept", "auto"),
    "tools": ("kept", [{"type": "function", "function": FUNCTION}]),
    "top_logprobs": ("named", 2),
    "top_p": ("kept", 0.5),
    "user": ("kept", "ann"),
    "verbosity": ("named", "low"),
    "web_search_options": ("refused", {}),
}
RESPONSE: dict[str, tuple[Fate, Any]] = {
    "access_programs": ("told", []),
    "background": ("kept", False),
    "context_management": ("named", [{"type": "compaction"}]),
    "conversation": ("kept", None),
    "image": ("named", {}),
    "include": ("kept", ["reasoning.encrypted_content"]),
    "input": ("kept", "hello"),
    "instructions": ("kept", "be brief"),
    "max_output_tokens": ("kept", 50),
    "max_tool_calls": ("named", 3),
    "metadata": ("kept", NOTES),
    "model": ("kept", "worker"),
    "moderation": ("refused", {"model": "omni-moderation-latest"}),
    "parallel_tool_calls": ("kept", False),
    "previous_response_id": ("kept", None),
    "prompt": ("refused", {"id": "pmpt_1"}),
    "prompt_cache_key": ("told", "k"),
    "prompt_cache_options": ("told", {}),
    "prompt_cache_retention": ("told", "24h"),
    "reasoning": ("kept", {"effort": "low"}),
    "safety_identifier": ("told", "ann"),
    "service_tier": ("told", "auto"),
    "store": ("kept", False),
    "stream": ("kept", False),
    "stream_options": ("told", {"include_obfuscation": False}),
    "temperature": ("kept", 0.5),
    "text": ("kept", {"format": {"type": "text"}}),
    "tool_choice": ("kept", "auto"),
    "tools": ("kept", [{"type": "function", **FUNCTION}]),
    "top_logprobs": ("named", 2),
    "top_p": ("kept", 0.5),
    "truncation": ("kept", "disabled"),
    "user": ("kept", "ann"),
}
COMPLETION: dict[str, tuple[Fate, Any]] = {
    "model": ("kept", "worker"),
    "prompt": ("kept", "hello"),
    "best_of": ("refused", 2),
    "echo": ("kept", True),
    "frequency_penalty": ("kept", 0.5),
    "logit_bias": ("named", {"50256": -100}),
    "logprobs": ("named", 2),
    "max_tokens": ("kept", 50),
    "n": ("kept", 2),
    "presence_penalty": ("kept", 0.5),
    "seed": ("kept", 7),
    "stop": ("kept", ["\n"]),
    "stream": ("kept", False),
    "stream_options": ("kept", None),
    "suffix": ("refused", "the end"),
    "temperature": ("kept", 0.5),
    "top_p": ("kept", 0.5),
    "user": ("kept", "ann"),
}
ROUTES: list[tuple[str, Any, dict[str, tuple[Fate, Any]], dict[str, Any]]] = [
    ("/v1/chat/completions", Chats, CHAT, {"messages": HELLO}),
    ("/v1/responses", Responses, RESPONSE, {"input": "hello"}),
    ("/v1/completions", Completions, COMPLETION, {"prompt": "hello"}),
]


@pytest.mark.parametrize(("path", "resource", "table", "least"), ROUTES)
async def test_every_parameter_of_the_client_has_its_fate(
    path: str, resource: Any, table: dict[str, tuple[Fate, Any]], least: dict[str, Any]
) -> None:
    known = set(inspect.signature(resource.create).parameters) - OF_THE_CLIENT
    assert known == set(table), "decide what becomes of a parameter that is new"

    strict = Settings(token=TOKEN, is_strict=True)
    async with serving(worker()) as served, serving(worker(), settings=strict) as hard:
        for name, (fate, value) in table.items():
            body = {"model": "worker", **least, name: value}
            answer = await served.http.post(path, json=body)
            named = answer.headers.get(IGNORED, "").split(", ")
            refused = await hard.http.post(path, json=body)
            if fate == "refused":
                assert answer.status_code == refused.status_code == 400, name
                assert answer.json()["error"]["param"] == name
                continue
            assert answer.status_code == 200, (name, answer.text)
            assert (name in named) == (fate in {"named", "told"}), (name, named)
            if fate == "named":
                error = refused.json()["error"]
                assert (error["param"], error["code"]) == (name, "unsupported_parameter")
            else:
                assert refused.status_code == 200, (name, refused.text)


async def test_parts_of_parameters_that_no_agent_keeps_are_named() -> None:
    async with serving(worker()) as served:
        answer = await served.http.post(
            "/v1/responses",
            json={
                "model": "worker",
                "input": "hello",
                "text": {"verbosity": "low"},
                "include": ["message.output_text.logprobs"],
                "truncation": "auto",
            },
        )

    assert answer.headers[IGNORED].split(", ") == [
        "include.message.output_text.logprobs",
        "text.verbosity",
        "truncation",
    ]


async def test_counting_input_tokens_starts_no_run() -> None:
    async with serving(worker()) as served:
        count = served.openai.responses.input_tokens.count
        little = await count(model="worker", input="hello")
        much = await count(model="worker", input="hello " * 400, instructions="brief")
        assert not served.orchestrator.read.session_ids

    assert little.object == "response.input_tokens"
    assert 0 < little.input_tokens < much.input_tokens
    assert 500 <= much.input_tokens - little.input_tokens <= 700
