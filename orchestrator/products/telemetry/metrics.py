"""Metrics of runs, counted from spans: tokens, cost, durations, endings, and the queue.

Each span is counted once, when a collector has taken it. No thread and no global state of
OpenTelemetry is used: the exporter collects and sends the sums together with the spans.
"""

from collections.abc import Iterable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource

from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.span import Attributes, Span, Value
from orchestrator.version import VERSION

SHARED: Final = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.ERROR_TYPE)
"""The attributes of a model call that its metrics have, too: few values each."""


class RunMetrics:
    """Counts spans, and sends the sums. `send` blocks: call it in a thread."""

    def __init__(self, endpoint: str | None, resource: Resource) -> None:
        self._exporter = OTLPMetricExporter(endpoint=endpoint)
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("orchestrator", VERSION, names.CONVENTIONS)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a model call."
        )
        self._calls = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Seconds of a model call."
        )
        self._waits = meter.create_histogram(
            "orchestrator.provider_wait", "s", "Seconds that a model call waited for its provider."
        )
        self._cost = meter.create_counter("orchestrator.cost", "USD", "Cost of model calls.")
        self._tasks = meter.create_histogram(
            "orchestrator.task.duration", "s", "Seconds of a task or a turn, by its ending."
        )
        self._queued = meter.create_histogram(
            "orchestrator.task.queued", "s", "Seconds that a task waited for a slot."
        )
        self._tools = meter.create_histogram(
            "orchestrator.tool.duration", "s", "Seconds of a tool call."
        )

    def count(self, spans: Iterable[Span]) -> None:
        """Count spans that have ended."""
        for span in spans:
            match span.attributes.get(names.OPERATION):
                case names.CHAT:
                    self._count_call(span)
                case names.EXECUTE_TOOL:
                    self._tools.record(
                        span.end - span.start, _only(span, names.TOOL_NAME, names.ERROR_TYPE)
                    )
                case _:
                    self._count_task(span)

    def send(self) -> bool:
        """Send the sums since the start, and return whether the collector has taken them."""
        data = self._reader.get_metrics_data()
        if data is None:
            return True
        taken = self._exporter.export(data)  # pyright: ignore[reportUnknownMemberType]
        return taken is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Stop sending, also in another thread."""
        self._exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]
        self._provider.shutdown()

    def _count_call(self, span: Span) -> None:
        about = _only(span, *SHARED)
        self._calls.record(span.end - span.start, about)
        for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            if tokens := _number(span, name):
                self._tokens.record(tokens, {**about, names.KIND_OF_TOKENS: kind})
        if cost := _number(span, names.OUR_COST):
            self._cost.add(cost, {**about, **_only(span, names.AGENT_NAME)})
        if names.OUR_PROVIDER_WAIT in span.attributes:
            self._waits.record(_number(span, names.OUR_PROVIDER_WAIT), about)

    def _count_task(self, span: Span) -> None:
        about = _only(span, names.AGENT_NAME, names.OUR_MODE, names.OUR_ENDING)
        self._tasks.record(span.end - span.start, about)
        if names.OUR_QUEUED in span.attributes:
            self._queued.record(
                _number(span, names.OUR_QUEUED), _only(span, names.AGENT_NAME, names.OUR_MODE)
            )


def _only(span: Span, *wanted: str) -> Attributes:
    found: dict[str, Value | None] = {name: span.attributes.get(name) for name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def _number(span: Span, name: str) -> float:
    value = span.attributes.get(name, 0)
    return value if isinstance(value, int | float) else 0
