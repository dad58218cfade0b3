"""The spans of steps that run now, with the ids that the exporter gives them later.

The requests of a step name its span to other programs. After a crash the number of the steps
before it is unknown: the requests of a resumed task name the span of the task.
"""

from typing import Final

import attrs
import msgspec

from orchestrator.agents import CallId
from orchestrator.delegation import Encoded, Mode, Reply, TaskId, TaskRecord
from orchestrator.delegation.events import (
    Entry,
    ModelAnswered,
    ModelFailed,
    TaskRequested,
    TaskSettled,
    TurnEnded,
    TurnStarted,
)
from orchestrator.delegation.traceparent import write_traceparent
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.telemetry.span import (
    SpanIds,
    call_span,
    chat_span,
    task_span,
    task_trace,
    turn_ids,
    turn_key,
)

KINDS: Final = (ModelAnswered, ModelFailed, TaskRequested, TurnStarted, TaskSettled, TurnEnded)
"""The facts that it counts."""


@attrs.define
class _Steps:
    """The model calls of a task, or of a turn, so far."""

    chats: int = 0
    answered: int = 0
    """The number of the last one that gave an answer."""


class CurrentSpans:
    """Counts the steps of running tasks (`orchestrator.kernel.step_spans.StepSpans`)."""

    def __init__(self, book: Bookkeeper) -> None:
        self._records = book.records
        self._steps: dict[TaskId, _Steps] = {}

    def receive(self, entry: Entry, _: Encoded) -> None:
        """Count the step of a fact."""
        event = entry.event
        if isinstance(event, ModelAnswered | ModelFailed):
            if (steps := self._steps.get(event.task)) is not None:
                steps.chats += 1
                if isinstance(event, ModelAnswered):
                    steps.answered = steps.chats
        elif isinstance(event, TaskRequested):
            self._steps[event.request.id] = _Steps()
        elif isinstance(event, TurnStarted):
            self._steps[TaskId(event.session)] = _Steps()
        elif isinstance(event, TaskSettled):
            self._steps.pop(event.task, None)
        elif isinstance(event, TurnEnded):
            self._steps.pop(TaskId(event.session), None)

    def trace_of(self, task: TaskRecord) -> str:
        """Return the id of the trace of a task."""
        return f"{self._ids(task).trace:032x}"

    def task_span(self, task: TaskRecord) -> str:
        ids = self._ids(task)
        return write_traceparent(ids.trace, ids.span)

    def chat_span(self, task: TaskRecord) -> str:
        if (steps := self._steps.get(task.id)) is None:
            return self.task_span(task)
        span = chat_span(self._key(task), steps.chats + 1)
        return write_traceparent(self._ids(task).trace, span)

    def call_span(self, task: TaskRecord, call: CallId) -> str:
        if (steps := self._steps.get(task.id)) is None:
            return self.task_span(task)
        span = call_span(self._key(task), steps.answered, call)
        return write_traceparent(self._ids(task).trace, span)

    def reply_span(self, reply: Reply) -> str:
        ids, _ = turn_ids(reply.session, reply.turn, reply.trace)
        return write_traceparent(ids.trace, ids.span)

    def _key(self, task: TaskRecord) -> str:
        if not task.is_root:
            return task.id
        return turn_key(task.session, self._records.sessions[task.session].turns)

    def _ids(self, task: TaskRecord) -> SpanIds:
        if task.parent is None:
            session = self._records.sessions[task.session]
            caller = msgspec.UNSET if session.turn is None else session.turn.trace
            return turn_ids(task.session, session.turns, caller)[0]
        if task.mode is Mode.DETACHED:
            return task_trace(task.id)
        return SpanIds(self._ids(task.parent).trace, task_span(task.id))
