"""Exports the spans of an open orchestrator while it runs.

A post of a fact only appends it to a bounded queue. Once a second, a task builds the spans of the
facts that are durable, and a thread sends them. No run waits for that. While a collector is away,
or facts come faster than they are sent, the exporter keeps only the ids of the sessions that are
behind; their spans are built again from the journal later.
"""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn, Protocol

import trio

from orchestrator.delegation import Encoded, SessionId
from orchestrator.delegation.events import (
    Entry,
    ModelAnswered,
    ModelFailed,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.loggers import logger_of
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.telemetry.current_spans import KINDS, CurrentSpans
from orchestrator.products.telemetry.session_spans import SessionSpans
from orchestrator.products.telemetry.settings import Telemetry, telemetry_of
from orchestrator.products.telemetry.span import Span

DELAY_SECONDS: Final = 1.0
"""The seconds that facts wait for others, to be sent together."""
BATCH_SIZE: Final = 500
"""The most spans of one request."""
MAX_FACTS: Final = 20_000
"""The most facts that wait; the sessions of later ones fall behind."""
MAX_BEHIND: Final = 10_000
"""The most sessions that are exported later."""
MAX_PAUSE_SECONDS: Final = 60.0
"""The longest pause between two attempts to reach a collector."""
CLOSE_SECONDS: Final = 5.0
"""The seconds for the last spans when the orchestrator closes."""

CONTINUING: Final = (
    TurnResumed,
    TurnEnded,
    TaskRequested,
    TaskStarted,
    TaskSettled,
    ModelAnswered,
    ModelFailed,
    ToolAnswered,
)
"""The facts that continue a span that another fact has begun."""

_LOG: Final = logger_of("telemetry")


class Sender(Protocol):
    """Sends spans; its methods block."""

    def send(self, spans: Sequence[Span], counted: int = 0) -> bool:
        """Send spans, and return whether they were taken; earlier ones than a fact are repeated."""
        ...

    def close(self) -> None:
        """Stop sending, also in another thread."""
        ...


@asynccontextmanager
async def open_telemetry(book: Bookkeeper, given: Telemetry | str) -> AsyncGenerator[CurrentSpans]:
    """Send the spans of all facts that are posted as long as the block lasts.

    The block contains the engine: the facts of its end are exported, too.
    """
    settings = telemetry_of(given)
    # Imported here: the libraries take a fifth of a second.
    from orchestrator.products.telemetry.otlp import OtlpSender

    current = CurrentSpans(book)
    sender = OtlpSender(settings, metrics=True)
    async with export_spans(book, sender, content=settings.content):
        with book.subscribers.subscribe_kinds(current.receive, KINDS):
            yield current


@asynccontextmanager
async def export_spans(
    book: Bookkeeper, sender: Sender, *, content: bool = False
) -> AsyncGenerator["SpanExporter"]:
    """Export the spans of all facts that are posted as long as the block lasts."""
    exporter = SpanExporter(book, sender, content=content)
    with book.subscribers.subscribe(exporter.receive):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exporter.export_forever)
            try:
                yield exporter
            finally:
                with trio.move_on_after(CLOSE_SECONDS, shield=True), suppress(JournalError):
                    await exporter.flush()
                exporter.report_unsent()
                sender.close()
                nursery.cancel_scope.cancel()


class SpanExporter:
    """Takes facts, and sends their spans."""

    def __init__(self, book: Bookkeeper, sender: Sender, *, content: bool) -> None:
        self._book = book
        self._sender = sender
        self._content = content
        self._facts: deque[Entry] = deque()
        self._arrived = trio.Event()
        self._began = book.records.last_seq
        """The number of the last fact that was posted before."""
        self._sessions: dict[SessionId, SessionSpans] = {}
        """The sessions with open spans."""
        self._read: dict[SessionId, int] = {}
        """The last facts that were read from the journal, of sessions that were behind."""
        self._behind: dict[SessionId, int] = {}
        """The sessions to export from the journal, with the first fact that was not exported."""
        self._lost = 0
        """The number of sessions that were too many to be behind."""
        self._lock = trio.Lock()
        self._is_away = False

    def receive(self, entry: Entry, _: Encoded) -> None:
        """Queue a fact."""
        if len(self._facts) < MAX_FACTS:
            self._facts.append(entry)
            self._arrived.set()
        else:
            self._fall_behind(entry.session, entry.seq)

    async def export_forever(self) -> NoReturn:
        """Send the spans of new facts, until cancelled."""
        pause = DELAY_SECONDS
        while True:
            await self._arrived.wait()
            await trio.sleep(pause)
            try:
                await self.flush()
            except JournalError:
                # The runs fail with the same error, and say more.
                _LOG.exception("spans are not sent any more: the journal has failed")
                await trio.sleep_forever()
            pause = min(2 * pause, MAX_PAUSE_SECONDS) if self._is_away else DELAY_SECONDS

    async def flush(self) -> None:
        """Send the spans of all facts so far; those that are not taken are sent later."""
        # The last flush may begin while another one waits for a thread.
        async with self._lock:
            last = self._book.records.last_seq
            await self._book.wait_committed(last)
            await self._catch_up()
            batch: list[Span] = []
            while self._facts and self._facts[0].seq <= last:
                entry = self._facts.popleft()
                if self._needs_journal(entry):
                    self._fall_behind(entry.session, entry.seq)
                elif entry.seq > self._read.get(entry.session, 0):
                    batch += self._build(entry)
                if len(batch) >= BATCH_SIZE:
                    await self._send(batch)
            await self._send(batch)
            await self._catch_up()
            if not self._facts:
                self._read.clear()
                if not self._behind:
                    self._arrived = trio.Event()

    def report_unsent(self) -> None:
        """Say that runs were not exported, when the orchestrator closes."""
        for entry in self._facts:
            self._fall_behind(entry.session, entry.seq)
        if self._behind:
            _LOG.warning(
                "the spans of %d runs were not sent: `orchestrator export %s --format otlp` sends"
                " those of one",
                len(self._behind) + self._lost,
                next(iter(self._behind)),
            )

    def _needs_journal(self, entry: Entry) -> bool:
        """Return whether a span of a fact began before the facts that the exporter has seen."""
        session, event = entry.session, entry.event
        if session in self._behind:
            return True
        if not session or session in self._sessions:
            return False
        if isinstance(event, TurnStarted):
            return any(seq <= self._began for seq in event.mail)
        is_read = entry.seq <= self._read.get(session, 0)
        return isinstance(event, CONTINUING) and not is_read

    def _build(self, entry: Entry) -> list[Span]:
        session = entry.session
        if not session:
            return []
        spans = self._sessions.get(session)
        if spans is None:
            agent = self._agent_of(session)
            spans = SessionSpans(session, agent=agent, content=self._content)
        ended = [*spans.add(entry)]
        if spans.is_open:
            self._sessions[session] = spans
        else:
            self._sessions.pop(session, None)
        return ended

    def _agent_of(self, session: SessionId) -> str:
        record = self._book.records.sessions.get(session)
        return "" if record is None else record.tree[record.tree.root].agent

    async def _catch_up(self) -> None:
        """Export the sessions that are behind from the journal, as long as that succeeds."""
        await trio.lowlevel.checkpoint()
        for session, first in [*self._behind.items()]:
            entries = await self._book.read_entries(session)
            spans = SessionSpans(session, content=self._content)
            # From the start of the turn: the last process may not have sent all of it.
            since = max(
                (it.seq for it in entries if it.seq <= first and isinstance(it.event, TurnStarted)),
                default=0,
            )
            del self._behind[session]
            self._sessions.pop(session, None)
            batch: list[Span] = []
            for entry in entries:
                batch += (span for span in spans.add(entry) if span.seq >= since)
                if len(batch) >= BATCH_SIZE:
                    await self._send(batch, first)
            await self._send(batch, first)
            if session in self._behind:
                self._behind[session] = min(first, self._behind[session])
                return
            self._read[session] = entries[-1].seq if entries else 0
            if spans.is_open:
                self._sessions[session] = spans

    async def _send(self, batch: list[Span], counted: int = 0) -> None:
        """Send a batch and clear it. The sessions of spans that are not taken fall behind."""
        spans, batch[:] = [*batch], []
        if not spans:
            await trio.lowlevel.checkpoint()
            return
        is_sent = False
        try:
            is_sent = await trio.to_thread.run_sync(
                self._sender.send, spans, counted, abandon_on_cancel=True
            )
        except Exception:  # noqa: BLE001 (an error of a library must not end the runs)
            # They would fail again, and keep back the spans of other runs.
            _LOG.exception("%d spans cannot be sent, and are left out", len(spans))
            is_sent = not self._is_away
            await trio.lowlevel.checkpoint()
        finally:
            if not is_sent:
                for span in spans:
                    self._fall_behind(span.session, span.seq)
        if is_sent is self._is_away:
            self._is_away = not is_sent
            how = "takes spans again" if is_sent else "does not take spans: they are sent later"
            _LOG.warning("the collector of OpenTelemetry %s", how)

    def _fall_behind(self, session: SessionId, seq: int) -> None:
        if session in self._behind:
            self._behind[session] = min(seq, self._behind[session])
        elif session and len(self._behind) < MAX_BEHIND:
            self._behind[session] = seq
            self._arrived.set()
        elif session:
            self._lost += 1
