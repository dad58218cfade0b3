"""A client of AG-UI that checks each event as `@ag-ui/client` does, and keeps the messages.

`agui_events.json` is the schema of all events in `ag-ui-protocol` 1.0.0, without descriptions.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import h11
import jsonschema_rs
import trio

from tests.server.kit import TOKEN, Served
from tests.server.raw_http import connected

SCHEMA = json.loads((Path(__file__).parent / "agui_events.json").read_text())
VALIDATORS = {
    it["properties"]["type"]["const"]: jsonschema_rs.validator_for({**SCHEMA, "oneOf": [it]})
    for name, it in SCHEMA["$defs"].items()
    if name.endswith("Event")
}


def run_input(text: str = "go", *, thread: str = "t1", run: str = "r1", **more: Any) -> Any:
    """Return the input of a run with one message."""
    messages = [{"id": "u1", "role": "user", "content": text}] if text else []
    return {"threadId": thread, "runId": run, "messages": messages, **more}


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a whole stream."""
    lines = [it[6:] for it in text.split("\n") if it.startswith("data: ")]
    return [json.loads(it) for it in lines]


async def post(served: Served, body: Any, path: str = "/agui", **options: Any) -> "AguiRun":
    """Run an agent, read its stream to the end, and check it."""
    answer = await served.http.post(path, json=body, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    run = AguiRun(body["messages"], answer.headers["x-run-id"])
    for event in events_of(answer.text):
        run.take(event)
    assert run.end is not None, "the stream has no end"
    return run


@asynccontextmanager
async def reading(served: Served, body: Any) -> AsyncGenerator["OpenStream"]:
    """Run an agent on a connection of its own; the end of the block disconnects."""
    async with connected(served.url) as connection:
        content = json.dumps(body).encode()
        head = [("host", "127.0.0.1"), ("authorization", f"Bearer {TOKEN}")]
        head += [("content-type", "application/json"), ("content-length", str(len(content)))]
        parser = h11.Connection(h11.CLIENT)
        sent = parser.send(h11.Request(method="POST", target="/agui", headers=head)) or b""
        sent += parser.send(h11.Data(data=content)) or b""
        await connection.send_all(sent + (parser.send(h11.EndOfMessage()) or b""))
        yield OpenStream(AguiRun(body["messages"]), connection, parser)


@attrs.define
class OpenStream:
    """A stream that is read event by event."""

    run: "AguiRun"
    _connection: trio.SocketStream
    _parser: h11.Connection
    _rest: str = ""
    _due: deque[dict[str, Any]] = attrs.field(factory=deque[dict[str, Any]])

    async def next(self) -> dict[str, Any] | None:
        """Return the next event, checked; None at the end of the stream."""
        while not self._due:
            match self._parser.next_event():
                case h11.NEED_DATA:
                    self._parser.receive_data(await self._connection.receive_some())
                case h11.Response() as answer:
                    assert answer.status_code == 200, answer
                    self.run.id = dict(answer.headers)[b"x-run-id"].decode()
                case h11.Data() as data:
                    *whole, self._rest = (self._rest + data.data.decode()).split("\n\n")
                    self._due += events_of("\n".join(whole))
                case _:
                    return None
        event = self._due.popleft()
        self.run.take(event)
        return event


@attrs.define
class AguiRun:
    """The events of one stream, and the state that a client makes of them."""

    given: list[Any]
    id: str = ""
    events: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    messages: dict[str, Any] = attrs.field(init=False)
    state: Any = None
    end: dict[str, Any] | None = None
    _open: set[tuple[str, str]] = attrs.field(factory=set[tuple[str, str]])
    _agents: set[str] = attrs.field(factory=set[str])
    """The subagents that have begun."""

    def __attrs_post_init__(self) -> None:
        self.messages = {it["id"]: {**it} for it in self.given}

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [it for it in self.events if it["type"] in kinds]

    @property
    def texts(self) -> list[str]:
        """The texts of the agent itself."""
        return [
            it["content"]
            for it in self.messages.values()
            if it["role"] == "assistant" and it.get("content") and "subagentRunId" not in it
        ]

    def take(self, event: dict[str, Any]) -> None:
        """Check an event, and apply it."""
        VALIDATORS[event["type"]].validate(event)
        assert self.end is None, f"{event} comes after the end"
        assert bool(self.events) or event["type"] == "RUN_STARTED", event
        self.events.append(event)
        kind = event["type"]
        if kind.startswith("TEXT_MESSAGE"):
            self._take_text(kind.rpartition("_")[2], event)
        elif kind.startswith("TOOL_CALL"):
            self._take_call(kind.rpartition("_")[2], event)
        elif kind.startswith("SUBAGENT"):
            self._take_subagent(kind.rpartition("_")[2], event)
        elif kind == "MESSAGES_SNAPSHOT":
            self.messages = {it["id"]: it for it in event["messages"]}
        elif kind == "STATE_SNAPSHOT":
            self.state = event["snapshot"]
        elif kind == "STATE_DELTA":
            self._patch(event["delta"])
        elif kind in {"RUN_FINISHED", "RUN_ERROR"}:
            assert kind == "RUN_ERROR" or not self._open, self._open
            self.end = event

    def _take_text(self, kind: str, event: dict[str, Any]) -> None:
        id_ = event["messageId"]
        made = {"id": id_, "role": event.get("role"), "content": "", **_owner(event)}
        if kind == "START":
            self._begin("message", id_)
            self.messages.setdefault(id_, made).setdefault("content", "")
        elif kind == "CONTENT":
            assert ("message", id_) in self._open, event
            self.messages[id_]["content"] += event["delta"]
        else:
            self._open.remove(("message", id_))

    def _take_call(self, kind: str, event: dict[str, Any]) -> None:
        id_ = event["toolCallId"]
        if kind == "START":
            self._begin("call", id_)
            holder = {"id": event["parentMessageId"], "role": "assistant", **_owner(event)}
            holder = self.messages.setdefault(event["parentMessageId"], holder)
            assert holder.get("subagentRunId") == event.get("subagentRunId")
            function = {"name": event["toolCallName"], "arguments": ""}
            call = {"id": id_, "type": "function", "function": function}
            holder.setdefault("toolCalls", []).append(call)
        elif kind == "ARGS":
            assert ("call", id_) in self._open, event
            self._function(id_)["arguments"] += event["delta"]
        elif kind == "END":
            self._open.remove(("call", id_))
        else:
            message = {"id": event["messageId"], "role": "tool", "toolCallId": id_}
            message |= {"content": event["content"], **_owner(event)}
            self.messages[event["messageId"]] = message

    def _take_subagent(self, kind: str, event: dict[str, Any]) -> None:
        id_ = event["subagentRunId"]
        if kind == "STARTED":
            assert id_ not in self._agents, event
            assert event.get("parentSubagentRunId", id_) in {*self._agents, id_}, event
            self._agents.add(id_)
            self._begin("subagent", id_)
        else:
            self._open.remove(("subagent", id_))

    def _begin(self, kind: str, id_: str) -> None:
        assert (kind, id_) not in self._open, (kind, id_)
        self._open.add((kind, id_))

    def _function(self, call: str) -> dict[str, str]:
        calls = [it for each in self.messages.values() for it in each.get("toolCalls", ())]
        found: dict[str, str] = next(it["function"] for it in calls if it["id"] == call)
        return found

    def _patch(self, delta: list[dict[str, Any]]) -> None:
        for change in delta:
            *path, last = change["path"].strip("/").split("/")
            target = self.state
            for name in path:
                target = target[name]
            assert (change["op"] == "add") != (last in target), change
            target[last] = change["value"]


def _owner(event: dict[str, Any]) -> dict[str, str]:
    return {it: event[it] for it in ("subagentRunId",) if it in event}
