"""Sends the spans of a run that the journal has."""

from collections.abc import Iterable, Iterator
from itertools import islice

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry
from orchestrator.products.telemetry.exporter import BATCH_SIZE
from orchestrator.products.telemetry.otlp import OtlpSender
from orchestrator.products.telemetry.session_spans import SessionSpans
from orchestrator.products.telemetry.settings import Telemetry
from orchestrator.products.telemetry.span import Span


def send_run(session: SessionId, entries: Iterable[Entry], settings: Telemetry) -> int | None:
    """Send the spans of a run, and return their number; None if the collector refuses some.

    It sends spans that have not ended as interrupted by the last fact. It blocks.
    """
    sender, sent = OtlpSender(settings), 0
    try:
        spans = _spans(SessionSpans(session, content=settings.content), entries)
        while batch := [*islice(spans, BATCH_SIZE)]:
            if not sender.send(batch):
                return None
            sent += len(batch)
    finally:
        sender.close()
    return sent


def _spans(session: SessionSpans, entries: Iterable[Entry]) -> Iterator[Span]:
    for entry in entries:
        yield from session.add(entry)
    yield from session.end()
