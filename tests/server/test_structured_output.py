"""An answer in JSON by a schema of the client, in both protocols, by the official client."""

import json
from typing import Any

import msgspec
import openai
import pytest
import trio
from pydantic import BaseModel, ConfigDict

from orchestrator.agents import Agent, ToolCall, agent, tool
from orchestrator.testing import SpyModel
from tests.server.chat_kit import HELLO, answering
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves its connection to the garbage collector when a stream ends.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


class Sum(BaseModel):
    model_config = ConfigDict(extra="forbid")

    total: int
    words: list[str] = []


class Total(BaseModel):
    total: int


class OwnSum(msgspec.Struct):
    total: int


ANSWER = '{"total": 3, "words": ["a"]}'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
}


def adds(*answers: str) -> SpyModel:
    """Return a model that calls a tool with some words before it answers."""
    given = iter(answers)
    return answering(lambda _: next(given))


def json_schema(schema: dict[str, Any]) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}


async def test_a_chat_completion_is_parsed() -> None:
    model = adds(ANSWER)
    async with serving(Agent("a", model=model)) as served:
        answer = await served.openai.chat.completions.parse(
            model="a", messages=HELLO, response_format=Sum
        )

    assert answer.choices[0].message.parsed == Sum(total=3, words=["a"])
    (request,) = model.requests
    assert request.output is not None
    assert request.output["required"] == ["total", "words"]


async def test_an_answer_that_does_not_fit_is_repaired() -> None:
    model = adds("I think it is 3.", '{"total": "three"}', "unused")
    async with serving(Agent("a", model=model)) as served:
        with pytest.raises(openai.InternalServerError) as refused:
            await served.openai.chat.completions.create(
                model="a", messages=HELLO, response_format=json_schema(SCHEMA)
            )
    model = adds("I think it is 3.", '{"total": 3}')
    async with serving(Agent("a", model=model)) as served:
        answer = await served.openai.chat.completions.create(
            model="a", messages=HELLO, response_format=json_schema(SCHEMA)
        )

    assert refused.value.code == "invalid_output"
    assert answer.choices[0].message.content == '{"total": 3}'


async def test_any_json_object_can_be_asked_for() -> None:
    model = adds("[1]", '{"a": 1}')
    async with serving(Agent("a", model=model)) as served:
        answer = await served.openai.chat.completions.create(
            model="a", messages=HELLO, response_format={"type": "json_object"}
        )

    assert answer.choices[0].message.content == '{"a": 1}'


@pytest.mark.parametrize("own", [str, OwnSum])
async def test_a_response_is_parsed(own: Any) -> None:
    """The schema of the client is asked of the answer, also where the agent has another one."""
    async with serving(Agent("a", model=adds(ANSWER), output=own)) as served:
        response = await served.openai.responses.parse(model="a", input="add", text_format=Sum)
        again = await served.openai.responses.retrieve(response.id)

    assert response.output_parsed == Sum(total=3, words=["a"])
    assert again.text is not None
    assert again.text.format is not None
    assert again.text.format.type == "json_schema"


async def test_the_own_schema_of_the_agent_is_accepted() -> None:
    agent = Agent("a", model=adds('{"total": 3}'), output=OwnSum)
    schema: Any = {**(agent.answer_schema or {}), "title": "Another name"}
    async with serving(agent) as served:
        answer = await served.openai.chat.completions.create(
            model="a", messages=HELLO, response_format=json_schema(schema)
        )
        run = answer.to_dict()["run_id"]
        session = served.orchestrator.read.records.sessions[run]  # type: ignore[index]

    assert answer.choices[0].message.content == '{"total": 3}'
    assert session.terms.output_schema is None


@tool(idempotent=True)
async def look(at: str) -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return at


@pytest.mark.parametrize("own", [str, OwnSum])
async def test_intermediate_text_is_not_part_of_the_json(own: Any) -> None:
    """A stream and a plain answer have the same text, in both protocols."""
    looks = ("Let me ", "look.", ToolCall("look", {"at": "it"}))
    says = (' {"total"', ": 3}")
    model = speaker(looks, says, looks, says, looks, says, looks, says)
    given = {} if own is OwnSum else {"response_format": json_schema(SCHEMA)}
    text = {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}}
    more: Any = {} if own is OwnSum else text
    agent = Agent("a", model=model, output=own, tools=[look])
    async with serving(agent) as served:
        client = served.openai
        plain = await client.chat.completions.create(model="a", messages=HELLO, **given)
        stream = await client.chat.completions.create(
            model="a", messages=HELLO, stream=True, **given
        )
        streamed = [chunk.choices[0].delta.content or "" async for chunk in stream]
        response = await client.responses.create(model="a", input="go", **more)
        events = await client.responses.create(model="a", input="go", stream=True, **more)
        deltas = [
            event.delta async for event in events if event.type == "response.output_text.delta"
        ]

    assert json.loads(plain.choices[0].message.content or "") == {"total": 3}
    assert json.loads("".join(streamed)) == {"total": 3}
    assert json.loads(response.output_text) == {"total": 3}
    assert json.loads("".join(deltas)) == {"total": 3}


async def test_structured_output_is_streamed_while_it_is_written() -> None:
    go = trio.Event()
    model = speaker(("  ", '{"total"', go, ": 3}"))
    shown: list[str] = []
    async with serving(Agent("a", model=model)) as served:
        async with served.openai.chat.completions.stream(
            model="a", messages=HELLO, response_format=Total
        ) as stream:
            async for event in stream:
                if event.type == "content.delta" and event.delta:
                    shown.append(event.delta)
                    go.set()
            final = await stream.get_final_completion()

    assert shown == ['  {"total"', ": 3}"]
    assert final.choices[0].message.parsed == Total(total=3)


async def test_a_repaired_answer_is_the_only_one_of_a_streamed_response() -> None:
    model = speaker(('{"total": ', '"three"}'), ('{"total": ', "3}"))
    async with serving(Agent("a", model=model)) as served:
        async with served.openai.responses.stream(
            model="a", input="go", text_format=Total
        ) as stream:
            final = await stream.get_final_response()

    assert final.output_parsed == Total(total=3)


async def test_a_chat_that_was_repaired_after_it_was_sent_is_an_error() -> None:
    model = speaker(('{"total": ', '"three"}'), ('{"total": ', "3}"))
    async with serving(Agent("a", model=model)) as served:
        stream = await served.openai.chat.completions.create(
            model="a", messages=HELLO, stream=True, response_format=json_schema(SCHEMA)
        )
        with pytest.raises(openai.APIError) as refused:
            async for _ in stream:
                pass

    assert refused.value.code == "output_repaired"


@pytest.mark.parametrize(
    "schema", [{"$ref": "https://example.org/schema"}, {"type": "nothing"}, {"pattern": "(?=a)"}]
)
async def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any]) -> None:
    async with serving(Agent("a", model=adds("unused"))) as served:
        with pytest.raises(openai.BadRequestError) as chat:
            await served.openai.chat.completions.create(
                model="a", messages=HELLO, response_format=json_schema(schema)
            )
        with pytest.raises(openai.BadRequestError) as response:
            await served.openai.responses.create(
                model="a",
                input="go",
                text={"format": {"type": "json_schema", "name": "s", "schema": schema}},
            )

    assert chat.value.param == "response_format.json_schema.schema"
    assert response.value.param == "text.format.schema"


async def test_a_pipeline_of_text_promises_no_json() -> None:
    @agent
    async def echo(goal: str) -> str:
        await trio.lowlevel.checkpoint()
        return goal

    async with serving(echo) as served:
        with pytest.raises(openai.BadRequestError) as refused:
            await served.openai.chat.completions.create(
                model="echo", messages=HELLO, response_format={"type": "json_object"}
            )

    assert refused.value.param == "response_format"
