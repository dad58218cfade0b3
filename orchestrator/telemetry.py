"""OpenTelemetry: `open_orchestrator(telemetry=...)` sends the spans of runs to a collector.

`JsonLines` formats log records as JSON.
"""

from orchestrator.products.telemetry.json_lines import JsonLines
from orchestrator.products.telemetry.settings import Telemetry

__all__ = ["JsonLines", "Telemetry"]
