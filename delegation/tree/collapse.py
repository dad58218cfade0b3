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
    AS_IT_COMES,
    GROUPED,
    SHOWN,
    Folding,
    FoldState,
    Kind,
    Unit,
)
from delegation.tree.rollups import Branch, Siblings
from delegation.tree.tally import Tally, in_short

if TYPE_CHECKING:
    from delegation.tree.tree import Tree

__all__ = [
    "AS_IT_COMES",
    "GROUPED",
    "SHOWN",
    "FoldRow",
    "FoldState",
    "Folded",
    "Kind",
    "fold",
]


@attrs.frozen(kw_only=True)
class FoldRow:
    """One row: a task, a group, or the rest of one."""

    key: str
    """What it is known by from frame to frame: the id of a task, or PARENT/AGENT of a group."""
    kind: Kind
    task: TaskId
    """Which task; of a group and of a rest, whose children they are."""
    agent: str
    depth: int
    branch: str
    """The lines that connect it to its parent."""
    members: int
    """How many tasks it stands for by itself: 1, or those of the group or rest."""
    is_open: bool | None
    """Whether what is below it is shown; None if there is nothing, or nothing to open."""
    tally: Tally
    """All that it stands for, with all below."""
    hidden: Tally
    """What no row shows, and this one is the place for."""
    numbers: tuple[int, ...]
    """How many of its members have each status, in the order of `STATUSES`."""

    @property
    def summary(self) -> str:
        """What is folded away here, in short: `✓44 · 19,955↓ ✗798`."""
        if not self.hidden.tasks and self.kind is Kind.TASK:
            return ""
        deeper = self.hidden.tasks
        own = ""
        if self.kind is not Kind.TASK:
            own = in_short(self.numbers)
            deeper = max(0, self.hidden.tasks - self.members)
        below = f"{deeper:,}↓ {self._alarms()}".strip() if deeper else ""
        return " · ".join(filter(None, (own, below)))

    @property
    def title(self) -> str:
        """What stands in the place of a name, where it is no single task."""
        if self.kind is Kind.GROUP:
            return f"{self.agent} ×{self.members:,}"
        return f"… {self.members:,} more" if self.kind is Kind.MORE else self.agent

    def _alarms(self) -> str:
        if self.kind is Kind.TASK:
            return self.hidden.alarms()
        below = [
            hidden - own
            for hidden, own in zip(self.hidden.numbers, self.numbers, strict=True)
        ]
        return in_short(below, only="!◐✗")


@attrs.frozen
class Folded:
    """A tree in few rows."""

    rows: tuple[FoldRow, ...]
    tasks: int
    """How many tasks the tree has."""

    @property
    def hidden(self) -> int:
        """How many of them no row shows."""
        return self.tasks - sum(row.kind is Kind.TASK for row in self.rows)

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
    state: FoldState = AS_IT_COMES,
    root: TaskId | None = None,
) -> Folded:
    """Return a tree, or a subtree, in so many rows.

    Args:
        tree: what to show.
        rows: how many rows there are; what is opened by hand may need more.
        state: what was opened and closed by hand.
        root: the top of what is shown; by default all is.
    """
    branch = tree.branch(tree.root if root is None else root)
    tasks = branch.tally.tasks
    grouped = GROUPED if tasks > rows else math.inf
    unit = Folding(state, grouped, rows - 1).fold(branch)
    return Folded(tuple(_rows(unit)), tasks)


def _rows(top: Unit) -> Iterator[FoldRow]:
    pending = [(top, "", "")]
    while pending:
        unit, branch, indent = pending.pop()
        yield _row(unit, branch)
        for below in reversed(unit.below or []):
            is_last = unit.below is not None and below is unit.below[-1]
            pending.append(
                (
                    below,
                    indent + ("└─ " if is_last else "├─ "),
                    indent + ("   " if is_last else "│  "),
                )
            )


def _row(unit: Unit, branch: str) -> FoldRow:
    of = unit.of
    is_open = unit.below is not None
    numbers = unit.numbers
    if isinstance(of, Branch) and unit.kind is Kind.TASK:
        assert of.status is not None, "it was looked at"
        numbers = [0] * len(of.tally.numbers)
        numbers[of.status] = 1
    assert numbers is not None, "a group has members"
    return FoldRow(
        key=unit.key,
        kind=unit.kind,
        task=of.task if isinstance(of, Branch) else of.parent.task,
        agent=_agent(of),
        depth=unit.depth,
        branch=branch,
        members=sum(numbers),
        is_open=is_open if unit.hidden.tasks and unit.kind is not Kind.MORE else None,
        tally=unit.hidden if unit.kind is Kind.MORE else of.tally.copy(),
        hidden=Tally() if is_open else unit.hidden,
        numbers=tuple(numbers),
    )


def _agent(of: Branch | Siblings) -> str:
    if isinstance(of, Siblings):
        return of.agent
    return "" if of.siblings is None else of.siblings.agent
