"""The span that is active around a call of the program: the parent of the run's first span."""

from collections.abc import Mapping

from opentelemetry import trace

from orchestrator.agents.current_span import current_traceparent
from orchestrator.delegation.traceparent import write_traceparent


def with_active_span(context: Mapping[str, str]) -> Mapping[str, str]:
    """Return a session context with the active span, if there is one.

    The call of a tool that starts a run is nearer than the span around the whole program.
    """
    if traceparent := current_traceparent():
        return {**context, "traceparent": traceparent}
    span = trace.get_current_span().get_span_context()
    if not (span.is_valid and span.trace_flags.sampled):
        return context
    return {**context, "traceparent": write_traceparent(span.trace_id, span.span_id)}
