"""The metrics of the server."""

from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.agents import Agent, ScriptedModel
from tests.kit import worker
from tests.server.chat_kit import HELLO
from tests.server.kit import Served, serving
from tests.server.raw_http import asking, exchanged
from tests.server.runs_kit import ended, started

pytestmark = pytest.mark.realtime


async def scraped(served: Served) -> dict[tuple[str, frozenset[Any]], float]:
    """Return what `/metrics` says, as Prometheus reads it."""
    text = (await served.http.get("/metrics")).text
    return {
        (sample.name.removeprefix("orchestrator_"), frozenset(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**given: str) -> frozenset[Any]:
    return frozenset(given.items())


async def test_requests_runs_and_usage_are_counted() -> None:
    failing = Agent("failing", model=ScriptedModel([]))
    async with serving(worker(), failing) as served:
        await ended(served, (await started(served, "worker"))["id"])
        await ended(served, (await started(served, "failing"))["id"])
        await exchanged(served.url, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = await scraped(served)
        last = served.orchestrator.read.records.last_seq

    posted = {"method": "POST", "path": "/v1/runs"}
    assert got["http_requests_total", labels(**posted, status="202")] == 2
    assert got["http_request_seconds_count", labels(**posted)] == 2
    assert got["http_refused_total", labels(status="401")] == 1
    assert got["runs_started_total", labels(kind="run")] == 2
    assert got["runs_ended_total", labels(kind="run", ending="succeeded")] == 1
    assert got["runs_ended_total", labels(kind="run", ending="failed")] == 1
    assert got["runs_under_way", labels()] == 0
    assert got["tasks_working", labels()] == 0
    assert got["http_requests_under_way", labels()] == 1  # this one
    assert got["http_event_streams", labels()] == 0
    assert got["journal_last_seq", labels()] == last


async def test_streams_and_runs_under_way_are_counted() -> None:
    async with serving(worker(seconds=1_000)) as served:
        run = (await started(served, "worker"))["id"]
        async with await asking(served.url, f"/v1/runs/{run}/events") as reader:
            received = b""
            with trio.fail_after(20):
                while b"TurnStarted" not in received:
                    received += await reader.receive_some()
            got = await scraped(served)

    assert got["http_event_streams", labels()] == 1
    assert got["runs_under_way", labels()] == 1
    assert got["tasks_working", labels()] == 1


async def test_a_stream_that_fails_before_it_begins_is_counted_by_its_status() -> None:
    async with serving(Agent("failing", model=ScriptedModel([]))) as served:
        body = {"model": "failing", "messages": HELLO, "stream": True}
        answer = await served.http.post("/v1/chat/completions", json=body)
        got = await scraped(served)

    asked = {"method": "POST", "path": "/v1/chat/completions"}
    status = str(answer.status_code)
    assert status != "200"
    assert got["http_requests_total", labels(**asked, status=status)] == 1
    assert ("http_requests_total", labels(**asked, status="200")) not in got


async def test_a_conversation_is_under_way_during_its_turns_and_ends_when_it_is_closed() -> None:
    async with serving(worker()) as served:
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        session = f"/v1/sessions/{opened.json()['id']}"
        idle = await scraped(served)
        await served.http.post(f"{session}/messages", json={"text": "go"})
        await served.http.get(f"{session}/inbox?wait=20")
        answered = await scraped(served)
        await served.http.post(f"{session}/close")
        closed = await scraped(served)

    assert idle["runs_under_way", labels()] == 0
    assert answered["runs_under_way", labels()] == 0
    ended_ = "runs_ended_total", labels(kind="conversation", ending="closed")
    assert ended_ not in answered
    assert closed[ended_] == 1
