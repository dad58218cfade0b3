"""The stream of one AG-UI run: its events as they become durable, until it ends or asks.

A client that comes back gets a snapshot of the messages so far, then the events after them. The run
goes on without a client.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import attrs
import msgspec
import trio

from orchestrator.delegation import Encoded, SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.agui.bodies import RunInput
from orchestrator.products.server.agui.events import RunEvents
from orchestrator.products.server.agui.request import client_state
from orchestrator.products.server.openai.responses.stream import wait_settled
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.session_status import failure_reason, last_outcome_of, state_of
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import EventWriter, encode_event

CHUNK: Final = 64_000
"""The number of bytes that are sent at once."""


def error_event(error: HttpError) -> bytes:
    """Return the event that ends a stream before the end of its run."""
    problem = error.problem
    return msgspec.json.encode(
        {"type": "RUN_ERROR", "message": problem.message, "code": problem.code}
    )


@attrs.define(kw_only=True, eq=False)
class RunStream:
    """The stream of a run for one client."""

    journal: ServedJournal
    found: SessionRecord
    body: RunInput
    is_new: bool
    """Whether the client has seen nothing of the run."""
    _facts: deque[Entry] = attrs.field(init=False, factory=deque[Entry])
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _events: RunEvents = attrs.field(init=False)
    _seq: int = attrs.field(init=False, default=0)
    """The number of the last fact in the events."""

    def __attrs_post_init__(self) -> None:
        self._events = RunEvents(self.found.id, self.found.root.agent)

    @property
    def session(self) -> SessionRecord:
        # An idle session may be evicted; loading it again makes another record.
        return self.journal.read.records.sessions.get(self.found.id, self.found)

    async def send(self, writer: EventWriter) -> None:
        """Send the events until the run ends, or waits for an approval."""
        journal, id_, events = self.journal, self.found.id, self._events
        with ExitStack() as stack:
            stack.enter_context(journal.read.subscribe(self._receive_fact, session=id_))
            root = self.found.root.id
            stack.enter_context(journal.live_text.subscribe(root, self._receive_text))
            await self._begin()
            while True:
                await self._flush(writer)
                # Before the look at facts and text: a change during the look is not missed.
                self._changed = trio.Event()
                if self._facts:
                    await self._take_facts()
                    continue
                if is_over(self.session):
                    break
                questions = journal.read.open_questions(id_)
                if events.is_writing or not questions:
                    events.write(self._live_text())
                    await self._flush(writer)
                    await self._changed.wait()
                else:
                    events.interrupt(self.body.thread_id, self.body.run_id, questions)
                    await self._flush(writer)
                    return
            await wait_settled(journal, self.session)
            await self._take_facts()
        self._end()
        await self._flush(writer)

    async def _begin(self) -> None:
        body, events = self.body, self._events
        thread, run, state = body.thread_id, body.run_id, client_state(body)
        read = self.journal.read
        await read.wait_durable()
        if self.is_new:
            events.begin(thread, run, state)
        for entry in await read.entries(self.found.id):
            self._add(entry)
        if not self.is_new:
            events.begin_again(thread, run, state, body.messages)
            await self._take_facts()
            events.show_written(self._live_text())

    def _live_text(self) -> str:
        """Return the text that the agent's model is writing now; empty if its start is unknown."""
        if self.session.kind is SessionKind.PROGRAM:
            return ""
        return self.journal.live_text.text_so_far(self.found.root.id)

    async def _take_facts(self) -> None:
        """Add the facts that have come, once they are durable."""
        await self.journal.read.wait_durable()
        while self._facts:
            self._add(self._facts.popleft())

    def _add(self, entry: Entry) -> None:
        if entry.seq > self._seq:
            self._seq = entry.seq
            self._events.add(entry)

    def _end(self) -> None:
        thread, run = self.body.thread_id, self.body.run_id
        session, events = self.session, self._events
        outcome = last_outcome_of(session)
        state = state_of(session)
        if state == "cancelled" or outcome is None:
            events.cancel(thread, run)
        elif (reason := failure_reason(outcome)) is None:
            events.succeed(thread, run, outcome.output)
        else:
            events.fail(reason.message, reason.code)

    def _receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        del encoded
        self._facts.append(entry)
        self._changed.set()

    def _receive_text(self, text: str | None) -> None:
        del text
        self._changed.set()

    async def _flush(self, writer: EventWriter) -> None:
        await trio.lowlevel.checkpoint()
        for chunk in _chunks(self._events.take()):
            await writer.write(chunk)


def _chunks(events: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    chunk = bytearray()
    for event in events:
        chunk += encode_event(msgspec.json.encode(event))
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
