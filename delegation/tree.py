"""The executed tree of one session, as a graph that anybody can query.

The fold keeps it up to date, fact by fact; it is never rebuilt. Work per fact is O(depth).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from agents import Usage
from delegation import render
from delegation.task import Mode, Reason, Status, TaskId

if TYPE_CHECKING:
    import networkx as nx


NOTHING_USED: Final = Usage()
DELEGATES: Final = "delegates"
"""The edge from who asked to who was asked."""
NEEDS: Final = "needs"
"""The edge from a task to one that starts when it has succeeded."""


class Tree:
    """Who asked whom for what, and what came of it.

    Edges have a `kind`: `delegates` from parent to child, `needs` from a task to a sibling that
    starts when it has succeeded.

    Every node has the attributes `parent, agent, goal, label, path, mode, reason, status,
    requested, started, ended, usage, cost, total, error`. `usage` and `cost` (micro-dollars)
    are the task's own; `total` is the usage of it and all below it. Times are seconds since the
    epoch.
    """

    graph: "nx.DiGraph[TaskId]"
    """The ledger writes it: copy it before you change it."""

    def __init__(self, root: TaskId) -> None:
        # Imported late: networkx is the slowest import of all, and many programs draw no tree.
        import networkx as nx

        self.graph = nx.DiGraph()
        self.root = root
        # The graph's own dictionaries, without the view that it wraps around each look at them.
        self._nodes: dict[TaskId, dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"<Tree {self.root}: {len(self)} tasks>"

    def __len__(self) -> int:
        return len(self.graph)

    def __iter__(self) -> Iterator[TaskId]:
        """Yield all tasks, each parent before its children."""
        return iter(self._nodes)

    def __getitem__(self, task: TaskId) -> dict[str, Any]:
        """Return the attributes of a node."""
        return self._nodes[task]

    @property
    def total(self) -> Usage:
        """What the whole tree has used."""
        usage: Usage = self[self.root]["total"]
        return usage

    def children(self, task: TaskId) -> list[TaskId]:
        """Return the tasks that this one asked for, in the order it asked."""
        below = self.graph.succ[task].items()
        return [child for child, edge in below if edge["kind"] == DELEGATES]

    def needs(self, task: TaskId) -> list[TaskId]:
        """Return the tasks that had to succeed before this one could start."""
        above = self.graph.pred[task].items()
        return [need for need, edge in above if edge["kind"] == NEEDS]

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
        needs: Iterable[TaskId] = (),
    ) -> None:
        """Add a task that has not started."""
        self.graph.add_node(
            task,
            parent=parent,
            agent=agent,
            goal=goal,
            label=label,
            path=path,
            mode=mode,
            status=Status.QUEUED,
            reason="" if reason is None else reason,
            requested=at,
            started=None,
            ended=None,
            usage=NOTHING_USED,
            cost=0,
            total=NOTHING_USED,
            error="",
        )
        self._nodes[task] = self.graph.nodes[task]
        if parent is not None:
            self.graph.add_edge(parent, task, kind=DELEGATES)
        for need in needs:
            self.graph.add_edge(need, task, kind=NEEDS)

    def mark(self, task: TaskId, **attributes: object) -> None:
        """Change attributes of a node."""
        self._nodes[task].update(attributes)

    def spend(self, task: TaskId, usage: Usage) -> None:
        """Book usage on a task, and in the totals of all above it."""
        node = self._nodes[task]
        node["usage"] += usage
        node["cost"] += usage.cost
        above: TaskId | None = task
        while above is not None:
            node = self._nodes[above]
            node["total"] += usage
            above = node["parent"]
