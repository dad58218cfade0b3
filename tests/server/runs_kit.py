"""Helpers for tests of runs: agents, event streams read to their end, raw readers."""

import json
from typing import Any

import attrs
import httpx2
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolMessage, Transcript, UserMessage
from tests.kit import hand_on, worker
from tests.server.kit import TOKEN, Served


@attrs.frozen
class Event:
    """One server-sent event."""

    name: str
    id: int | None
    data: Any


def events_in(text: str) -> list[Event]:
    """Return the events of a stream; comments are no events."""
    events: list[Event] = []
    for block in text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.split("\n") if line[:1] not in {":", ""}
        )
        if fields:
            id_ = int(fields["id"]) if "id" in fields else None
            events.append(Event(fields["event"], id_, json.loads(fields["data"])))
    return events


async def events_of(served: Served, run: str, query: str = "", **headers: str) -> list[Event]:
    """Read the events of a run until the stream ends."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await served.http.get(f"/v1/runs/{run}/events{query}", headers=names)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_in(answer.text)


async def read_raw(url: str, path: str) -> str:
    """Read a response on a connection of its own until the server closes it."""
    _, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        received = bytearray()
        async for chunk in stream:
            received += chunk
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert b" 200 " in head, head
    return _unchunked(body).decode()


def _unchunked(body: bytes) -> bytes:
    whole = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16)
        whole += rest[:count]
        body = rest[count + 2 :]
    return bytes(whole)


async def started(served: Served, agent: str, goal: Any = "go", **more: Any) -> Any:
    """Begin a run, and return how it is shown."""
    answer = await served.http.post("/v1/runs", json={"agent": agent, "input": goal, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def ended(served: Served, run: str) -> Any:
    """Wait until a run is over, and return how it is shown."""
    await events_of(served, run)
    return (await served.http.get(f"/v1/runs/{run}")).json()


def boss(*, helper: Agent | None = None, background: bool = True) -> Agent:
    """Return an agent that delegates two goals, and counts their notices."""
    helper = helper or worker("helper", says="found it")

    def say(transcript: Transcript) -> Any:
        said = [it for it in transcript if isinstance(it, UserMessage)]
        if len(said) > 1:
            return f"heard: {len(said) - 1}"
        if any(isinstance(it, ToolMessage) for it in transcript):
            return "they are at it"
        return hand_on("one", "two", agent="helper", background=background)

    return Agent("boss", model=ScriptedModel.always(say), delegates=[helper])


def problem(answer: httpx2.Response) -> Any:
    """Return what an error says; it has OpenAI's shape."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error
