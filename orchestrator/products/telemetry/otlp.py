"""Sends spans to a collector by OTLP over HTTP, with the exporter of OpenTelemetry.

The exporter reads the standard variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT`,
`_COMPRESSION`, `_CERTIFICATE`. No tracer and no global state of OpenTelemetry is used.
"""

import os
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

from orchestrator.agents import DefinitionError
from orchestrator.loggers import logger_of
from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.settings import Telemetry
from orchestrator.products.telemetry.span import Span, SpanIds
from orchestrator.version import VERSION

try:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    from orchestrator.products.telemetry.metrics import RunMetrics
except ImportError as exc:
    raise DefinitionError(
        "telemetry needs an extra: pip install 'delegation-orchestrator[otel]'"
    ) from exc

UNKNOWN_SERVICE: Final = "unknown_service"
MAX_FAILURES: Final = 3
"""The failed requests in a row after which no metrics are sent."""
REFUSALS: Final = frozenset({400, 413, 422})
"""The statuses of requests that would be refused again."""
NANO: Final = 1_000_000_000
_LOG: Final = logger_of("telemetry")
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope("orchestrator", VERSION, names.CONVENTIONS)
_OK: Final = Status(StatusCode.UNSET)


class OtlpSender:
    """Sends spans to one collector. Its methods block: call them in a thread."""

    def __init__(self, settings: Telemetry, *, metrics: bool = False) -> None:
        """Send to the collector of the settings.

        Args:
            settings: the address and the name of the program.
            metrics: count the spans that are taken, and send the sums, too.
        """
        session = requests.Session()
        session.hooks["response"].append(self._note_status)
        self._status = 0
        """The status of the last answer; 0 if there was none."""
        self._dropped = 0
        """The number of spans that the collector has refused."""
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint_of(settings.address, "traces"), session=session
        )
        # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
        resource = Resource.create()
        name = str(resource.attributes.get("service.name", UNKNOWN_SERVICE))
        if name.startswith(UNKNOWN_SERVICE):
            resource = resource.merge(Resource({"service.name": settings.service}))
        self._resource = resource
        self._failures = 0
        self._metrics = None
        if metrics and os.environ.get("OTEL_METRICS_EXPORTER") != "none":
            self._metrics = RunMetrics(endpoint_of(settings.address, "metrics"), resource)

    def send(self, spans: Sequence[Span], counted: int = 0) -> bool:
        """Send spans, and return whether the collector has taken them.

        Args:
            spans: the spans.
            counted: the number of a fact: spans that ended before it are in the metrics already.
        """
        is_taken = self._export([_readable(span, self._resource) for span in spans])
        if is_taken and self._metrics is not None:
            self._metrics.count(span for span in spans if span.seq >= counted)
            self._send_metrics(self._metrics)
        return is_taken

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send spans; those that the collector refuses for ever are left out one by one."""
        self._status = 0
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return True
        if self._status not in REFUSALS:
            return False
        if len(spans) == 1:
            if not self._dropped:
                _LOG.warning(
                    "the collector of OpenTelemetry refuses the span %r with status %d: such spans"
                    " are left out",
                    spans[0].name,
                    self._status,
                )
            self._dropped += 1
            return True
        half = len(spans) // 2
        return self._export(spans[:half]) and self._export(spans[half:])

    def _note_status(self, answer: requests.Response, **_: object) -> None:
        self._status = answer.status_code

    def _send_metrics(self, metrics: RunMetrics) -> None:
        # The next request has the sums again, so one that fails costs nothing.
        self._failures = 0 if metrics.send() else self._failures + 1
        if self._failures == MAX_FAILURES:
            self._metrics = None
            _LOG.warning(
                "the collector of OpenTelemetry takes spans, but no metrics: they are not sent any"
                " more; OTEL_METRICS_EXPORTER=none sends none from the start"
            )

    def close(self) -> None:
        """Stop sending, also in another thread."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        if self._metrics is not None:
            self._metrics.close()


def endpoint_of(address: str, signal: Literal["traces", "metrics"]) -> str | None:
    """Return the address that takes spans or metrics; None if the standard variables decide.

    Raises:
        DefinitionError: it is not an address of HTTP.
    """
    if not address:
        return None
    url = urlsplit(address)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise DefinitionError(
            f"{address!r} is not the address of a collector: write http://HOST:4318"
        )
    return f"{address.rstrip('/').removesuffix('/v1/traces')}/v1/{signal}"


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    status = _OK
    if span.failed:
        status = Status(StatusCode.ERROR, span.error or None)
    parent = _context(SpanIds(span.ids.trace, span.parent)) if span.parent else None
    return ReadableSpan(
        name=span.name,
        context=_context(span.ids),
        parent=parent,
        resource=resource,
        instrumentation_scope=_SCOPE,
        kind=_KINDS[span.kind],
        attributes=span.attributes,
        events=[
            Event(event.name, event.attributes, round(event.at * NANO)) for event in span.events
        ],
        links=[Link(_context(ids)) for ids in span.links],
        start_time=round(span.start * NANO),
        end_time=round(span.end * NANO),
        status=status,
    )


def _context(ids: SpanIds) -> SpanContext:
    return SpanContext(ids.trace, ids.span, is_remote=False, trace_flags=_SAMPLED)
