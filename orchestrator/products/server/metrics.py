"""The metrics of `GET /metrics`: each event is counted as it happens, in constant time.

The counts are plain numbers, which a scrape converts to Prometheus' text.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

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
    *(events.TaskRequested, events.TaskStarted, events.TaskSettled),
    *(events.ModelAnswered, events.ModelFailed),
)
"""The facts that change a metric."""


class _Times:
    """The times until the answers of one route begin."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        """The number of times up to each of `SECONDS`, and of longer ones."""
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Metrics(Collector):
    """The metrics of one server."""

    def __init__(self) -> None:
        self._journals: list[_JournalFacts] = []
        self._unanswered = 0
        self.streams = 0
        """The number of open event streams."""
        self._answers: Counter[tuple[str, str, int]] = Counter()
        """The number of answers by method, path and status."""
        self._times: dict[tuple[str, str], _Times] = {}
        self._refused: Counter[int] = Counter()
        self._answered = trio.lowlevel.ParkingLot()
        self.started: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        """The number of ended runs by kind and ending."""
        self.tasks_started = 0
        self.tasks_ended: Counter[str] = Counter()
        self.used = Usage()

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

    def begin_request(self) -> None:
        """Count a request that is under way; `end_request` must follow."""
        self._unanswered += 1

    def end_request(self) -> None:
        """Count a request that has its answer."""
        self._unanswered -= 1
        if not self._unanswered:
            self._answered.unpark_all()

    async def wait_answered(self) -> None:
        """Wait until every request is answered."""
        await trio.lowlevel.checkpoint()
        while self._unanswered:
            await self._answered.park()

    def count_answer(self, operation: Operation, status: int, seconds: float) -> None:
        """Count a response when it begins."""
        method, path = operation.method, operation.path
        self._answers[method, path, status] += 1
        times = self._times.get((method, path))
        if times is None:
            times = self._times[method, path] = _Times()
        times.add(seconds)

    def count_refusal(self, status: int) -> None:
        """Count a request that was refused access."""
        self._refused[status] += 1

    def text(self) -> bytes:
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as Prometheus has them."""
        yield _counts(
            *("http_requests", "Requests that were answered."),
            (((*route, str(status)), count) for (*route, status), count in self._answers.items()),
            *("method", "path", "status"),
        )
        yield _counts(
            *("http_refused", "Requests that were refused access."),
            (((str(status),), count) for status, count in self._refused.items()),
            "status",
        )
        yield self._seconds()
        yield _gauge("http_requests_under_way", "Requests without an answer yet.", self._unanswered)
        yield _gauge("http_event_streams", "Open event streams.", self.streams)
        started = (((kind,), count) for kind, count in self.started.items())
        yield _counts("runs_started", "Runs that began.", started, "kind")
        runs = self.ended.items()
        yield _counts("runs_ended", "Runs that ended, by ending.", runs, "kind", "ending")
        tasks = self.tasks_started
        yield _counts("tasks_started", "Delegated tasks that began.", [((), tasks)])
        ended = (((ending,), count) for ending, count in self.tasks_ended.items())
        yield _counts("tasks_ended", "Tasks that ended, by ending.", ended, "ending")
        used = self.used
        yield _counts("model_calls", "Calls of models.", [((), used.calls)])
        tokens = [(("in",), used.input_tokens), (("out",), used.output_tokens)]
        yield _counts("tokens", "Tokens of models.", tokens, "direction")
        yield _counts("cost_dollars", "Cost of models.", [((), used.usd)])
        yield from self._of_journals()

    def _seconds(self) -> Metric:
        name, help_ = "orchestrator_http_request_seconds", "Seconds until an answer begins."
        family = HistogramMetricFamily(name, help_, labels=("method", "path"))
        names = [*(str(float(it)) for it in SECONDS), "+Inf"]
        for route, times in self._times.items():
            sums = map(float, accumulate(times.buckets))
            family.add_metric(route, [*zip(names, sums, strict=True)], times.total)
        return family

    def _of_journals(self) -> Iterator[Metric]:
        journals = self._journals
        yield _gauge("runs_under_way", "Runs under way.", sum(len(it.under_way) for it in journals))
        yield _gauge(
            "tasks_working",
            "Tasks that an agent works on now, including runs.",
            sum(it.orchestrator.working for it in journals),
        )
        yield _gauge(
            "calls_waiting_for_worker",
            "Tool calls that wait for a worker at their place.",
            sum(it.orchestrator.read.waiting_calls().total() for it in journals),
        )
        yield _gauge(
            "journal_last_seq",
            "The number of the newest fact in the journal; with several journals, the sum.",
            sum(it.records.last_seq for it in journals),
        )
        yield _gauge("journals_held", "Journals that this server writes.", len(journals))


def _counts(
    name: str, help_: str, counts: Iterable[tuple[Sequence[str], float]], *labels: str
) -> Metric:
    family = CounterMetricFamily(f"orchestrator_{name}_total", help_, labels=labels)
    for values, count in counts:
        family.add_metric(values, count)
    return family


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"orchestrator_{name}", help_, value=value)


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
                self._metrics.started[kind] += 1
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
                    self._metrics.ended[record.kind, "closed"] += 1
                # A running turn ends soon, with an outcome of its own.
                if record.turn is None:
                    self._end(session, "closed")
            case events.TaskStarted() | events.TaskRequested(started=True):
                self._metrics.tasks_started += 1
            case events.TaskSettled(outcome=outcome, answer=answer):
                self._metrics.tasks_ended[outcome.ending] += 1
                if answer is not None and not answer.copied:
                    self._metrics.used += answer.message.usage
            case events.ModelAnswered(message=message, copied=False):
                self._metrics.used += message.usage
            case events.ModelFailed(usage=usage):
                self._metrics.used += usage
            case _:
                pass  # the fact is not counted

    def _end(self, session: SessionId, ending: str) -> None:
        record = self.records.sessions[session]
        if session in self.under_way and is_over(record):
            self.under_way.remove(session)
            if record.kind is not SessionKind.CONVERSATION:
                self._metrics.ended[record.kind, ending] += 1
