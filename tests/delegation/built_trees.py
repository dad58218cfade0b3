"""Trees that tests build task by task, without facts."""

from collections.abc import Iterable
from typing import Literal

from orchestrator.delegation import Mode, Reason, Status, TaskId, Tree
from orchestrator.delegation.tree.node import TaskNode


def add_task(
    tree: Tree,
    task: TaskId,
    *,
    parent: TaskId | None,
    agent: str,
    path: str,
    mode: Mode,
    at: float,
    goal: str = "",
    label: str = "",
    reason: Reason | Literal[""] = "",
    needs: Iterable[TaskId] = (),
    to_come: int | None = None,
) -> None:
    """Add a task that is queued."""
    level = 0 if parent is None else tree[parent].level + 1
    node = TaskNode(parent, agent, goal, label, path, mode, Status.QUEUED, reason, at, level=level)
    tree.add_node(task, node)
    if needs:
        tree.set_needs(task, needs)
    if parent is not None and to_come is not None:
        tree.set_to_come(parent, to_come)
