"""The tree of one session's tasks, for queries and exports.

The fold updates it fact by fact; it is never rebuilt. Work per fact is O(depth).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from orchestrator.agents import Usage
from orchestrator.delegation.task import Ending, Status, TaskId
from orchestrator.delegation.tree.node import NOTHING_USED, TaskNode
from orchestrator.delegation.tree.usage_totals import UsageTotals

if TYPE_CHECKING:
    import networkx as nx

    from orchestrator.delegation.tree.critical_path import CriticalPath
    from orchestrator.delegation.tree.diff import Change
    from orchestrator.delegation.tree.intervals import ConcurrencyStep, Parallelism
    from orchestrator.delegation.tree.progress import Progress
    from orchestrator.delegation.tree.rollups import Rollups, Subtree
    from orchestrator.delegation.tree.rows import Row
    from orchestrator.delegation.tree.tally import Tally


MAX_BOXES: Final = 120
"""The most boxes of a chart: more are not readable."""
DELEGATES: Final = "delegates"
"""The edge from a parent to a child."""
NEEDS: Final = "needs"
"""The edge from a task to one that starts when it has succeeded."""


class Tree:
    """The tasks of a session, who delegated them, and how they ended.

    Edges have a kind: `delegates` from parent to child, `needs` from a task to a sibling that
    starts when it has succeeded.
    """

    def __init__(self, root: TaskId) -> None:
        self.root = root
        self._nodes: dict[TaskId, TaskNode] = {}
        self._needs: dict[TaskId, tuple[TaskId, ...]] = {}
        # Both are built when first read: most trees are never read while they grow.
        self._children: dict[TaskId, list[TaskId]] | None = None
        self._rollups: Rollups | None = None
        self._totals = UsageTotals(self._nodes)
        self._to_come: dict[TaskId, int] = {}
        """How many more tasks the fan-out of each parent will ask for."""
        self.turns: list[tuple[float, float | None]] = []
        """When the turns of the session began and ended, oldest first."""
        self.provider_waits: dict[TaskId, list[tuple[float, float]]] = {}
        """When the model calls of a task waited for their provider, oldest first."""
        self.awaited: list[tuple[float, TaskId]] = []
        """The detached tasks that a tool call of the session waited for, and since when."""
        self.calls_began = 0.0
        """When the last answer of the session requested tool calls."""

    def __repr__(self) -> str:
        return f"<Tree {self.root}: {len(self)} tasks>"

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[TaskId]:
        """Yield all tasks, each parent before its children."""
        return iter(self._nodes)

    def __getitem__(self, task: TaskId) -> TaskNode:
        """Return the node of a task; only to be read."""
        node = self._nodes[task]
        if self._totals.deepest > node.level:
            self._totals.refresh(node.level)
        return node

    def nodes(self) -> Mapping[TaskId, TaskNode]:
        """Return all nodes; only to be read."""
        self._totals.refresh()
        return self._nodes

    @property
    def total(self) -> Usage:
        """The usage of the whole tree."""
        return self[self.root].total

    @property
    def to_come(self) -> int:
        """How many more tasks its fan-outs will ask for, as far as they have said so."""
        return sum(self._to_come.values())

    @property
    def is_at_work(self) -> bool:
        """A task, or the turn of the session, goes on now; else its times do not grow."""
        return any(
            node.ended is None and node.started is not None and node.status != Status.INTERRUPTED
            for node in self._nodes.values()
        )

    def children(self, task: TaskId) -> list[TaskId]:
        """Return the children of a task, in the order of their requests."""
        if task not in self._nodes:
            raise KeyError(task)
        if self._children is None:
            self._children = {}
            for child, node in self._nodes.items():
                if node.parent is not None:
                    self._children.setdefault(node.parent, []).append(child)
        return [*self._children.get(task, ())]

    def needs(self, task: TaskId) -> list[TaskId]:
        """Return the tasks that had to succeed before this one could start."""
        return [*dict.fromkeys(self._needs.get(task, ()))]

    def edges(self) -> Iterator[tuple[TaskId, TaskId, str]]:
        """Yield from where each edge leads, to where, and its kind."""
        for task, node in self._nodes.items():
            if node.parent is not None:
                yield node.parent, task, DELEGATES
            for need in dict.fromkeys(self._needs.get(task, ())):
                yield need, task, NEEDS

    def ancestors(self, task: TaskId) -> list[TaskId]:
        """Return the parent of a task, its parent, and so on up to the root."""
        found: list[TaskId] = []
        above = self._nodes[task].parent
        while above is not None:
            found.append(above)
            above = self._nodes[above].parent
        return found

    def descendants(self, task: TaskId | None = None, *, itself: bool = False) -> Iterator[TaskId]:
        """Yield all below a task, or below the root, each parent before its children."""
        top = self.root if task is None else task
        pending = [top]
        while pending:
            below = pending.pop()
            if below != top or itself:
                yield below
            pending += reversed(self.children(below))

    def find(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        label: str | None = None,
        under: TaskId | None = None,
    ) -> list[TaskId]:
        """Return the tasks that fit, each parent before its children.

        Args:
            status: their status, or several that they may have, such as `FAILURES`.
            agent: the name of their agent.
            label: the label that their parent gave them.
            under: the top of the subtree to search; by default the whole tree.
        """
        statuses = {status} if isinstance(status, str) else status
        return [
            task
            for task in self.descendants(under, itself=True)
            if (statuses is None or self._nodes[task].status in statuses)
            and (agent is None or self._nodes[task].agent == agent)
            and (label is None or self._nodes[task].label == label)
        ]

    def at(self, name: str) -> TaskId | None:
        """Return the task with this id or path, if there is one."""
        task = TaskId(name)
        if task in self._nodes:
            return task
        paths = (task for task, node in self._nodes.items() if node.path == name)
        return next(paths, None)

    def counts(self) -> dict[str, int]:
        """Return how many tasks have each status."""
        if self._rollups is not None:
            return self.subtree(self.root).tally.counts
        # All rollups would take a hundred times as long: half a second for 25,000 tasks.
        from orchestrator.delegation.tree.tally import STATUSES

        found = Counter([node.status for node in self._nodes.values()])
        return {status: found[status] for status in STATUSES if status in found}

    def tally(self, task: TaskId | None = None) -> "Tally":
        """Return the tally of a task and all below it; without one, of the whole tree."""
        return self.subtree(self.root if task is None else task).tally.copy()

    def subtree(self, task: TaskId) -> "Subtree":
        """Return the rollup of a subtree, for views, which only read it."""
        if self._rollups is None:
            from orchestrator.delegation.tree.rollups import Rollups

            self._rollups = Rollups(self._nodes)
        return self._rollups[task]

    # Imported late: a program that runs tasks seldom analyses or draws them.

    def steps(
        self, task: TaskId | None = None, *, now: float | None = None
    ) -> "list[ConcurrencyStep]":
        """Return how many tasks of a subtree worked at once, at each change."""
        from orchestrator.delegation.tree.intervals import steps

        return steps(self, task, now=now)

    def parallelism(self, task: TaskId | None = None, *, now: float | None = None) -> "Parallelism":
        """Return the peak and average number of tasks of a subtree that worked at once."""
        from orchestrator.delegation.tree.intervals import parallelism

        return parallelism(self, task, now=now)

    def critical_path(
        self, task: TaskId | None = None, *, now: float | None = None
    ) -> "CriticalPath":
        """Return the critical path of a subtree: see the module `critical_path`."""
        from orchestrator.delegation.tree.critical_path import critical_path

        return critical_path(self, task, now=now)

    def slack(
        self, task: TaskId | None = None, *, now: float | None = None
    ) -> Mapping[TaskId, float]:
        """Return how many seconds later each task could end: see the module `slack_time`."""
        from orchestrator.delegation.tree.slack_time import slack

        return slack(self, task, now=now)

    def progress(self, *, now: float) -> "Progress":
        """Return how far the run has come: see the module `progress`."""
        from orchestrator.delegation.tree.progress import progress

        return progress(self, now=now)

    def rows(
        self,
        *,
        now: float | None = None,
        depth: int | None = None,
        only: Collection[TaskId] | None = None,
    ) -> "Iterator[Row]":
        """Yield one row a task, each parent before its children.

        Args:
            now: the end of tasks that still run.
            depth: how many levels below the root are shown; by default all.
            only: the tasks to show, besides those above them; by default all.
        """
        from orchestrator.delegation.tree.rows import rows

        return rows(self, now=now, depth=depth, only=only)

    def diff(self, later: "Tree") -> "list[Change]":
        """Return how another run differs from this one: see the module `diff`."""
        from orchestrator.delegation.tree.diff import diff

        return diff(self, later)

    def to_text(
        self,
        *,
        rows: int | None = None,
        now: float | None = None,
        depth: int | None = None,
        only: Collection[TaskId] | None = None,
    ) -> str:
        """Return the tree as lines of text, one a task; with `rows`, collapsed to this many.

        The other arguments are those of `rows()`; of a collapsed tree, only `now` counts.
        """
        if rows is None:
            from orchestrator.delegation.tree.rows import text

            return text(self.rows(now=now, depth=depth, only=only))
        from orchestrator.delegation.tree.exports.text import collapsed_text

        return collapsed_text(self, rows=rows, now=now)

    def to_mermaid(self, *, rows: int = 40) -> str:
        """Return the collapsed tree as a Mermaid flowchart, with at most `rows` boxes."""
        from orchestrator.delegation.tree.exports.mermaid import mermaid

        return mermaid(self, rows=rows)

    def to_dot(self, *, rows: int = MAX_BOXES) -> str:
        """Return the collapsed tree for Graphviz, with at most `rows` boxes."""
        from orchestrator.delegation.tree.exports.dot import dot

        return dot(self, rows=rows)

    def to_svg(self, *, rows: int = MAX_BOXES, now: float | None = None) -> str:
        """Return the collapsed tree as a picture of at most `rows` lines."""
        from orchestrator.delegation.tree.exports.svg import svg

        return svg(self, rows=rows, now=now)

    def _repr_svg_(self) -> str:
        """Return the picture, for a notebook."""
        return self.to_svg()

    def to_networkx(self) -> "nx.DiGraph[TaskId]":
        """Return the whole tree as a new networkx graph: see the module `networkx_graph`."""
        from orchestrator.delegation.tree.exports.networkx_graph import networkx_graph

        return networkx_graph(self)

    def to_graphml(self) -> str:
        """Return the whole graph as GraphML: see the module `graphml`."""
        from orchestrator.delegation.tree.exports.graphml import graphml

        return graphml(self)

    def to_json(self) -> str:
        """Return the whole graph as node-link JSON: see the module `node_link`."""
        from orchestrator.delegation.tree.exports.node_link import node_link_json

        return node_link_json(self)

    def to_trace(self, *, now: float | None = None) -> str:
        """Return the whole tree as a Chrome trace: see the module `chrome_trace`."""
        from orchestrator.delegation.tree.exports.chrome_trace import trace

        return trace(self, now=now)

    def add_node(self, task: TaskId, node: TaskNode) -> None:
        """Add a task with its node; its parent is there already."""
        self._nodes[task] = node
        if self._children is not None and node.parent is not None:
            self._children.setdefault(node.parent, []).append(task)
        if self._rollups is not None:
            self._rollups.changed[task] = None

    def set_needs(self, task: TaskId, needs: Iterable[TaskId]) -> None:
        """Note the tasks that must succeed before a task starts."""
        self._needs[task] = tuple(needs)

    def set_to_come(self, parent: TaskId, tasks: int) -> None:
        """Note how many more tasks the fan-out of a task will ask for, unless it has ended."""
        if self._nodes[parent].ended is None:
            self._to_come[parent] = tasks

    def set_status(self, task: TaskId, status: Status | Ending) -> None:
        """Show another status of a task: the ledger derives it from the task's state."""
        node = self._nodes[task]
        if node.status != status:
            node.status = status
            if self._rollups is not None:
                self._rollups.changed[task] = None

    def set_first_goal(self, goal: str) -> None:
        """Give the root its goal, unless it has one: the first message of its session."""
        node = self._nodes[self.root]
        node.goal = node.goal or goal

    def start(self, task: TaskId, at: float) -> None:
        """Note when a task started, the first time."""
        node = self._nodes[task]
        if node.started is None:
            node.started = at
            if self._rollups is not None:
                self._rollups.changed[task] = None

    def end(
        self,
        task: TaskId,
        at: float,
        error: str,
        status: Status | Ending | None = None,
        *,
        abandoned: bool = False,
    ) -> None:
        """Note the end of a task, its error and last status; roots show the status of a turn."""
        node = self._nodes[task]
        node.ended, node.error, node.abandoned = at, error, abandoned
        node.status = node.status if status is None else status
        if self._to_come:
            self._to_come.pop(task, None)
        if self._rollups is not None:
            self._rollups.changed[task] = None

    def begin_turn(self, at: float) -> None:
        """Note that the session begins a turn."""
        self.start(self.root, at)
        root = self._nodes[self.root]
        root.ended, root.error = None, ""
        if self._rollups is not None:
            self._rollups.changed[self.root] = None
        self.turns.append((at, None))

    def end_turn(self, at: float, error: str) -> None:
        """Note that the turn of the session has ended."""
        self.end(self.root, at, error)
        began, _ = self.turns[-1]
        self.turns[-1] = (began, at)

    def add_provider_wait(self, task: TaskId, span: tuple[float, float]) -> None:
        """Note when a model call of a task waited for its provider."""
        self.provider_waits.setdefault(task, []).append(span)

    def add_awaited(self, task: TaskId, settled_at: float) -> None:
        """Note that a tool call of the session returns the result of a detached task."""
        if settled_at >= self.calls_began:
            self.awaited.append((self.calls_began, task))

    def provider_wait(self, task: TaskId | None = None) -> float:
        """Return the seconds that model calls of a subtree waited for their providers."""
        if not self.provider_waits:
            return 0.0
        return sum(map(self.own_provider_wait, self.descendants(task, itself=True)))

    def own_provider_wait(self, task: TaskId) -> float:
        """Return the seconds that model calls of one task waited for their providers."""
        return sum(end - begin for begin, end in self.provider_waits.get(task, ()))

    def add_usage(self, task: TaskId, usage: Usage) -> None:
        """Book usage on a task, and in the totals of all above it."""
        node = self._nodes[task]
        node.usage = usage if node.usage is NOTHING_USED else node.usage + usage
        self._totals.add(task, node, usage)
        if self._rollups is not None:
            self._rollups.changed[task] = None
