"""The view of a tree in a given number of rows: the one policy of collapsing.

A tree that fits is shown whole. Otherwise rows go to tasks that wait for approval, then to running
ones, then to failed ones, then to large subtrees. More than `GROUP_THRESHOLD` siblings of one agent
are one row, which expands to the most important of them and "… n more". Spare rows show more of
them, as long as they wait, run or have failed. Every row counts its hidden tasks by status: the
rows and the hidden tasks add up to the tree.

Only the shown tasks are read, so a frame costs the same for every size of the tree.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from orchestrator.delegation.task import TaskId
from orchestrator.delegation.tree.collapse_plan import (
    DEFAULT_STATE,
    GROUP_THRESHOLD,
    SHOWN_PER_GROUP,
    CollapseNode,
    CollapsePlan,
    CollapseState,
    RowKind,
)
from orchestrator.delegation.tree.rollups import Siblings, Subtree
from orchestrator.delegation.tree.tally import Tally, glyph_counts

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

__all__ = [
    "DEFAULT_STATE",
    "GROUP_THRESHOLD",
    "SHOWN_PER_GROUP",
    "CollapseState",
    "CollapsedRow",
    "CollapsedTree",
    "RowKind",
    "collapse_tree",
]


@attrs.frozen(kw_only=True)
class CollapsedRow:
    """One row: a task, a group of siblings, or the rest of a group."""

    key: str
    """Its name in all frames: the id of a task, or PARENT/AGENT of a group."""
    kind: RowKind
    task: TaskId
    """The task; of a group and of a rest, their parent."""
    agent: str
    depth: int
    branch: str
    """The lines that connect it to its parent."""
    members: int
    """1, or the number of tasks in the group or rest."""
    is_expanded: bool | None
    """Whether the rows below it are shown; None if it cannot be expanded."""
    tally: Tally
    """Its members and all below them."""
    hidden: Tally
    """The tasks that it hides."""
    status_counts: tuple[int, ...]
    """How many of its members have each status, in the order of `STATUSES`."""

    @property
    def summary(self) -> str:
        """The hidden tasks, counted: `✓44 · 19,955↓ ✗798`."""
        if not self.hidden.tasks and self.kind is RowKind.TASK:
            return ""
        deeper = self.hidden.tasks
        own = ""
        if self.kind is not RowKind.TASK:
            own = glyph_counts(self.status_counts)
            deeper = max(0, self.hidden.tasks - self.members)
        below = f"{deeper:,}↓ {self._alarms()}".strip() if deeper else ""
        return " · ".join(filter(None, (own, below)))

    @property
    def title(self) -> str:
        """The name of a row that is no single task."""
        if self.kind is RowKind.GROUP:
            return f"{self.agent} ×{self.members:,}"
        return f"… {self.members:,} more" if self.kind is RowKind.MORE else self.agent

    def _alarms(self) -> str:
        if self.kind is RowKind.TASK:
            return self.hidden.alarms()
        below = [
            hidden - own
            for hidden, own in zip(self.hidden.status_counts, self.status_counts, strict=True)
        ]
        return glyph_counts(below, only="!◐✗")


@attrs.frozen
class CollapsedTree:
    """A tree in few rows."""

    rows: tuple[CollapsedRow, ...]
    tasks: int
    """How many tasks the tree has."""

    @property
    def hidden(self) -> int:
        """How many of them no row shows."""
        return self.tasks - sum(row.kind is RowKind.TASK for row in self.rows)

    @property
    def footer(self) -> str:
        """A sentence about the hidden tasks; empty if there are none."""
        if not self.hidden:
            return ""
        shown = self.tasks - self.hidden
        return f"{shown:,} of {self.tasks:,} tasks are shown; the rest is folded"


def collapse_tree(
    tree: "Tree", *, rows: int, state: CollapseState = DEFAULT_STATE, root: TaskId | None = None
) -> CollapsedTree:
    """Return a tree, or a subtree, as a number of rows.

    Args:
        tree: the tree to show.
        rows: the number of rows; rows that a user has expanded may come on top of it.
        state: the rows that a user has expanded and collapsed.
        root: the top of the subtree; by default the whole tree.
    """
    branch = tree.subtree(tree.root if root is None else root)
    tasks = branch.tally.tasks
    grouped = GROUP_THRESHOLD if tasks > rows else math.inf
    top = CollapsePlan(state, grouped, rows - 1).plan(branch)
    return CollapsedTree(tuple(_rows(top)), tasks)


def _rows(top: CollapseNode) -> Iterator[CollapsedRow]:
    pending = [(top, "", "")]
    while pending:
        node, branch, indent = pending.pop()
        yield _row(node, branch)
        for below in reversed(node.children or []):
            is_last = node.children is not None and below is node.children[-1]
            pending.append(
                (
                    below,
                    indent + ("└─ " if is_last else "├─ "),
                    indent + ("   " if is_last else "│  "),
                )
            )


def _row(node: CollapseNode, branch: str) -> CollapsedRow:
    of = node.of
    is_expanded = node.children is not None
    counts = node.status_counts
    if isinstance(of, Subtree) and node.kind is RowKind.TASK:
        assert of.status is not None, "it was added up"
        counts = [0] * len(of.tally.status_counts)
        counts[of.status] = 1
    assert counts is not None, "a group has members"
    return CollapsedRow(
        key=node.key,
        kind=node.kind,
        task=of.task if isinstance(of, Subtree) else of.parent.task,
        agent=_agent(of),
        depth=node.depth,
        branch=branch,
        members=sum(counts),
        is_expanded=is_expanded if node.hidden.tasks and node.kind is not RowKind.MORE else None,
        tally=node.hidden if node.kind is RowKind.MORE else of.tally.copy(),
        hidden=Tally() if is_expanded else node.hidden,
        status_counts=tuple(counts),
    )


def _agent(of: Subtree | Siblings) -> str:
    if isinstance(of, Siblings):
        return of.agent
    return "" if of.siblings is None else of.siblings.agent
