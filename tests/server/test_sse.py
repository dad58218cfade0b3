"""Every stream has one end, and the work for its client ends with it."""

import json
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import DeliveryCapability
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.doors.inbound import InboundRequest, goal_message
from orchestrator.kernel.errors import JournalError
from orchestrator.products.server.app import application
from orchestrator.products.server.keys.store import DEFAULT_KEY, Access, KeyStore
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.products.server.transport.sse import WRITE_SECONDS, EventStream, EventWriter
from tests.kit import worker

TOKEN = "a-token-of-the-tests"
UNSTORED = {"model": "worker", "input": "go", "stream": True, "store": False}


class Reader:
    """A client of the ASGI application, without a socket."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.status: int | None = None
        self.sent = b""
        self.is_complete = False
        self.takes: int | None = None
        """How many messages it takes before it takes no more; None is all."""
        self._has_asked = False

    async def ask(self, app: Any, path: str, body: object = None) -> None:
        self._body = b"" if body is None else json.dumps(body).encode()
        await app(
            {
                "type": "http",
                "method": "GET" if body is None else "POST",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "headers": [
                    (b"host", b"localhost"),
                    (b"authorization", f"Bearer {self.token}".encode()),
                    (b"content-type", b"application/json"),
                ],
            },
            self.receive,
            self.send,
        )

    async def receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        if self._has_asked:
            await trio.sleep_forever()
        self._has_asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.takes is not None:
            if self.takes == 0:
                await trio.sleep_forever()
            self.takes -= 1
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.sent += message.get("body", b"")
        self.is_complete = not message.get("more_body", False)

    @property
    def events(self) -> list[str]:
        lines = self.sent.decode().splitlines()
        return [it.removeprefix("event: ") for it in lines if it.startswith("event:")]


def scope_of(shutdown: trio.Event) -> dict[str, Any]:
    access = Access(KeyStore(), DEFAULT_KEY, "")
    state = {"shutdown": shutdown, "access": access}
    return {"type": "http", "method": "GET", "state": state}


async def wait_forever(writer: EventWriter) -> None:
    del writer
    await trio.sleep_forever()


def opened(state: ServerState) -> list[Any]:
    return list(state.journals.first.orchestrator.read.records.sessions.values())


async def test_a_client_that_disconnects_before_the_first_byte_leaves_no_run() -> None:
    """A response that is not stored belongs to its client: it must end with its stream."""
    agent = worker()
    async with (
        open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, Settings(token=TOKEN)) as state,
    ):
        reader = Reader()
        reader.takes = 0
        with trio.move_on_after(1):
            await reader.ask(application(state), "/v1/responses", UNSTORED)
        (session,) = opened(state)

        assert session.has_nothing_pending
        assert session.turns == 1
        assert not state.journals.first.orchestrator.sessions.registry._session_agents


async def test_a_crash_leaves_no_run_of_a_request_without_a_client() -> None:
    """Its turn begins with the session: the next process finds it lost, and not to be done."""
    agent = worker()
    async with (
        open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, Settings(token=TOKEN)) as state,
    ):
        session = state.journals.first.door.open_one_turn(
            InboundRequest(
                agent=agent, message=goal_message(agent, "go"), kind=SessionKind.CHAT_COMPLETION
            )
        )
        begun = session.turn
        await state.journals.first.door.run_turn(session)

    assert begun is not None
    assert begun.capability is DeliveryCapability.NONE


async def test_a_stream_closed_by_the_server_ends_with_stopping() -> None:
    over = trio.Event()
    reader = Reader()
    reader._has_asked = True
    async with trio.open_nursery() as nursery:
        stream = EventStream(wait_forever)
        nursery.start_soon(stream, scope_of(over), reader.receive, reader.send)
        await trio.testing.wait_all_tasks_blocked()
        over.set()

    assert reader.events == ["error"]
    assert b'"stopping"' in reader.sent
    assert reader.is_complete


async def test_a_stream_that_fails_in_the_server_ends_with_a_plain_error() -> None:
    async def produce(writer: EventWriter) -> None:
        await writer.send_event(b"{}", name="fact")
        raise JournalError("/home/somebody/journal.db", "the disk is full")

    async def beside() -> None:
        await trio.lowlevel.checkpoint()
        raise JournalError("/home/somebody/journal.db", "the disk is full")

    for stream in (EventStream(produce), EventStream(wait_forever, owned_work=beside)):
        reader = Reader()
        reader._has_asked = True
        await stream(scope_of(trio.Event()), reader.receive, reader.send)

        assert reader.events[-1] == "error"
        assert reader.events.count("error") == 1
        assert b"the disk is full" in reader.sent
        assert b"somebody" not in reader.sent
        assert reader.is_complete


@pytest.mark.parametrize("takes", [0, 1, 2])
async def test_a_client_that_stops_reading_is_disconnected_wherever_that_is(
    takes: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Before the first byte, at a heartbeat, or at the very end."""

    async def produce(writer: EventWriter) -> None:
        await trio.sleep(20)
        del writer

    reader = Reader()
    reader._has_asked = True
    reader.takes = takes
    began = trio.current_time()
    await EventStream(produce)(scope_of(trio.Event()), reader.receive, reader.send)

    assert trio.current_time() - began < 21 + WRITE_SECONDS
    assert not reader.is_complete


async def test_a_response_in_the_background_that_the_server_leaves_ends_in_an_error() -> None:
    agent = Agent("worker", model=ScriptedModel.always("done", 1000))
    async with (
        open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, Settings(token=TOKEN)) as state,
    ):
        reader = Reader()
        body = {"model": "worker", "input": "go", "stream": True, "background": True}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.ask, application(state), "/v1/responses", body)
            await trio.testing.wait_all_tasks_blocked()
            state.journals.first.shutdown.set()
        (session,) = opened(state)
        assert not session.closed

    assert reader.events == ["response.created", "response.in_progress", "error"]
    last = json.loads(reader.sent.decode().strip().rpartition("data: ")[2])
    assert last["type"] == "error"
    assert last["code"] == "stopping"
    assert last["sequence_number"] == 1
