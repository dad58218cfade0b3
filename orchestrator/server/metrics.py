"""The metrics of `GET /metrics`: each is counted as it happens, in constant time."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from agents import Usage
from delegation import Encoded, SessionId
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    QuietChanged,
    ReplyDelivered,
    SessionClosed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.doors.http import CONVERSATION, KIND, is_over
from orchestrator.runtime import Orchestrator
from orchestrator.server.operation import Operation

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""The buckets of request times: an agent may take minutes."""


class Metrics:
    """The metrics of one server."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._ledger = orchestrator.read.ledger
        self._under_way: set[SessionId] = set()
        """The runs that are not over. A conversation is one during its turns: few are closed."""
        self._registry = registry = CollectorRegistry()

        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(f"orchestrator_{name}", help_, labels, registry=registry)

        def gauge(
            name: str, help_: str, current: Callable[[], float] | None = None
        ) -> Gauge:
            made = Gauge(f"orchestrator_{name}", help_, registry=registry)
            if current is not None:
                made.set_function(current)
            return made

        self._requests = counter(
            "http_requests_total",
            "Requests that were answered.",
            *("method", "path", "status"),
        )
        self._refused = counter(
            "http_refused_total", "Requests that did not come in.", "status"
        )
        self._seconds = Histogram(
            "orchestrator_http_request_seconds",
            "How long it takes until an answer begins.",
            ("method", "path"),
            registry=registry,
            buckets=SECONDS,
        )
        self._requests_now = gauge(
            "http_requests_under_way", "Requests that are not answered yet."
        )
        self._streams_now = gauge("http_event_streams", "Event streams that are open.")
        self._started = counter("runs_started_total", "Runs that were begun.", "kind")
        self._ended = counter(
            "runs_ended_total", "Runs that have ended, by how.", "kind", "ending"
        )
        self._tasks_started = counter(
            "tasks_started_total", "Tasks that agents delegated, and that were begun."
        )
        self._tasks_ended = counter(
            "tasks_ended_total", "Tasks that have ended, by how.", "ending"
        )
        self._calls = counter("model_calls_total", "Calls of models.")
        self._tokens = counter("tokens_total", "Tokens of models.", "direction")
        self._dollars = counter("cost_dollars_total", "What models have cost.")
        gauge("runs_under_way", "Runs that go on.", lambda: len(self._under_way))
        gauge(
            "tasks_working",
            "Tasks that an agent works on now, runs included.",
            lambda: orchestrator.working,
        )
        gauge(
            "journal_last_seq",
            "The number of the newest fact in the journal.",
            lambda: self._ledger.last_seq,
        )

        for session in self._ledger.sessions.values():
            if session.labels.get(KIND) and not is_over(session):
                self._under_way.add(session.id)

    @contextmanager
    def track_request(self) -> Generator[None]:
        """Count a request that is under way, as long as the block lasts."""
        with self._requests_now.track_inprogress():
            yield

    @contextmanager
    def track_stream(self) -> Generator[None]:
        """Count an event stream that is open, as long as the block lasts."""
        with self._streams_now.track_inprogress():
            yield

    def count_answer(self, operation: Operation, status: int, seconds: float) -> None:
        """Count a response when it begins."""
        path = operation.path
        self._seconds.labels(operation.method, path).observe(seconds)
        self._requests.labels(operation.method, path, str(status)).inc()

    def count_refusal(self, status: int) -> None:
        """Count a request that was refused access."""
        self._refused.labels(str(status)).inc()

    def count_fact(self, entry: Entry, encoded: Encoded) -> None:  # noqa: C901, PLR0912 (a case a fact)
        del encoded
        match entry.event:
            case SessionOpened(session=session, labels=labels) if KIND in labels:
                self._started.labels(labels[KIND]).inc()
                if labels[KIND] != CONVERSATION:
                    self._under_way.add(session)
            case TurnStarted(session=session) | TurnResumed(session=session):
                if KIND in self._ledger.sessions[session].labels:
                    self._under_way.add(session)
            case TurnEnded(session=session, outcome=outcome):
                self._end(session, outcome.ending)
            case SessionClosed(session=session):
                record = self._ledger.sessions[session]
                if record.labels.get(KIND) == CONVERSATION:
                    self._ended.labels(CONVERSATION, "closed").inc()
                # A turn that runs ends soon, with an outcome of its own.
                if record.turn is None:
                    self._end(session, "closed")
            case TaskStarted():
                self._tasks_started.inc()
            case TaskSettled(outcome=outcome):
                self._tasks_ended.labels(outcome.ending).inc()
            case ModelAnswered(message=message, copied=False):
                self._count_usage(message.usage)
            case ModelFailed(usage=usage):
                self._count_usage(usage)
            case (
                JournalOpened()
                | SessionOpened()
                | DoorOpened()
                | DoorClosed()
                | MessageReceived()
                | ReplyDelivered()
                | DeliveryFailed()
                | TaskRequested()
                | ModelCalled()
                | ModelAnswered()
                | ToolAnswered()
                | CancelRequested()
                | Steered()
                | SteeringSeen()
                | QuietChanged()
                | ApprovalAsked()
                | ApprovalAnswered()
                | ProcessStarted()
                | ProcessMatched()
                | ProcessEnded()
            ):
                pass
            case _:
                assert_never(entry.event)

    def _end(self, session: SessionId, ending: str) -> None:
        record = self._ledger.sessions[session]
        if session in self._under_way and is_over(record):
            self._under_way.remove(session)
            if record.labels[KIND] != CONVERSATION:
                self._ended.labels(record.labels[KIND], ending).inc()

    def _count_usage(self, usage: Usage) -> None:
        self._calls.inc(usage.calls)
        self._tokens.labels("in").inc(usage.input_tokens)
        self._tokens.labels("out").inc(usage.output_tokens)
        self._dollars.inc(usage.cost / 1_000_000)

    def text(self) -> bytes:
        return generate_latest(self._registry)
