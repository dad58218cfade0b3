"""The one folding policy: any tree in as many rows as there are, and nothing hidden in silence.

A tree that fits is shown whole. Otherwise rows are spent on what waits for somebody, then on what
runs, then on what failed, then on what is large; more than `GROUPED` siblings of one agent are one
row, which opens as those that matter and "… n more"; rows that are left show more of them, as long
as they wait, run or have failed. Every row says how many tasks it hides and how
they stand: the rows and what they hide add up to the tree.

Only what is shown is looked at, so a frame costs the same whatever the size of the tree.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from delegation.task import TaskId
from delegation.tree.collapse_plan import (
    DEFAULT_STATE,
    GROUP_THRESHOLD,
    SHOWN_PER_GROUP,
    CollapseNode,
    CollapsePlan,
    CollapseState,
    RowKind,
)
from delegation.tree.rollups import Siblings, Subtree
from delegation.tree.tally import Tally, glyph_counts

if TYPE_CHECKING:
    from delegation.tree.tree import Tree

__all__ = [
    "DEFAULT_STATE",
    "GROUP_THRESHOLD",
    "SHOWN_PER_GROUP",
    "CollapseState",
    "CollapsedRow",
    "CollapsedTree",
    "RowKind",
    "fold",
]


@attrs.frozen(kw_only=True)
class CollapsedRow:
    """One row: a task, a group, or the rest of one."""

    key: str
    """What it is known by from frame to frame: the id of a task, or PARENT/AGENT of a group."""
    kind: RowKind
    task: TaskId
    """Which task; of a group and of a rest, whose children they are."""
    agent: str
    depth: int
    branch: str
    """The lines that connect it to its parent."""
    members: int
    """How many tasks it stands for by itself: 1, or those of the group or rest."""
    is_expanded: bool | None
    """Whether what is below it is shown; None if there is nothing, or nothing to open."""
    tally: Tally
    """All that it stands for, with all below."""
    hidden: Tally
    """What no row shows, and this one is the place for."""
    status_counts: tuple[int, ...]
    """How many of its members have each status, in the order of `STATUSES`."""

    @property
    def summary(self) -> str:
        """What is folded away here, in short: `✓44 · 19,955↓ ✗798`."""
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
        """What stands in the place of a name, where it is no single task."""
        if self.kind is RowKind.GROUP:
            return f"{self.agent} ×{self.members:,}"
        return f"… {self.members:,} more" if self.kind is RowKind.MORE else self.agent

    def _alarms(self) -> str:
        if self.kind is RowKind.TASK:
            return self.hidden.alarms()
        below = [
            hidden - own
            for hidden, own in zip(
                self.hidden.status_counts, self.status_counts, strict=True
            )
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
        """What is hidden, in words; empty if nothing is."""
        if not self.hidden:
            return ""
        shown = self.tasks - self.hidden
        return f"{shown:,} of {self.tasks:,} tasks are shown; the rest is folded"


def fold(
    tree: "Tree",
    *,
    rows: int,
    state: CollapseState = DEFAULT_STATE,
    root: TaskId | None = None,
) -> CollapsedTree:
    """Return a tree, or a subtree, in so many rows.

    Args:
        tree: what to show.
        rows: how many rows there are; what is opened by hand may need more.
        state: what was opened and closed by hand.
        root: the top of what is shown; by default all is.
    """
    branch = tree.subtree(tree.root if root is None else root)
    tasks = branch.tally.tasks
    grouped = GROUP_THRESHOLD if tasks > rows else math.inf
    unit = CollapsePlan(state, grouped, rows - 1).plan(branch)
    return CollapsedTree(tuple(_rows(unit)), tasks)


def _rows(top: CollapseNode) -> Iterator[CollapsedRow]:
    pending = [(top, "", "")]
    while pending:
        unit, branch, indent = pending.pop()
        yield _row(unit, branch)
        for below in reversed(unit.children or []):
            is_last = unit.children is not None and below is unit.children[-1]
            pending.append(
                (
                    below,
                    indent + ("└─ " if is_last else "├─ "),
                    indent + ("   " if is_last else "│  "),
                )
            )


def _row(unit: CollapseNode, branch: str) -> CollapsedRow:
    of = unit.of
    is_open = unit.children is not None
    numbers = unit.status_counts
    if isinstance(of, Subtree) and unit.kind is RowKind.TASK:
        assert of.status is not None, "it was looked at"
        numbers = [0] * len(of.tally.status_counts)
        numbers[of.status] = 1
    assert numbers is not None, "a group has members"
    return CollapsedRow(
        key=unit.key,
        kind=unit.kind,
        task=of.task if isinstance(of, Subtree) else of.parent.task,
        agent=_agent(of),
        depth=unit.depth,
        branch=branch,
        members=sum(numbers),
        is_expanded=is_open
        if unit.hidden.tasks and unit.kind is not RowKind.MORE
        else None,
        tally=unit.hidden if unit.kind is RowKind.MORE else of.tally.copy(),
        hidden=Tally() if is_open else unit.hidden,
        status_counts=tuple(numbers),
    )


def _agent(of: Subtree | Siblings) -> str:
    if isinstance(of, Siblings):
        return of.agent
    return "" if of.siblings is None else of.siblings.agent
