"""Runs tasks while telemetry is on: each step knows its span."""

from functools import partial

from orchestrator.agents.current_span import CURRENT_SPAN
from orchestrator.kernel.execution.executor import Executor, TaskHost, WorkOrder
from orchestrator.kernel.step_spans import StepSpans


class TracedExecutor:
    """Runs tasks on another executor (`orchestrator.kernel.execution.executor.Executor`)."""

    def __init__(self, executor: Executor, spans: StepSpans) -> None:
        self._executor = executor
        self._spans = spans
        self.workspace_of = executor.workspace_of
        self.close_below = executor.close_below
        self.pop_note = executor.pop_note

    async def run(self, order: WorkOrder, host: TaskHost) -> str:
        # Reset: the task may run inside the call of a program, whose next run has another parent.
        token = CURRENT_SPAN.set(partial(self._spans.task_span, order.task))
        try:
            return await self._executor.run(order, host)
        finally:
            CURRENT_SPAN.reset(token)
