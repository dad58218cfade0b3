"""Responses as events: live, late, again, and to the end in every case."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import trio
from openai.types.responses import FunctionToolParam, Response, ResponseStreamEvent
from pydantic import TypeAdapter

from orchestrator.agents import Agent, Failure, ModelError, ToolCall
from tests.kit import hand_on, worker
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
LOOK: FunctionToolParam = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object"},
    "strict": False,
}


async def told(stream: AsyncIterator[Any]) -> list[dict[str, Any]]:
    """Return all events of a stream, each of which is what the client's types say."""
    events: list[dict[str, Any]] = []
    async for event in stream:
        events.append(event.to_dict(mode="json"))
        EVENT.validate_python(events[-1])
    return events


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def require_whole(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Require that the events of a stream fit each other, and return the response."""
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    ends = [
        number
        for number, name in enumerate(names(events))
        if name in {"completed", "failed", "incomplete"}
    ]
    assert ends == [len(events) - 1]
    response: dict[str, Any] = events[-1]["response"]
    Response.model_validate(response)
    done = [it["item"] for it in events if it["type"].endswith("output_item.done")]
    assert done == response["output"]
    for number, item in enumerate(done):
        pieces = [
            event["delta"]
            for event in events
            if event["type"].endswith(".delta") and event["output_index"] == number
        ]
        is_call = item["type"] == "function_call"
        whole = item["arguments"] if is_call else item["content"][0]["text"]
        assert "".join(pieces) == whole
    return response


async def test_a_stream_ends_with_the_stored_response() -> None:
    model = speaker(("Let me", " see.", hand_on("look")), ("It is", " 42", "."))
    agent = Agent("editor", model=model, delegates=[worker("helper")])
    async with serving(agent) as served:
        stream = await served.openai.responses.create(model="editor", input="?", stream=True)
        events = await told(stream)
        kept = await served.http.get(f"/v1/responses/{events[0]['response']['id']}")

    assert require_whole(events) == kept.json()
    assert kept.json()["status"] == "completed"
    assert stream.response.headers["x-run-id"] == kept.json()["run"]
    item = ["output_item.added", "content_part.added"]
    done = ["output_text.done", "content_part.done", "output_item.done"]
    assert list(dict.fromkeys(names(events))) == [
        *("created", "in_progress"),
        *(*item, "output_text.delta", *done, "completed"),
    ]


async def test_the_client_puts_a_stream_together_by_itself() -> None:
    model = speaker(("It", " is", ToolCall("look")))
    async with serving(Agent("agent", model=model)) as served:
        async with served.openai.responses.stream(model="agent", input="?", tools=[LOOK]) as stream:
            response = await stream.get_final_response()

    assert response.output_text == "It is"
    assert [item.type for item in response.output] == ["message", "function_call"]


async def test_function_calls_are_streamed_like_texts() -> None:
    model = speaker(("I", " look", ToolCall("look", {"at": "it"}), ToolCall("look")))
    async with serving(Agent("agent", model=model)) as served:
        stream = await served.openai.responses.create(
            model="agent", input="?", stream=True, tools=[LOOK]
        )
        response = require_whole(await told(stream))

    _, *calls = response["output"]
    assert [call["arguments"] for call in calls] == ['{"at": "it"}', "{}"]


async def test_text_is_streamed_while_the_model_writes() -> None:
    gate = trio.Event()
    model = speaker(("It", gate, " is"))
    async with serving(Agent("agent", model=model)) as served:
        stream = await served.openai.responses.create(model="agent", input="?", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta" and not gate.is_set():
                assert event.delta == "It"
                gate.set()

    assert event.type == "response.completed"


async def test_two_read_at_once_and_others_come_back_anywhere() -> None:
    """Reading takes nothing away, and the numbers are the same for all."""
    gate = trio.Event()
    model = speaker(("So,", " so", hand_on("look", background=True)), (gate, "42"), "!")
    agent = Agent("editor", model=model, delegates=[worker("helper")])
    read: list[list[dict[str, Any]]] = []
    async with serving(agent) as served:
        responses = served.openai.responses
        begun = await responses.create(model="editor", input="?", background=True)

        async def read_all() -> None:
            read.append(await told(await responses.retrieve(begun.id, stream=True)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all)
            nursery.start_soon(read_all)
            await model.wait_called(2)
            gate.set()
        whole = await told(await responses.retrieve(begun.id, stream=True))
        require_whole(whole)
        last = whole[-1]["sequence_number"]
        for after in range(last):
            rest = await responses.retrieve(begun.id, stream=True, starting_after=after)
            read.append([*had(whole, after), *await told(rest)])

    for events in read:
        assert require_whole(events) == whole[-1]["response"]
        assert others(events) == others(whole)


def had(whole: list[dict[str, Any]], after: int) -> list[dict[str, Any]]:
    """Return what a reader has that was cut off behind a number."""
    events = []
    for event in whole:
        too_much = event["sequence_number"] - after
        if too_much <= 0:
            events.append(event)
        elif event["type"].endswith(".delta") and too_much < len(event["delta"]):
            cut = event["delta"][: -too_much or None]
            events.append({**event, "delta": cut, "sequence_number": after})
    return events


def others(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if not event["type"].endswith(".delta")]


async def test_a_client_that_joins_during_an_answer_gets_all_of_it() -> None:
    gate, later = trio.Event(), trio.Event()
    model = speaker(("It", gate, " is", later, " so."))
    async with serving(Agent("agent", model=model)) as served:
        responses = served.openai.responses
        begun = await responses.create(model="agent", input="?", background=True)
        await model.wait_called(1)
        stream = await responses.retrieve(begun.id, stream=True)
        gate.set()
        events: list[dict[str, Any]] = []
        async for event in stream:
            events.append(event.to_dict(mode="json"))
            later.set()

    assert require_whole(events)["output"][0]["content"][0]["text"] == "It is so."


FAULT = ModelError("gone", kind=Failure.CONNECTION, partial="It is")


@pytest.mark.parametrize("store", [True, False])
async def test_a_failed_stream_ends_with_the_error_and_the_text(store: bool) -> None:
    model = speaker(("It", " is", FAULT))
    async with serving(Agent("agent", model=model)) as served:
        stream = await served.openai.responses.create(
            model="agent", input="?", stream=True, store=store
        )
        events = await told(stream)

    response = require_whole(events)
    assert names(events)[-1] == "failed"
    assert response["error"]["type"] == "provider"
    assert response["output"][0]["content"][0]["text"] == "It is"


async def test_the_stream_of_a_cancelled_response_ends_after_its_tree() -> None:
    model = speaker(("So", hand_on("look", background=True)), ("It", trio.Event()))
    helper = Agent("helper", model=speaker((trio.Event(),)))
    agent = Agent("editor", model=model, delegates=[helper])
    async with serving(agent) as served:
        responses = served.openai.responses
        stream = await responses.create(model="editor", input="?", background=True, stream=True)
        events: list[dict[str, Any]] = []
        async with trio.open_nursery() as nursery:
            async for event in stream:
                events.append(event.to_dict(mode="json"))
                if event.type == "response.output_text.delta" and event.delta == "It":
                    id_ = events[0]["response"]["id"]
                    nursery.start_soon(responses.cancel, id_)
        (tree,) = (served.orchestrator.tree(run) for run in served.orchestrator.runs)

    assert names(events).count("failed") == 1
    response = events[-1]["response"]
    assert (response["status"], response["error"]["type"]) == ("cancelled", "cancelled")
    assert tree.counts() == {"cancelled": 2}
    done = [it["item"] for it in events if it["type"].endswith("output_item.done")]
    assert [item["status"] for item in done] == ["completed", "incomplete"]
    assert [item["id"] for item in done] == [it["id"] for it in response["output"]]
    assert response["output"][-1] == done[-1], "what was said until then is kept"


async def test_a_client_that_leaves_a_stream_cancels_only_an_unstored_response() -> None:
    gate = trio.Event()
    model = speaker(("not", gate), ("kept", gate))
    async with serving(Agent("agent", model=model)) as served:
        ledger = served.orchestrator.read.records
        for store in (False, True):
            async with trio.open_nursery() as nursery:
                stream = await served.openai.responses.create(
                    model="agent", input="?", stream=True, store=store
                )
                await nursery.start(read_until, "response.output_text.delta", stream)
                nursery.cancel_scope.cancel()
        unkept, kept = ledger.sessions.values()
        await served.server.state.journals.first.door.wait_over(unkept)
        gate.set()
        await served.server.state.journals.first.door.wait_over(kept)

    assert [str(it.last_outcome and it.last_outcome.ending) for it in (unkept, kept)] == [
        "cancelled",
        "succeeded",
    ]


async def read_until(
    name: str,
    stream: AsyncIterator[Any],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    async for event in stream:
        if event.type == name:
            task_status.started()


async def test_a_stream_with_the_same_key_is_attached_to() -> None:
    gate = trio.Event()
    model = speaker(("It", gate, " is"))
    read: list[list[dict[str, Any]]] = []
    async with serving(Agent("agent", model=model)) as served:

        async def ask() -> None:
            stream = await served.openai.responses.create(
                model="agent", input="?", stream=True, extra_headers={"Idempotency-Key": "k"}
            )
            read.append(await told(stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await model.wait_called(1)
            nursery.start_soon(ask)
            gate.set()
        await ask()

    first, *again = [require_whole(events) for events in read]
    assert again == [first, first]
    assert len(model.requests) == 1


async def test_a_wrong_place_to_go_on_from_is_refused() -> None:
    async with serving(worker()) as served:
        response = await served.openai.responses.create(model="worker", input="?")
        for query in ("stream=true&starting_after=x", "stream=perhaps"):
            answer = await served.http.get(f"/v1/responses/{response.id}?{query}")
            assert answer.status_code == 400
        with pytest.raises(openai.NotFoundError):
            await served.openai.responses.retrieve("resp_none", stream=True)
