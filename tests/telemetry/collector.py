"""A collector on loopback: it takes spans by OTLP over HTTP, as the protocol says."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.chat.fakes.http import Request, Response, serve_http

PROTOBUF = "application/x-protobuf"


class Collector:
    """Stores each span once, by its ids, as backends do."""

    def __init__(self) -> None:
        self.address = ""
        self.spans: dict[tuple[bytes, bytes], Span] = {}
        self.metrics: dict[str, Metric] = {}
        """The last values of each metric."""
        self.services: set[str] = set()
        self.received = 0
        """The number of spans that were taken, also again."""
        self.largest = 0
        """The most spans of one request."""
        self.refused = 0
        """The number of requests that were refused."""
        self.is_refusing = False
        self.most_spans = 1_000_000
        """The most spans of a request that is not too large."""
        self.poison = ""
        """The name of a span that no request may have."""
        self.takes_metrics = True
        self._changed = trio.Condition()

    def named(self, name: str) -> Span:
        (found,) = (span for span in self.spans.values() if span.name == name)
        return found

    async def wait_stored(self, count: int) -> None:
        """Wait until a number of spans is stored."""
        async with self._changed:
            while len(self.spans) < count:
                await self._changed.wait()

    async def wait_refused(self) -> None:
        """Wait until a request was refused."""
        async with self._changed:
            while not self.refused:
                await self._changed.wait()

    def counts(self, name: str) -> int:
        """Return how many values a histogram has."""
        return sum(point.count for point in self.metrics[name].histogram.data_points)

    def metric(self, name: str) -> float:
        """Return the sum of the values of a histogram."""
        return sum(float(point.sum) for point in self.metrics[name].histogram.data_points)

    async def answer(self, request: Request) -> Response:
        assert request.method == "POST"
        assert request.headers["content-type"] == PROTOBUF
        body = request.body
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        async with self._changed:
            self._changed.notify_all()
            is_metrics = request.target == "/v1/metrics"
            if self.is_refusing or (is_metrics and not self.takes_metrics):
                self.refused += 1
                # The exporter repeats a request that gets 500 or 503, and waits in between.
                return Response(401)
            if is_metrics:
                self._take_metrics(ExportMetricsServiceRequest.FromString(body))
            else:
                assert request.target == "/v1/traces"
                given = ExportTraceServiceRequest.FromString(body)
                spans = [it for part in given.resource_spans for it in part.scope_spans[0].spans]
                if len(spans) > self.most_spans:
                    return Response(413)
                if any(span.name == self.poison for span in spans):
                    return Response(400)
                self._take(given)
        return Response(200, ExportTraceServiceResponse().SerializeToString(), PROTOBUF)

    def _take(self, request: ExportTraceServiceRequest) -> None:
        spans: list[Span] = []
        for part in request.resource_spans:
            about = {it.key: it.value.string_value for it in part.resource.attributes}
            self.services.add(about["service.name"])
            spans += (span for scope in part.scope_spans for span in scope.spans)
        self.spans |= {(span.trace_id, span.span_id): span for span in spans}
        self.received += len(spans)
        self.largest = max(self.largest, len(spans))

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for part in request.resource_metrics:
            for scope in part.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}


@asynccontextmanager
async def open_collector() -> AsyncGenerator[Collector]:
    """Serve a collector as long as the block lasts."""
    collector = Collector()
    async with serve_http(collector.answer) as collector.address:
        yield collector
