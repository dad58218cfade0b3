"""`.../events`: the facts of a run as they become durable, each once by its number, then an end."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Final

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import raising_one_error
from orchestrator.delegation import DeliveryCapability, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.reads import FactFeed, FactLine, FoundSession
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.api.bodies import Failure, failure_of, status_of
from orchestrator.products.server.api.lookup import read_run
from orchestrator.products.server.api.sessions import read_session
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.live.live_text import TextUpdate
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE, EventStream, EventWriter

LARGEST: Final = 2**53
"""The largest number that every reader of JSON can represent exactly."""
TRACEBACK: Final = b'"recorded_traceback":'
"""The start of a traceback in a fact. In the text of a model its quotes would be escaped."""
CHUNK: Final = 64_000
"""The number of bytes that are sent at once."""


@attrs.frozen(kw_only=True)
class EventsQuery:
    """The first event of the stream, and whether it includes model text."""

    after: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None,
        doc(
            "The number of the last fact that you have; the stream begins after it,"
            " by default at the beginning. It overrides the header Last-Event-ID."
        ),
    ] = None
    deltas: Annotated[
        bool,
        doc(
            "Include the text of models while they write it: events `delta`, which"
            " have no id and are sent once."
        ),
    ] = False


class Delta(msgspec.Struct, kw_only=True):
    """A piece of the text that the model of a task writes."""

    task: str
    text: str


class End(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The ending of a run: the last event of every stream."""

    status: str
    error: Failure | None = None


class _RunEvents:
    """One client's stream of a run or a conversation."""

    def __init__(self, journal: ServedJournal, found: FoundSession) -> None:
        self._journal = journal
        self._found = found

    @property
    def session(self) -> SessionRecord:
        # An idle session may be evicted; loading it again makes another record.
        records = self._journal.read.records
        session = records.sessions.get(self._found.session.id)
        if session is not None:
            self._found = FoundSession(session, records)
        return self._found.session

    def is_over(self) -> bool:
        """Return whether the stream gets no more facts."""
        session = self.session
        is_conversation = session.kind is SessionKind.CONVERSATION
        is_done = session.closed if is_conversation else is_over(session)
        is_in_turn = session.turn is not None and not session.awaits_resume
        if not is_done or is_in_turn or session.unsettled_detached:
            return False
        # The door closes after the last turn. Only a failing webhook keeps it open for long.
        is_retrying = session.door is DeliveryCapability.PUSH and session.undelivered
        return session.door is None or bool(is_retrying)

    def end(self) -> bytes:
        session = self.session
        if session.kind is SessionKind.CONVERSATION:
            return msgspec.json.encode(End(status="closed"))
        status = status_of(session, self._found.records)
        return msgspec.json.encode(End(status=status, error=failure_of(session)))

    async def send_facts(self, writer: EventWriter, feed: FactFeed) -> None:
        while facts := await feed.next(is_over=self.is_over):
            for chunk in _chunks(facts):
                await writer.write(chunk)

    async def send_deltas(
        self, writer: EventWriter, updates: trio.MemoryReceiveChannel[TextUpdate]
    ) -> None:
        async for it in updates:
            delta = Delta(task=it.task, text=it.text)
            await writer.send_event(msgspec.json.encode(delta), name="delta")


def _without_traceback(line: bytes) -> bytes:
    """Return a fact without its traceback: clients must not see the server's code."""
    fact = msgspec.json.decode(line)
    fact["body"]["outcome"].pop("recorded_traceback", None)
    return msgspec.json.encode(fact)


def _chunks(facts: Sequence[FactLine]) -> Iterator[bytes]:
    chunk = bytearray()
    for fact in facts:
        data = fact.json
        if TRACEBACK in data:
            data = _without_traceback(data)
        chunk += b"id: %d\nevent: fact\ndata: %b\n\n" % (fact.seq, data)
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


_EVENTS: Final = Operation(
    "GET",
    "",
    Scope.READ,
    Answer("Server-sent events", media_types=(SSE_MEDIA_TYPE,)),
    query=EventsQuery,
    errors=(409,),
    takes_last_event_id=True,
)


@_EVENTS.at("/v1/runs/{run}/events")
async def get_run_events(call: ApiCall) -> Response:
    """Stream the facts of a run as they come; the last event is `end`."""
    return _event_stream(call, await read_run(call, call.path("run")))


@_EVENTS.at("/v1/sessions/{session}/events")
async def get_session_events(call: ApiCall) -> Response:
    """Stream the facts of a conversation as they come, until it is closed."""
    return _event_stream(call, await read_session(call))


def _event_stream(call: ApiCall, found: FoundSession) -> Response:
    query = call.query(EventsQuery)
    last_event = _last_event(call)
    after = last_event if query.after is None else query.after
    last = call.journal.read.last_seq
    if after > last:
        raise HttpError(
            409,
            f"the last fact of this journal is number {last}, and you ask for facts after {after},"
            " which is a number of another journal; begin from 0",
            code="ahead_of_the_journal",
        )
    journal, id_ = call.journal, found.session.id
    events = _RunEvents(journal, found)

    async def produce(writer: EventWriter) -> None:
        with ExitStack() as stack, raising_one_error():
            feed = stack.enter_context(journal.read.feed(id_, after=after))
            async with trio.open_nursery() as nursery:
                if query.deltas:
                    updates = stack.enter_context(journal.live_text.open_channel(id_))
                    nursery.start_soon(events.send_deltas, writer, updates)
                await events.send_facts(writer, feed)
                nursery.cancel_scope.cancel(reason="every fact is sent")
        await writer.send_event(events.end(), name="end")

    return EventStream(produce, headers={"x-run-id": id_})


def _last_event(call: ApiCall) -> int:
    id_ = call.request.headers.get("last-event-id", "").strip()
    if not id_:
        return 0
    # No journal has numbers with more digits.
    if not (id_.isascii() and id_.isdecimal() and len(id_) <= 15):
        raise HttpError(
            400,
            f"the Last-Event-ID {id_[:40]!r} is not the number of a fact",
            code="invalid_last_event_id",
            param="last-event-id",
        )
    return int(id_)
