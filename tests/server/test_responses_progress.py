"""A stream of a response tells who asks what the tasks below its agent do."""

from typing import Any

import pytest
import trio

from orchestrator.agents import Agent
from orchestrator.products.server.openai.requested_settings import IGNORED
from orchestrator.testing import hand_on
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

KEY = "sk-proj-" + "1234567890abcdef"
ASK: Any = {"extra_body": {"include_progress": True}}


def team(go: trio.Event) -> Agent:
    reader = Agent("reader", model=speaker((go, "found")))
    model = speaker(("One moment.", hand_on(f"dig with {KEY}")), "It is Lima.")
    return Agent("boss", model=model, delegates=[reader])


def progress_of(event: Any) -> str:
    """Return what an event tells besides what the client knows of it."""
    return str(getattr(event, "progress", ""))


async def test_progress_is_streamed_before_there_is_an_answer() -> None:
    go = trio.Event()
    told: list[str] = []
    numbers: list[int] = []
    async with serving(team(go)) as served:
        async with served.openai.responses.stream(model="boss", input="?", **ASK) as stream:
            async for event in stream:
                numbers.append(event.sequence_number)
                if text := progress_of(event):
                    assert event.type == "response.in_progress"
                    told.append(text)
                    if "begins: " in text:
                        # It is told before the child has answered.
                        go.set()
            final = await stream.get_final_response()

    lines = "\n".join(told).splitlines()
    assert [it.partition("]")[2] for it in lines] == [" begins: dig with ***", " succeeded"]
    assert all(it.startswith("/boss/reader[") for it in lines)
    assert numbers == sorted(numbers)
    assert final.output_text == "One moment.\n\nIt is Lima."


async def test_sequence_numbers_are_the_same_with_and_without_progress() -> None:
    go = trio.Event()
    go.set()
    shapes: list[Any] = []
    ways: list[Any] = [ASK, {}]
    for asked in ways:
        async with serving(team(go)) as served:
            create = served.openai.responses.create
            stream = await create(model="boss", input="?", stream=True, **asked)
            events = [it async for it in stream]
        shapes.append(
            [
                (it.type, it.sequence_number)
                for it in events
                if "delta" not in it.type and not progress_of(it)
            ]
        )
        assert any(map(progress_of, events)) == bool(asked)

    assert shapes[0] == shapes[1]


async def test_a_retrieved_running_response_may_include_progress() -> None:
    go = trio.Event()
    async with serving(team(go)) as served:
        responses = served.openai.responses
        begun = await responses.create(model="boss", input="?", background=True)
        stream = await responses.retrieve(
            begun.id, stream=True, extra_query={"include_progress": "true"}
        )
        told = ""
        async for event in stream:
            told += progress_of(event)
            if event.type == "response.created":
                go.set()

    assert "succeeded" in told


async def test_without_a_stream_it_is_named() -> None:
    go = trio.Event()
    go.set()
    async with serving(team(go)) as served:
        body = {"model": "boss", "input": "?", "include_progress": True}
        answer = await served.http.post("/v1/responses", json=body)

    assert answer.headers[IGNORED] == "include_progress"
