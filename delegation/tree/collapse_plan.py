"""How rows are spent: which parts of a tree are opened, the most urgent first.

The policy is told in `delegation.tree.collapse`, which is the door to this.
"""

import enum
import heapq
import itertools
from collections.abc import Mapping
from typing import Final

import attrs

from delegation.tree.rollups import QUIET, Branch, Siblings, urgency
from delegation.tree.tally import Tally

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


class Unit:
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
        self.below: list[Unit] | None = None
        """What it shows, once it is open."""


class Folding:
    """One frame in the making."""

    def __init__(self, state: FoldState, grouped: float, left: int) -> None:
        self.state = state
        self.grouped = grouped
        self.left = left
        self.due: list[tuple[int, int, int, int, Unit]] = []
        self.order = itertools.count()
        self.groups: list[Unit] = []
        """Those that were opened, and not by hand."""

    def task(self, branch: Branch, depth: int) -> Unit:
        return Unit(Kind.TASK, branch.task, depth, branch, branch.below)

    def fold(self, branch: Branch) -> Unit:
        root = self.task(branch, 0)
        self.consider(root)
        while self.due:
            *_, unit = heapq.heappop(self.due)
            self.open(unit, is_root=unit is root)
        for unit in sorted(self.groups, key=_rank):
            self.widen(unit)
        return root

    def consider(self, unit: Unit) -> None:
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

    def open(self, unit: Unit, *, is_root: bool) -> None:
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

    def widen(self, unit: Unit) -> None:
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

    def show(self, unit: Unit, units: "list[Unit]") -> None:
        unit.below = units
        for below in units:
            self.consider(below)

    def units_in(self, unit: Unit) -> "list[Unit]":
        if isinstance(unit.of, Siblings):
            most = self.state.shown.get(unit.key, SHOWN)
            chosen = unit.of.matter(most)
            return self.with_rest(
                unit, [self.task(branch, unit.depth + 1) for branch in chosen]
            )
        depth = unit.depth + 1
        placed: list[tuple[int, Unit]] = []
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

    def group(self, siblings: Siblings, depth: int) -> Unit:
        unit = Unit(Kind.GROUP, siblings.key, depth, siblings, siblings.tally)
        unit.numbers = siblings.numbers
        return unit

    def best_of(self, unit: Unit, units: "list[Unit]", most: int) -> "list[Unit]":
        """Return the most urgent of a unit's units, and a row for the others."""
        if isinstance(unit.of, Siblings):
            chosen = unit.of.matter(most)
            kept = [self.task(branch, unit.depth + 1) for branch in chosen]
            return self.with_rest(unit, kept)
        places = sorted(range(len(units)), key=lambda at: _rank(units[at]))
        return self.with_rest(unit, [units[at] for at in sorted(places[:most])])

    def with_rest(self, unit: Unit, kept: "list[Unit]") -> "list[Unit]":
        hidden = unit.hidden
        for it in kept:
            hidden -= it.of.tally
        if not hidden.tasks:
            return kept
        key = f"{unit.key}/…"
        rest = Unit(Kind.MORE, key, unit.depth + 1, unit.of, hidden)
        rest.numbers = _members_but(unit, kept)
        return [*kept, rest]


def _members_but(unit: Unit, kept: "list[Unit]") -> list[int]:
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


def _first(placed: tuple[int, Unit]) -> int:
    return placed[0]


def _rank(unit: Unit) -> tuple[int, int]:
    return urgency(unit.of.tally), -unit.of.tally.tasks
