"""The one folding policy: any tree in as many rows as there are, and nothing hidden in silence.

A tree that fits is shown whole. Otherwise rows are spent on what waits for somebody, then on what
runs, then on what failed, then on what is large; more than `GROUPED` siblings of one agent are one
row, which opens as those that matter and "… n more"; rows that are left show more of them, as long
as they wait, run or have failed. Every row says how many tasks it hides and how
they stand: the rows and what they hide add up to the tree.

Only what is shown is looked at, so a frame costs the same whatever the size of the tree.
"""

import enum
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from delegation.rollups import QUIET, Branch, Siblings, urgency
from delegation.tally import Tally, in_short
from delegation.task import TaskId

if TYPE_CHECKING:
    from delegation.tree import Tree

GROUPED: Final = 8
"""How many siblings of one agent are shown one by one."""
SHOWN: Final = 4
"""How many of a group are shown when it is opened: those that matter most."""
NONE_SHOWN: Final[Mapping[str, int]] = {}


class Kind(enum.StrEnum):
    TASK = "task"
    GROUP = "group"
    """Siblings of one agent."""
    MORE = "more"
    """Those of a group or of a task's children that are not shown."""


@attrs.frozen
class FoldState:
    """What somebody has opened and closed by hand, by the keys of rows.

    It holds whatever the budget says: what is opened by hand comes on top of it.
    """

    opened: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    shown: Mapping[str, int] = NONE_SHOWN
    """How many of a group are shown, where somebody wants more than the usual."""

    def open(self, key: str) -> "FoldState":
        return attrs.evolve(
            self, opened=self.opened | {key}, closed=self.closed - {key}
        )

    def close(self, key: str) -> "FoldState":
        return attrs.evolve(
            self, opened=self.opened - {key}, closed=self.closed | {key}
        )

    def show(self, group: str, members: int) -> "FoldState":
        """Show so many of a group."""
        return attrs.evolve(self.open(group), shown={**self.shown, group: members})


AS_IT_COMES: Final = FoldState()


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


class _Unit:
    """What may become a row, and be opened."""

    __slots__ = ("below", "branch", "depth", "hidden", "key", "kind", "numbers", "of")

    def __init__(
        self, kind: Kind, key: str, depth: int, of: Branch | Siblings, hidden: Tally
    ) -> None:
        self.kind = kind
        self.key = key
        self.depth = depth
        self.of = of
        self.hidden = hidden
        """What it hides while it is closed."""
        self.numbers: list[int] | None = None
        self.below: list[_Unit] | None = None
        """What it shows, once it is open."""


class _Folding:
    """One frame in the making."""

    def __init__(self, state: FoldState, grouped: float, left: int) -> None:
        self.state = state
        self.grouped = grouped
        self.left = left
        self.due: list[tuple[int, int, int, int, _Unit]] = []
        self.order = itertools.count()
        self.groups: list[_Unit] = []
        """Those that were opened, and not by hand."""

    def task(self, branch: Branch, depth: int) -> _Unit:
        return _Unit(Kind.TASK, branch.task, depth, branch, branch.below)

    def fold(self, branch: Branch) -> _Unit:
        root = self.task(branch, 0)
        self.consider(root)
        while self.due:
            *_, unit = heapq.heappop(self.due)
            self.open(unit, is_root=unit is root)
        for unit in sorted(self.groups, key=_rank):
            self.widen(unit)
        return root

    def consider(self, unit: _Unit) -> None:
        """Open a unit if somebody wants that, or let it compete for rows."""
        if not unit.hidden.tasks or unit.kind is Kind.MORE:
            return
        if unit.key in self.state.closed:
            return
        if unit.key in self.state.opened:
            self.show(unit, self.units_in(unit))
            return
        worst = urgency(unit.hidden)
        depth = unit.depth if worst < QUIET else 0
        rank = (worst, depth, -unit.hidden.tasks, next(self.order), unit)
        heapq.heappush(self.due, rank)

    def open(self, unit: _Unit, *, is_root: bool) -> None:
        """Spend rows on a unit, as far as there are any."""
        if self.left < 1:
            return
        units = self.units_in(unit)
        if len(units) <= self.left:
            self.left -= len(units)
            self.show(unit, units)
            if unit.kind is Kind.GROUP:
                self.groups.append(unit)
        elif self.left > 1 and (is_root or urgency(unit.hidden) < QUIET):
            units = self.best_of(unit, units, self.left - 1)
            self.left = 0
            self.show(unit, units)

    def widen(self, unit: _Unit) -> None:
        """Spend rows that nobody else needs on more of a group, as long as they are urgent."""
        assert isinstance(unit.of, Siblings), "only groups are widened"
        assert unit.below is not None, "it was opened"
        urgent = sum(map(len, unit.of.urgent))
        known = {it.key: it for it in unit.below if it.kind is Kind.TASK}
        more = min(urgent - len(known), self.left)
        if more < 1 or unit.key in self.state.shown:
            return
        self.left -= more
        chosen = unit.of.matter(len(known) + more)
        kept = [known.get(it.task) or self.task(it, unit.depth + 1) for it in chosen]
        unit.below = self.with_rest(unit, kept)

    def show(self, unit: _Unit, units: "list[_Unit]") -> None:
        unit.below = units
        for below in units:
            self.consider(below)

    def units_in(self, unit: _Unit) -> "list[_Unit]":
        if isinstance(unit.of, Siblings):
            most = self.state.shown.get(unit.key, SHOWN)
            chosen = unit.of.matter(most)
            return self.with_rest(
                unit, [self.task(branch, unit.depth + 1) for branch in chosen]
            )
        depth = unit.depth + 1
        placed: list[tuple[int, _Unit]] = []
        for siblings in unit.of.groups.values():
            if len(siblings.members) > self.grouped:
                first = next(iter(siblings.members.values())).place
                placed.append((first, self.group(siblings, depth)))
            else:
                placed += (
                    (branch.place, self.task(branch, depth))
                    for branch in siblings.members.values()
                )
        placed.sort(key=_first)
        return [it for _, it in placed]

    def group(self, siblings: Siblings, depth: int) -> _Unit:
        unit = _Unit(Kind.GROUP, siblings.key, depth, siblings, siblings.tally)
        unit.numbers = siblings.numbers
        return unit

    def best_of(self, unit: _Unit, units: "list[_Unit]", most: int) -> "list[_Unit]":
        """Return the most urgent of a unit's units, and a row for the others."""
        if isinstance(unit.of, Siblings):
            chosen = unit.of.matter(most)
            kept = [self.task(branch, unit.depth + 1) for branch in chosen]
            return self.with_rest(unit, kept)
        places = sorted(range(len(units)), key=lambda at: _rank(units[at]))
        return self.with_rest(unit, [units[at] for at in sorted(places[:most])])

    def with_rest(self, unit: _Unit, kept: "list[_Unit]") -> "list[_Unit]":
        hidden = unit.hidden
        for it in kept:
            hidden -= it.of.tally
        if not hidden.tasks:
            return kept
        key = f"{unit.key}/…"
        rest = _Unit(Kind.MORE, key, unit.depth + 1, unit.of, hidden)
        rest.numbers = _members_but(unit, kept)
        return [*kept, rest]


def _members_but(unit: _Unit, kept: "list[_Unit]") -> list[int]:
    """Return how many of a unit's members stand how, without those that are shown."""
    if isinstance(unit.of, Siblings):
        numbers = unit.of.numbers.copy()
    else:
        groups = unit.of.groups.values()
        numbers = [
            sum(them) for them in zip(*(it.numbers for it in groups), strict=True)
        ]
    for it in kept:
        if isinstance(it.of, Siblings):
            theirs = it.of.numbers
            numbers = [one - two for one, two in zip(numbers, theirs, strict=True)]
        else:
            assert it.of.status is not None, "it was looked at"
            numbers[it.of.status] -= 1
    return numbers


def _first(placed: tuple[int, _Unit]) -> int:
    return placed[0]


def _rank(unit: _Unit) -> tuple[int, int]:
    return urgency(unit.of.tally), -unit.of.tally.tasks


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
    unit = _Folding(state, grouped, rows - 1).fold(branch)
    return Folded(tuple(_rows(unit)), tasks)


def _rows(top: _Unit) -> Iterator[FoldRow]:
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


def _row(unit: _Unit, branch: str) -> FoldRow:
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
