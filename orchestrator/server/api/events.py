"""`.../events`: the facts of a run as they become safe, each once, and one end.

The id of an event is the number of its fact, so whoever comes back says with it where to go on.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Final

import attrs
import msgspec
import trio
from starlette.responses import Response

from agents import raising_one_error
from delegation import DeliveryCapability, SessionRecord
from orchestrator.doors.http import CONVERSATION, KIND, is_over
from orchestrator.journal.fact_feed import FactFeed, FactLine
from orchestrator.read_api import FoundSession
from orchestrator.server.api.bodies import Failure, failure_of, status_of
from orchestrator.server.api.lookup import read_run
from orchestrator.server.api.sessions import read_session
from orchestrator.server.live.live_text import TextUpdate
from orchestrator.server.operation import ApiCall, Operation, ResponseSpec
from orchestrator.server.state import ServerState
from orchestrator.server.transport.errors import HttpError
from orchestrator.server.transport.sse import SSE_MEDIA_TYPE, EventStream, EventWriter

LARGEST: Final = 2**53
"""The largest number that every reader of JSON can tell from the next one."""
CHUNK: Final = 64_000
"""How many bytes are sent at once."""


@attrs.frozen(kw_only=True)
class EventsQuery:
    """Where to begin, and what to tell besides."""

    after: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None,
        msgspec.Meta(
            description="The number of the last fact that you have; left out: from the"
            " beginning. It counts more than the header Last-Event-ID."
        ),
    ] = None
    deltas: Annotated[
        bool,
        msgspec.Meta(
            description="Tell what models say while they say it, too: events `delta`, which"
            " have no id and are told once."
        ),
    ] = False


class Delta(msgspec.Struct, kw_only=True):
    """Some more of what the model of a task says."""

    task: str
    text: str


class End(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a run ended: the last event of every stream."""

    status: str
    error: Failure | None = None


class _RunEvents:
    """One reader of a run, or of a conversation."""

    def __init__(self, server: ServerState, found: FoundSession) -> None:
        self._server = server
        self._found = found

    @property
    def session(self) -> SessionRecord:
        # At rest it may be forgotten, and be another record when it is remembered again.
        ledger = self._server.book.ledger
        session = ledger.sessions.get(self._found.session.id)
        if session is not None:
            self._found = FoundSession(session, ledger)
        return self._found.session

    def is_over(self) -> bool:
        """Tell whether no more facts will come."""
        session = self.session
        is_talk = session.labels.get(KIND) == CONVERSATION
        is_done = session.closed if is_talk else is_over(session)
        if not is_done or session.turn is not None or session.unsettled_detached:
            return False
        # A door is closed behind what has ended. Only a webhook may keep it open for long.
        is_calling = session.door is DeliveryCapability.PUSH and session.undelivered
        return session.door is None or bool(is_calling)

    def end(self) -> bytes:
        session = self.session
        if session.labels.get(KIND) == CONVERSATION:
            return msgspec.json.encode(End(status="closed"))
        status = status_of(session, self._found.ledger)
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


def _chunks(facts: Sequence[FactLine]) -> Iterator[bytes]:
    chunk = bytearray()
    for fact in facts:
        chunk += b"id: %d\nevent: fact\ndata: %b\n\n" % (fact.seq, fact.json)
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


async def get_run_events(call: ApiCall) -> Response:
    return _event_stream(call, await read_run(call.server, call.path("run")))


async def get_session_events(call: ApiCall) -> Response:
    return _event_stream(call, await read_session(call))


def _event_stream(call: ApiCall, found: FoundSession) -> Response:
    query = call.query(EventsQuery)
    last_event = _last_event(call)
    after = last_event if query.after is None else query.after
    last = call.server.book.ledger.last_seq
    if after > last:
        raise HttpError(
            409,
            f"the last fact of this journal is number {last}, and you want those after"
            f" {after}: that is a number of another journal; begin from 0",
            code="ahead_of_the_journal",
        )
    office, id_ = call.server, found.session.id
    reading = _RunEvents(office, found)

    async def produce(outlet: EventWriter) -> None:
        with ExitStack() as opened, raising_one_error():
            feed = opened.enter_context(office.read.feed(id_, after=after))
            async with trio.open_nursery() as nursery:
                if query.deltas:
                    heard = opened.enter_context(office.live_text.open_channel(id_))
                    nursery.start_soon(reading.send_deltas, outlet, heard)
                await reading.send_facts(outlet, feed)
                nursery.cancel_scope.cancel(reason="all is told")
        await outlet.send_event(reading.end(), name="end")

    return EventStream(produce, headers={"x-run-id": id_})


def _last_event(call: ApiCall) -> int:
    given = call.request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    # As long as every number is that somebody may have counted to.
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise HttpError(
            400,
            f"the Last-Event-ID {given[:40]!r} is none of ours: they are numbers",
            code="invalid_last_event_id",
            param="last-event-id",
        )
    return int(given)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/runs/{run}/events",
        handle=get_run_events,
        summary="The facts of a run as they come; the last event is `end`",
        query=EventsQuery,
        responses={
            200: ResponseSpec(
                description="Server-sent events", media_types=(SSE_MEDIA_TYPE,)
            )
        },
        error_statuses=(400, 404, 409),
        takes_last_event_id=True,
    ),
    Operation(
        method="GET",
        path="/v1/sessions/{session}/events",
        handle=get_session_events,
        summary="The facts of a conversation as they come, until it is closed",
        query=EventsQuery,
        responses={
            200: ResponseSpec(
                description="Server-sent events", media_types=(SSE_MEDIA_TYPE,)
            )
        },
        error_statuses=(400, 404, 409),
        takes_last_event_id=True,
    ),
)
