"""How rows are spent: which parts of a tree are opened, the most urgent first.

The policy is told in `delegation.tree.collapse`, which is the door to this.
"""

import enum
import heapq
import itertools
from collections.abc import Mapping
from typing import Final

import attrs

from delegation.tree.rollups import NOT_URGENT, Siblings, Subtree, urgency
from delegation.tree.tally import Tally

GROUP_THRESHOLD: Final = 8
"""How many siblings of one agent are shown one by one."""
SHOWN_PER_GROUP: Final = 4
"""How many of a group are shown when it is opened: those that matter most."""
NONE_SHOWN: Final[Mapping[str, int]] = {}


class RowKind(enum.StrEnum):
    TASK = "task"
    GROUP = "group"
    """Siblings of one agent."""
    MORE = "more"
    """Those of a group or of a task's children that are not shown."""


@attrs.frozen
class CollapseState:
    """What somebody has opened and closed by hand, by the keys of rows.

    It holds whatever the budget says: what is opened by hand comes on top of it.
    """

    expanded: frozenset[str] = frozenset()
    collapsed: frozenset[str] = frozenset()
    shown: Mapping[str, int] = NONE_SHOWN
    """How many of a group are shown, where somebody wants more than the usual."""

    def expand(self, key: str) -> "CollapseState":
        return attrs.evolve(
            self, expanded=self.expanded | {key}, collapsed=self.collapsed - {key}
        )

    def collapse(self, key: str) -> "CollapseState":
        return attrs.evolve(
            self, expanded=self.expanded - {key}, collapsed=self.collapsed | {key}
        )

    def show(self, group: str, members: int) -> "CollapseState":
        """Show so many of a group."""
        return attrs.evolve(self.expand(group), shown={**self.shown, group: members})


DEFAULT_STATE: Final = CollapseState()


class CollapseNode:
    """What may become a row, and be opened."""

    __slots__ = (
        "branch",
        "children",
        "depth",
        "hidden",
        "key",
        "kind",
        "of",
        "status_counts",
    )

    def __init__(
        self, kind: RowKind, key: str, depth: int, of: Subtree | Siblings, hidden: Tally
    ) -> None:
        self.kind = kind
        self.key = key
        self.depth = depth
        self.of = of
        self.hidden = hidden
        """What it hides while it is closed."""
        self.status_counts: list[int] | None = None
        self.children: list[CollapseNode] | None = None
        """What it shows, once it is open."""


class CollapsePlan:
    """One frame in the making."""

    def __init__(self, state: CollapseState, grouped: float, left: int) -> None:
        self.state = state
        self.grouped = grouped
        self.left = left
        self.due: list[tuple[int, int, int, int, CollapseNode]] = []
        self.order = itertools.count()
        self.groups: list[CollapseNode] = []
        """Those that were opened, and not by hand."""

    def task(self, branch: Subtree, depth: int) -> CollapseNode:
        return CollapseNode(RowKind.TASK, branch.task, depth, branch, branch.below)

    def plan(self, branch: Subtree) -> CollapseNode:
        root = self.task(branch, 0)
        self.consider(root)
        while self.due:
            *_, unit = heapq.heappop(self.due)
            self.expand(unit, is_root=unit is root)
        for unit in sorted(self.groups, key=_rank):
            self.widen(unit)
        return root

    def consider(self, unit: CollapseNode) -> None:
        """Open a unit if somebody wants that, or let it compete for rows."""
        if not unit.hidden.tasks or unit.kind is RowKind.MORE:
            return
        if unit.key in self.state.collapsed:
            return
        if unit.key in self.state.expanded:
            self.show(unit, self.child_nodes(unit))
            return
        worst = urgency(unit.hidden)
        depth = unit.depth if worst < NOT_URGENT else 0
        rank = (worst, depth, -unit.hidden.tasks, next(self.order), unit)
        heapq.heappush(self.due, rank)

    def expand(self, unit: CollapseNode, *, is_root: bool) -> None:
        """Spend rows on a unit, as far as there are any."""
        if self.left < 1:
            return
        units = self.child_nodes(unit)
        if len(units) <= self.left:
            self.left -= len(units)
            self.show(unit, units)
            if unit.kind is RowKind.GROUP:
                self.groups.append(unit)
        elif self.left > 1 and (is_root or urgency(unit.hidden) < NOT_URGENT):
            units = self.best_of(unit, units, self.left - 1)
            self.left = 0
            self.show(unit, units)

    def widen(self, unit: CollapseNode) -> None:
        """Spend rows that nobody else needs on more of a group, as long as they are urgent."""
        assert isinstance(unit.of, Siblings), "only groups are widened"
        assert unit.children is not None, "it was opened"
        urgent = sum(map(len, unit.of.urgent))
        known = {it.key: it for it in unit.children if it.kind is RowKind.TASK}
        more = min(urgent - len(known), self.left)
        if more < 1 or unit.key in self.state.shown:
            return
        self.left -= more
        chosen = unit.of.most_important(len(known) + more)
        kept = [known.get(it.task) or self.task(it, unit.depth + 1) for it in chosen]
        unit.children = self.with_rest(unit, kept)

    def show(self, unit: CollapseNode, units: "list[CollapseNode]") -> None:
        unit.children = units
        for below in units:
            self.consider(below)

    def child_nodes(self, unit: CollapseNode) -> "list[CollapseNode]":
        if isinstance(unit.of, Siblings):
            most = self.state.shown.get(unit.key, SHOWN_PER_GROUP)
            chosen = unit.of.most_important(most)
            return self.with_rest(
                unit, [self.task(branch, unit.depth + 1) for branch in chosen]
            )
        depth = unit.depth + 1
        placed: list[tuple[int, CollapseNode]] = []
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

    def group(self, siblings: Siblings, depth: int) -> CollapseNode:
        unit = CollapseNode(
            RowKind.GROUP, siblings.key, depth, siblings, siblings.tally
        )
        unit.status_counts = siblings.status_counts
        return unit

    def best_of(
        self, unit: CollapseNode, units: "list[CollapseNode]", most: int
    ) -> "list[CollapseNode]":
        """Return the most urgent of a unit's units, and a row for the others."""
        if isinstance(unit.of, Siblings):
            chosen = unit.of.most_important(most)
            kept = [self.task(branch, unit.depth + 1) for branch in chosen]
            return self.with_rest(unit, kept)
        places = sorted(range(len(units)), key=lambda at: _rank(units[at]))
        return self.with_rest(unit, [units[at] for at in sorted(places[:most])])

    def with_rest(
        self, unit: CollapseNode, kept: "list[CollapseNode]"
    ) -> "list[CollapseNode]":
        hidden = unit.hidden
        for it in kept:
            hidden -= it.of.tally
        if not hidden.tasks:
            return kept
        key = f"{unit.key}/…"
        rest = CollapseNode(RowKind.MORE, key, unit.depth + 1, unit.of, hidden)
        rest.status_counts = _members_but(unit, kept)
        return [*kept, rest]


def _members_but(unit: CollapseNode, kept: "list[CollapseNode]") -> list[int]:
    """Return how many of a unit's members stand how, without those that are shown."""
    if isinstance(unit.of, Siblings):
        numbers = unit.of.status_counts.copy()
    else:
        groups = unit.of.groups.values()
        numbers = [
            sum(them) for them in zip(*(it.status_counts for it in groups), strict=True)
        ]
    for it in kept:
        if isinstance(it.of, Siblings):
            theirs = it.of.status_counts
            numbers = [one - two for one, two in zip(numbers, theirs, strict=True)]
        else:
            assert it.of.status is not None, "it was looked at"
            numbers[it.of.status] -= 1
    return numbers


def _first(placed: tuple[int, CollapseNode]) -> int:
    return placed[0]


def _rank(unit: CollapseNode) -> tuple[int, int]:
    return urgency(unit.of.tally), -unit.of.tally.tasks
