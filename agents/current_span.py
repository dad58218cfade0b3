"""The span of the step that runs now, for the requests that it sends to other programs."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final

CURRENT_SPAN: Final[ContextVar[Callable[[], str] | None]] = ContextVar("current span", default=None)
"""Returns the span as a `traceparent` of W3C Trace Context; None where telemetry is off."""


def current_traceparent() -> str:
    """Return the span of the step that runs now; "" where telemetry is off."""
    span = CURRENT_SPAN.get()
    return "" if span is None else span()


def with_traceparent(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of a command, with the span of the step that runs it."""
    traceparent = current_traceparent()
    return {**environ, "TRACEPARENT": traceparent} if traceparent else environ
