"""How likely the tokens of an answer were: for clients that ask, where the model says it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, AssistantMessage, ModelRequest, Usage
from orchestrator.agents.logprobs import TokenLogprob, TokenOption
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.delegation.events import ModelAnswered
from orchestrator.products.server.openai.requested_settings import IGNORED
from orchestrator.products.server.state import Settings
from tests.fake_provider import FakeProvider, Say, logprob_of, open_provider
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, Served, serving

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

TEXT = "hello world é"
PIECES = ["hello", " worl", "d é"]
KEY = "sk-proj-" + "1234567890abcdef"
KINDS = [OpenAIModel, ResponsesModel]
INCLUDE: Any = ["message.output_text.logprobs"]


@asynccontextmanager
async def asked(
    kind: type[HttpModel], say: Say, settings: Settings | None = None
) -> AsyncGenerator[tuple[Served, FakeProvider]]:
    """Serve an agent whose model is a real client of a provider that says this."""
    async with open_provider(say) as provider:
        model = kind("gpt-4.1", key="sk-0123456789", base_url=provider.url)
        try:
            agent = Agent("helper", model=model)
            async with serving(agent, settings=settings) as served:
                yield served, provider
        finally:
            await model.aclose()


def expected() -> list[dict[str, Any]]:
    """Return what the provider says, with the bytes that it leaves out."""
    found = [logprob_of(it) for it in PIECES]
    for it in found:
        for other in it["top_logprobs"]:
            other["bytes"] = list(other["token"].encode())
    return found


def dumped(tokens: Any) -> list[dict[str, Any]]:
    return [it.model_dump() for it in tokens]


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_chat_has_them_plain_and_streamed(kind: type[HttpModel], is_plain: bool) -> None:
    say = Say(text=TEXT, has_logprobs=True, is_plain=is_plain)
    async with asked(kind, say) as (served, provider):
        chats = served.openai.chat.completions
        raw = await chats.with_raw_response.create(
            model="helper", messages=HELLO, logprobs=True, top_logprobs=1
        )
        stream = await chats.create(
            model="helper", messages=HELLO, logprobs=True, top_logprobs=1, stream=True
        )
        chunks = [it.choices[0] async for it in stream]
        none = await chats.create(model="helper", messages=HELLO)

    plain: Any = raw.parse().choices[0].logprobs
    assert IGNORED not in raw.headers
    assert dumped(plain.content) == expected()
    assert plain.refusal is None
    assert "".join(it.delta.content or "" for it in chunks) == TEXT
    streamed = [it.logprobs.content for it in chunks if it.logprobs is not None]
    assert [dumped(it) for it in streamed] == [expected()]
    assert provider.heard[0].body["top_logprobs"] == 1
    # A server may send them unasked.
    assert none.choices[0].logprobs is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_response_has_them_plain_streamed_and_later(kind: type[HttpModel]) -> None:
    async with asked(kind, Say(text=TEXT, has_logprobs=True)) as (served, provider):
        responses = served.openai.responses
        first: Any = await responses.create(
            model="helper", input="?", include=INCLUDE, top_logprobs=1
        )
        again: Any = await responses.retrieve(first.id)
        async with responses.stream(
            model="helper", input="?", include=INCLUDE, top_logprobs=1
        ) as stream:
            events: list[Any] = [it async for it in stream]
            final: Any = await stream.get_final_response()
        few: Any = await responses.create(model="helper", input="?", include=INCLUDE)

    assert dumped(first.output[0].content[0].logprobs) == expected()
    assert first.top_logprobs == 1
    assert again.output == first.output
    done = [it for it in events if it.type == "response.output_text.done"]
    assert [dumped(it.logprobs) for it in done] == [expected()]
    assert dumped(final.output[0].content[0].logprobs) == expected()
    assert few.top_logprobs == 0
    assert "top_logprobs" not in provider.heard[-1].body


async def test_the_helpers_of_the_client_collect_the_streamed_ones() -> None:
    say = Say(text=TEXT, has_logprobs=True)
    async with asked(OpenAIModel, say) as (served, _):
        async with served.openai.chat.completions.stream(
            model="helper", messages=HELLO, logprobs=True, top_logprobs=1
        ) as stream:
            final: Any = await stream.get_final_completion()

    assert final.choices[0].message.content == TEXT
    assert dumped(final.choices[0].logprobs.content) == expected()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_secret_that_is_cut_into_tokens_takes_them_along(kind: type[HttpModel]) -> None:
    say = Say(text=f"the key is {KEY}, keep it", has_logprobs=True)
    async with asked(kind, say) as (served, _):
        options: Any = {"logprobs": True, "top_logprobs": 1}
        body = {"model": "helper", "messages": HELLO, **options}
        chat = await served.http.post("/v1/chat/completions", json=body)
        stream = await served.http.post("/v1/chat/completions", json={**body, "stream": True})
        asking = {"model": "helper", "input": "?", "include": INCLUDE}
        response = await served.http.post("/v1/responses", json=asking)
        events = await served.http.post("/v1/responses", json={**asking, "stream": True})
        facts = [
            it.event
            for id_ in served.orchestrator.runs
            for it in await served.orchestrator.read.entries(id_)
        ]

    assert chat.headers[IGNORED] == "logprobs, top_logprobs"
    assert chat.json()["choices"][0]["message"]["content"] == "the key is ***, keep it"
    assert chat.json()["choices"][0]["logprobs"] is None
    assert response.headers[IGNORED] == "include.message.output_text.logprobs"
    assert response.json()["output"][0]["content"][0]["logprobs"] == []
    for text in (chat.text, stream.text, response.text, events.text):
        assert '"logprob"' not in text
        assert KEY[8:13] not in text
    answers = [it.message for it in facts if isinstance(it, ModelAnswered)]
    assert [it.logprobs for it in answers] == [()] * 4


class OddModel:
    """Says one thing, and has the tokens of another."""

    name = "odd"

    def __init__(self, *tokens: TokenLogprob) -> None:
        self._tokens = tokens

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        del request
        await trio.lowlevel.checkpoint()
        return AssistantMessage("fine", usage=Usage(calls=1), logprobs=self._tokens)


@pytest.mark.parametrize(
    ("tokens", "are_shown"),
    [
        ((TokenLogprob("fi", -1.0), TokenLogprob("ne", -1.0)), True),
        ((TokenLogprob(KEY[:10], -1.0), TokenLogprob(KEY[10:], -1.0)), False),
        ((TokenLogprob("fine", -1.0, None, (TokenOption(KEY, -2.0),)),), False),
    ],
)
async def test_no_token_and_no_alternative_leaks_a_secret(
    tokens: tuple[TokenLogprob, ...], are_shown: bool
) -> None:
    async with serving(Agent("odd", model=OddModel(*tokens))) as served:
        answer = await served.http.post(
            "/v1/chat/completions", json={"model": "odd", "messages": HELLO, "logprobs": True}
        )

    assert KEY[10:] not in answer.text
    assert (answer.json()["choices"][0]["logprobs"] is not None) == are_shown
    assert (IGNORED not in answer.headers) == are_shown


async def test_a_model_without_logprobs_is_reported_in_a_header() -> None:
    async with asked(OpenAIModel, Say(text=TEXT)) as (served, _):
        answer = await served.openai.chat.completions.with_raw_response.create(
            model="helper", messages=HELLO, logprobs=True
        )

    assert answer.headers[IGNORED] == "logprobs"
    assert answer.parse().choices[0].logprobs is None


async def test_a_model_that_cannot_is_not_asked_and_strict_servers_refuse() -> None:
    agent = Agent("claude", model="anthropic:claude-opus-5")
    strict = Settings(token=TOKEN, is_strict=True)
    body = {"model": "claude", "messages": HELLO, "logprobs": True}
    async with serving(agent, settings=strict) as served:
        refused = await served.http.post("/v1/chat/completions", json=body)

    error = refused.json()["error"]
    assert refused.status_code == 400
    assert (error["param"], error["code"]) == ("logprobs", "unsupported_parameter")
