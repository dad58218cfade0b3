"""What a monitor is told: `GET /metrics`."""

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from orchestrator.server.operations import Operation

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "orchestrator_http_requests_total",
            "Requests that were answered.",
            ("method", "path", "status"),
            registry=self._registry,
        )
        self._under_way = Gauge(
            "orchestrator_http_requests_under_way",
            "Requests that have no answer yet.",
            registry=self._registry,
        )

    def began(self, operation: Operation) -> None:
        del operation
        self._under_way.inc()

    def ended(self, operation: Operation, status: int) -> None:
        self._under_way.dec()
        self._requests.labels(operation.method, operation.path, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
