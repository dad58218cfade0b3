"""Reasoning in responses: shown to those who ask, sent back, and streamed."""

from typing import Any

import pytest

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    ReasoningBlock,
    ReasoningDelta,
    ToolCall,
    Usage,
)
from orchestrator.delegation.events import ModelAnswered
from orchestrator.testing import SpyModel
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
SUMMARY: Any = {"summary": "auto"}
ENCRYPTED: Any = ["reasoning.encrypted_content"]
CALL = ToolCall("weather", {}, id=CallId("c_1"))
BLOCK = ReasoningBlock("speaker", {"type": "thinking", "signature": "c2ln"})
SECRET = "correct-horse-battery"


def thinker(*answers: Any) -> SpyModel:
    """Return a model that thinks before each of its answers."""
    return speaker(*((ReasoningDelta("Let me "), ReasoningDelta("see."), it) for it in answers))


def caller() -> SpyModel:
    """Return a model that calls a tool of the client, and wants its thoughts back."""
    call = AssistantMessage("", (CALL,), Usage(calls=1), "speaker", reasoning=(BLOCK,))
    return speaker((ReasoningDelta("I ask."), call), "foggy", "foggy")


async def test_reasoning_is_an_item_on_request() -> None:
    async with serving(Agent("a", model=thinker("42", "43"))) as served:
        responses = served.openai.responses
        asked = await responses.create(model="a", input="?", reasoning=SUMMARY)
        again = await responses.retrieve(asked.id)
        plain = await responses.create(model="a", input="?")
        facts = [
            it.event
            for id_ in served.orchestrator.runs
            for it in await served.orchestrator.read.entries(id_)
        ]

    thought: Any = asked.output[0]
    assert [it.type for it in asked.output] == ["reasoning", "message"]
    assert thought.summary[0].text == "Let me see."
    assert (asked.output_text, asked.output[-1].id) == (
        "42",
        asked.id.replace("resp", "msg") + "_1",
    )
    assert asked.reasoning is not None
    assert asked.reasoning.summary == "auto"
    assert again.output == asked.output
    assert [it.type for it in plain.output] == ["message"]
    # What no client asks for is not recorded.
    kept = [bool(it.message.reasoning) for it in facts if isinstance(it, ModelAnswered)]
    assert kept == [True, False]


async def test_reasoning_is_streamed_with_events_of_openai_and_can_be_resumed() -> None:
    async with serving(Agent("a", model=thinker("42"))) as served:
        responses = served.openai.responses
        events = [
            it
            async for it in await responses.create(
                model="a", input="?", reasoning=SUMMARY, stream=True
            )
        ]
        id_ = events[-1].response.id  # type: ignore[union-attr]
        later = [it async for it in await responses.retrieve(id_, stream=True)]
        numbers = [it.sequence_number for it in events]
        rest = [
            it async for it in await responses.retrieve(id_, stream=True, starting_after=numbers[4])
        ]

    names = [it.type.removeprefix("response.") for it in events]
    assert [name for name in names if not name.endswith("delta")] == [
        *("created", "in_progress", "output_item.added"),
        *("reasoning_summary_part.added", "reasoning_summary_text.done"),
        *("reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.done"),
        *("content_part.done", "output_item.done", "completed"),
    ]
    deltas: list[Any] = [it for it in events if "summary_text.delta" in it.type]
    assert "".join(it.delta for it in deltas) == "Let me see."
    assert numbers == sorted(set(numbers))
    shape = [(it.type, it.sequence_number) for it in events if "delta" not in it.type]
    assert [(it.type, it.sequence_number) for it in later if "delta" not in it.type] == shape
    assert rest[0].sequence_number > numbers[4]
    assert rest[-1] == events[-1]


async def test_reasoning_goes_back_to_its_provider_with_the_results_of_calls() -> None:
    """By the id of the response, by the item, and by a reference to it."""
    result: Any = {"type": "function_call_output", "call_id": "c_1", "output": "fog"}
    question: Any = {"role": "user", "content": "?"}
    sent: list[Any] = []
    for way in ("id", "items", "references"):
        model = caller()
        async with serving(Agent("a", model=model)) as served:
            create = served.openai.responses.create
            first = await create(model="a", input="?", tools=[WEATHER], include=ENCRYPTED)
            assert [it.type for it in first.output] == ["reasoning", "function_call"]
            if way == "id":
                more: Any = {"previous_response_id": first.id, "input": [result]}
            elif way == "items":
                dumped = [it.model_dump(exclude_none=True) for it in first.output]
                more = {"input": [question, *dumped, result]}
            else:
                ids = [{"type": "item_reference", "id": it.id} for it in first.output]
                more = {"input": [question, *ids, result]}
            second = await create(model="a", tools=[WEATHER], **more)
            assert second.output_text == "foggy"
        sent.append(model.requests[-1].transcript[1])

    assert [it.reasoning for it in sent] == [(BLOCK,)] * 3


async def test_foreign_or_missing_reasoning_is_left_out() -> None:
    model = speaker("42")
    foreign = ("gAAAAA", "not base64", "cl8wMTIzNDU2Nzg5YWJjZGVmIG1fMQ==")
    thoughts = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": it}
        for it in foreign
    ]
    items: Any = [
        {"role": "user", "content": "?"},
        *thoughts,
        {"role": "assistant", "content": "!"},
        {"role": "user", "content": "??"},
    ]
    async with serving(Agent("a", model=model)) as served:
        answer = await served.openai.responses.create(model="a", input=items)

    assert answer.output_text == "42"
    assert [it.text for it in model.requests[-1].transcript] == ["?", "!", "??"]


async def test_a_secret_in_reasoning_is_neither_shown_nor_stored() -> None:
    thoughts = [ReasoningDelta(it) for it in ("The key is correct-", "horse-battery. ")]
    agent = Agent("a", model=speaker((*thoughts, "42")))
    async with serving(agent, environ={"MY_API_KEY": SECRET}) as served:
        stream = await served.openai.responses.create(
            model="a", input="?", reasoning=SUMMARY, stream=True
        )
        shown = [it.to_json() async for it in stream]

    assert not any("horse" in it for it in shown)
    assert any("The key is" in it for it in shown)
