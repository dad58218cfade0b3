"""OpenTelemetry: `open_orchestrator(telemetry=...)` sends the spans of runs to a collector."""

from orchestrator.products.telemetry.settings import Telemetry

__all__ = ["Telemetry"]
