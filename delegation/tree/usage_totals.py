"""The usage of each task with all below it, added up when it is read."""

from orchestrator.agents import Usage
from orchestrator.delegation.task import TaskId
from orchestrator.delegation.tree.node import NOTHING_USED, TaskNode


class UsageTotals:
    """Writes the `total` of nodes: their own usage and that of all below them."""

    def __init__(self, nodes: dict[TaskId, TaskNode]) -> None:
        self._nodes = nodes
        self._pending: dict[int, dict[TaskId, Usage]] = {}
        """By level: the usage in the total of a task that is missing in that of its parent."""
        self.deepest = 0
        """The deepest level with pending usage."""

    def add(self, task: TaskId, node: TaskNode, usage: Usage) -> None:
        """Add usage to the total of a task, and later to the totals of all above it."""
        node.total = usage if node.total is NOTHING_USED else node.total + usage
        level = node.level
        if not level:
            return  # no task is above the root
        pending = self._pending.get(level)
        if pending is None:
            pending = self._pending[level] = {}
        pending[task] = pending[task] + usage if task in pending else usage
        self.deepest = max(self.deepest, level)

    def refresh(self, level: int = 0) -> None:
        """Bring the totals of a level and of all below it up to date, by default all totals.

        Usage climbs only when it is read: to climb to the root with every model answer would cost
        the depth of the tree each time.
        """
        while self.deepest > level:
            for task, usage in self._pending.pop(self.deepest, {}).items():
                parent = self._nodes[task].parent
                assert parent is not None, "the usage of a root is not pending"
                self.add(parent, self._nodes[parent], usage)
            self.deepest -= 1
