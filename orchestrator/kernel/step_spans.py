"""The port of telemetry: the spans of steps that run now, before their facts are known."""

from typing import Protocol

from orchestrator.agents import CallId
from orchestrator.delegation import Reply, TaskRecord


class StepSpans(Protocol):
    """Names spans, each as a `traceparent` of W3C Trace Context."""

    def task_span(self, task: TaskRecord) -> str:
        """Return the span of a task, or of the turn of a session."""
        ...

    def chat_span(self, task: TaskRecord) -> str:
        """Return the span of the next call of a task's model."""
        ...

    def call_span(self, task: TaskRecord, call: CallId) -> str:
        """Return the span of a tool call of a task."""
        ...

    def reply_span(self, reply: Reply) -> str:
        """Return the span of the turn of a reply."""
        ...
