"""The original of a fork: the task whose instructions and tools it has."""

from orchestrator.delegation.ledger.task_record import TaskRecord


def original(task: TaskRecord) -> TaskRecord:
    """Return the task whose instructions and tools a fork has; any other task is its own."""
    while task.request is not None and task.request.is_fork and task.parent is not None:
        task = task.parent
    return task
