"""The metrics of `GET /metrics`: each event is counted as it happens, in constant time."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from orchestrator.agents import Usage
from orchestrator.delegation import Encoded, SessionId, events
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import Orchestrator, is_over
from orchestrator.products.server.operation import Operation

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""The buckets of request times: an agent may take minutes."""

COUNTED: Final = (
    *(events.SessionOpened, events.SessionClosed),
    *(events.TurnStarted, events.TurnResumed, events.TurnEnded),
    *(events.TaskStarted, events.TaskSettled, events.ModelAnswered, events.ModelFailed),
)
"""The facts that change a metric."""


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._journals: list[_JournalFacts] = []
        self._unanswered = 0
        self._streams = 0
        self._answers: dict[tuple[str, str, int], tuple[Histogram, Counter]] = {}
        """The metrics of each answer of each route: the lookup takes longer than the count."""
        self._runs: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        """The metrics of runs by their labels, for the same reason."""
        self._answered = trio.lowlevel.ParkingLot()
        self._registry = registry = CollectorRegistry()

        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(f"orchestrator_{name}", help_, labels, registry=registry)

        def gauge(name: str, help_: str, current: Callable[[], float] | None = None) -> Gauge:
            made = Gauge(f"orchestrator_{name}", help_, registry=registry)
            if current is not None:
                made.set_function(current)
            return made

        self._requests = counter(
            "http_requests_total", "Requests that were answered.", *("method", "path", "status")
        )
        self._refused = counter(
            "http_refused_total", "Requests that were refused access.", "status"
        )
        self._seconds = Histogram(
            "orchestrator_http_request_seconds",
            "Seconds until an answer begins.",
            ("method", "path"),
            registry=registry,
            buckets=SECONDS,
        )
        gauge(
            "http_requests_under_way", "Requests without an answer yet.", lambda: self._unanswered
        )
        gauge("http_event_streams", "Open event streams.", lambda: self._streams)
        self.started = counter("runs_started_total", "Runs that began.", "kind")
        self.ended = counter("runs_ended_total", "Runs that ended, by ending.", "kind", "ending")
        self.tasks_started = counter("tasks_started_total", "Delegated tasks that began.")
        self.tasks_ended = counter("tasks_ended_total", "Tasks that ended, by ending.", "ending")
        self.calls = counter("model_calls_total", "Calls of models.")
        tokens = counter("tokens_total", "Tokens of models.", "direction")
        self.tokens_in, self.tokens_out = tokens.labels("in"), tokens.labels("out")
        self.dollars = counter("cost_dollars_total", "Cost of models.")
        gauge(
            "runs_under_way",
            "Runs under way.",
            lambda: sum(len(it.under_way) for it in self._journals),
        )
        gauge(
            "tasks_working",
            "Tasks that an agent works on now, including runs.",
            lambda: sum(it.orchestrator.working for it in self._journals),
        )
        gauge(
            "calls_waiting_for_worker",
            "Tool calls that wait for a worker at their place.",
            lambda: sum(it.orchestrator.read.waiting_calls().total() for it in self._journals),
        )
        gauge(
            "journal_last_seq",
            "The number of the newest fact in the journal; with several journals, the sum.",
            lambda: sum(it.records.last_seq for it in self._journals),
        )
        gauge("journals_held", "Journals that this server writes.", lambda: len(self._journals))

    @contextmanager
    def count_facts_of(self, orchestrator: Orchestrator) -> Generator[None]:
        """Count the facts of a journal, as long as the block lasts."""
        facts = _JournalFacts(self, orchestrator)
        self._journals.append(facts)
        try:
            with orchestrator.read.subscribe(facts.count, kinds=COUNTED):
                yield
        finally:
            self._journals.remove(facts)

    @contextmanager
    def track_request(self) -> Generator[None]:
        """Count a request that is under way, as long as the block lasts."""
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                self._answered.unpark_all()

    async def wait_answered(self) -> None:
        """Wait until every request is answered."""
        await trio.lowlevel.checkpoint()
        while self._unanswered:
            await self._answered.park()

    @contextmanager
    def track_stream(self) -> Generator[None]:
        """Count an event stream that is open, as long as the block lasts."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def count_answer(self, operation: Operation, status: int, seconds: float) -> None:
        """Count a response when it begins."""
        key = (operation.method, operation.path, status)
        counted = self._answers.get(key)
        if counted is None:
            method, path, _ = key
            counted = self._answers[key] = (
                self._seconds.labels(method, path),
                self._requests.labels(method, path, str(status)),
            )
        counted[0].observe(seconds)
        counted[1].inc()

    def count_run(self, metric: Counter, *labels: str) -> None:
        """Count the start or the end of a run."""
        counted = self._runs.get((metric, labels))
        if counted is None:
            counted = self._runs[metric, labels] = metric.labels(*labels)
        counted.inc()

    def count_refusal(self, status: int) -> None:
        """Count a request that was refused access."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _JournalFacts:
    """Counts the facts of one journal."""

    def __init__(self, metrics: Metrics, orchestrator: Orchestrator) -> None:
        self.orchestrator = orchestrator
        self.records = orchestrator.read.records
        self._metrics = metrics
        self.under_way = {
            session.id
            for session in self.records.sessions.values()
            if session.kind is not SessionKind.PROGRAM and not is_over(session)
        }
        """The runs that are not over; a conversation counts only during its turns."""

    def count(self, entry: events.Entry, encoded: Encoded) -> None:  # noqa: C901, PLR0912 (a case a fact)
        del encoded
        match entry.event:
            case events.SessionOpened(session=session, kind=kind) if (
                kind is not SessionKind.PROGRAM
            ):
                self._metrics.count_run(self._metrics.started, kind)
                if kind.is_run and kind is not SessionKind.CONVERSATION:
                    self.under_way.add(session)
            case events.TurnStarted(session=session) | events.TurnResumed(session=session):
                if self.records.sessions[session].kind is not SessionKind.PROGRAM:
                    self.under_way.add(session)
            case events.TurnEnded(session=session, outcome=outcome):
                self._end(session, outcome.ending)
            case events.SessionClosed(session=session):
                record = self.records.sessions[session]
                if record.kind is SessionKind.CONVERSATION:
                    self._metrics.count_run(self._metrics.ended, record.kind, "closed")
                # A running turn ends soon, with an outcome of its own.
                if record.turn is None:
                    self._end(session, "closed")
            case events.TaskStarted():
                self._metrics.tasks_started.inc()
            case events.TaskSettled(outcome=outcome):
                self._metrics.tasks_ended.labels(outcome.ending).inc()
            case events.ModelAnswered(message=message, copied=False):
                self._count_usage(message.usage)
            case events.ModelFailed(usage=usage):
                self._count_usage(usage)
            case _:
                pass  # the fact is not counted

    def _end(self, session: SessionId, ending: str) -> None:
        record = self.records.sessions[session]
        if session in self.under_way and is_over(record):
            self.under_way.remove(session)
            if record.kind is not SessionKind.CONVERSATION:
                self._metrics.count_run(self._metrics.ended, record.kind, ending)

    def _count_usage(self, usage: Usage) -> None:
        self._metrics.calls.inc(usage.calls)
        self._metrics.tokens_in.inc(usage.input_tokens)
        self._metrics.tokens_out.inc(usage.output_tokens)
        if usage.micro_usd:
            self._metrics.dollars.inc(usage.micro_usd / 1_000_000)
