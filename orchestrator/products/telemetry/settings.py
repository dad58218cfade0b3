"""The settings of telemetry."""

import os
from typing import Final

import attrs

SERVICE: Final = "orchestrator"
CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The standard variable that asks for content: `true`."""


def _wants_content() -> bool:
    return os.environ.get(CONTENT_VARIABLE, "").lower() == "true"


@attrs.frozen
class Telemetry:
    """Where spans are sent, and whether they have content."""

    address: str = ""
    """The address of a collector, `http://HOST:4318`; by default, the standard variables of
    OpenTelemetry decide (`OTEL_EXPORTER_OTLP_ENDPOINT`)."""
    content: bool = attrs.field(factory=_wants_content, kw_only=True)
    """Add the texts of messages and calls to spans, without the secrets that the redactor finds; by
    default only if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is `true`."""
    service: str = attrs.field(default=SERVICE, kw_only=True)
    """The name of the program in the backend, unless `OTEL_SERVICE_NAME` names it."""


def telemetry_of(given: Telemetry | str) -> Telemetry:
    """Return settings; a text is an address."""
    return Telemetry(given) if isinstance(given, str) else given
