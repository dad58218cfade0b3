"""The executed tree of one session, as a graph that anybody can query.

The fold keeps it up to date, fact by fact; it is never rebuilt. Work per fact is O(depth).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agents import Usage
from delegation import render
from delegation.task import Mode, Reason, Status, TaskId

if TYPE_CHECKING:
    import networkx as nx


class Tree:
    """Who asked whom for what, and what came of it.

    Every node has the attributes `agent, goal, label, path, mode, reason, status, requested,
    started, ended, usage, cost, total, error`. `usage` and `cost` (micro-dollars) are the
    task's own; `total` is the usage of it and all below it. Times are seconds since the epoch.
    """

    graph: "nx.DiGraph[TaskId]"
    """The ledger writes it: copy it before you change it."""

    def __init__(self, root: TaskId) -> None:
        # Imported late: networkx is the slowest import of all, and many programs draw no tree.
        import networkx as nx

        self.graph = nx.DiGraph()
        self.root = root

    def __repr__(self) -> str:
        return f"<Tree {self.root}: {len(self)} tasks>"

    def __len__(self) -> int:
        return len(self.graph)

    def __getitem__(self, task: TaskId) -> dict[str, Any]:
        """Return the attributes of a node."""
        attributes: dict[str, Any] = self.graph.nodes[task]
        return attributes

    @property
    def total(self) -> Usage:
        """What the whole tree has used."""
        usage: Usage = self[self.root]["total"]
        return usage

    def children(self, task: TaskId) -> list[TaskId]:
        """Return the tasks that this one asked for, in the order it asked."""
        return list(self.graph.succ[task])

    def counts(self) -> dict[str, int]:
        """Return how many tasks have each status."""
        counts: dict[str, int] = {}
        for task in self.graph:
            status = self[task]["status"]
            counts[status] = counts.get(status, 0) + 1
        return counts

    def rows(self, *, now: float | None = None) -> Iterator[render.Row]:
        """Yield one row a task, each parent before its children.

        Args:
            now: counts the time of what still runs.
        """
        return render.rows(self, now=now)

    def to_text(self) -> str:
        """Return the tree as lines of text."""
        return render.text(self)

    def to_mermaid(self) -> str:
        """Return the tree as a Mermaid flowchart."""
        return render.mermaid(self)

    def add(
        self,
        task: TaskId,
        *,
        parent: TaskId | None,
        agent: str,
        path: str,
        mode: Mode,
        at: float,
        goal: str = "",
        label: str = "",
        reason: Reason | None = None,
    ) -> None:
        """Add a task that has not started."""
        self.graph.add_node(
            task,
            agent=agent,
            goal=goal,
            label=label,
            path=path,
            mode=mode.value,
            status=Status.QUEUED.value,
            reason="" if reason is None else reason.value,
            requested=at,
            started=None,
            ended=None,
            usage=Usage(),
            cost=0,
            total=Usage(),
            error="",
        )
        if parent is not None:
            self.graph.add_edge(parent, task, kind="delegates")

    def mark(self, task: TaskId, **attributes: object) -> None:
        """Change attributes of a node."""
        self.graph.nodes[task].update(attributes)

    def spend(self, task: TaskId, usage: Usage) -> None:
        """Book usage on a task, and in the totals of all above it."""
        node = self.graph.nodes[task]
        node["usage"] += usage
        node["cost"] += usage.cost
        above: TaskId | None = task
        while above is not None:
            self.graph.nodes[above]["total"] += usage
            above = next(iter(self.graph.pred[above]), None)
