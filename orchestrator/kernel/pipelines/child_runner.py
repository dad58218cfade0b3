"""The port that runs the tasks that a pipeline delegates."""

from collections.abc import Awaitable
from typing import Protocol

from orchestrator.delegation import Outcome, TaskId, TaskRecord
from orchestrator.kernel.execution.executor import StepTiming
from orchestrator.kernel.execution.outcomes import TaskEnd


class ChildRunner(Protocol):
    """Runs the tasks that pipelines delegate."""

    timing: StepTiming | None
    """Delays requests, in a simulation and in a replay."""

    def new_task_id(self, parent: TaskId, call: str, /) -> TaskId:
        """Return the id of a task that a call requests."""
        ...

    def run_joined(self, task: TaskRecord) -> Awaitable[TaskEnd | None]:
        """Run a task when it has a slot, and return its end; None if it ended without running."""
        ...

    def accepts_changes(self, task: TaskRecord) -> bool:
        """Return whether a program may request other tasks than before a crash."""
        ...

    def refuse_change(self, task: TaskRecord, change: str) -> None:
        """Stop a task whose program has changed: its run is interrupted, or the task fails."""
        ...

    def add_note(self, task: TaskId, note: str) -> None:
        """Add a sentence to the outcome of a task that has not ended."""
        ...

    def settle(self, task: TaskRecord, outcome: Outcome) -> Outcome:
        """End a task, after all that it has joined."""
        ...
