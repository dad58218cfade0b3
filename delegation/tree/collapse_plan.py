"""The plan of a collapsed view: which rows are expanded, the most urgent first.

`orchestrator.delegation.tree.collapse` states the policy, and is the module to import.
"""

import enum
import heapq
import itertools
from collections.abc import Mapping
from typing import Final

import attrs

from orchestrator.delegation.tree.rollups import NOT_URGENT, Siblings, Subtree, urgency
from orchestrator.delegation.tree.tally import Tally

GROUP_THRESHOLD: Final = 8
"""The largest number of siblings of one agent that are no group."""
SHOWN_PER_GROUP: Final = 4
"""How many members of an expanded group are shown, the most important first."""
NONE_SHOWN: Final[Mapping[str, int]] = {}


class RowKind(enum.StrEnum):
    TASK = "task"
    GROUP = "group"
    """Siblings of one agent."""
    MORE = "more"
    """The members of a group, or children of a task, that are not shown."""


@attrs.frozen
class CollapseState:
    """The rows that a user has expanded and collapsed, by their keys.

    It comes first: expanded rows are shown also beyond the number of rows.
    """

    expanded: frozenset[str] = frozenset()
    collapsed: frozenset[str] = frozenset()
    shown: Mapping[str, int] = NONE_SHOWN
    """How many members of a group are shown, where a user wants more."""

    def expand(self, key: str) -> "CollapseState":
        return attrs.evolve(self, expanded=self.expanded | {key}, collapsed=self.collapsed - {key})

    def collapse(self, key: str) -> "CollapseState":
        return attrs.evolve(self, expanded=self.expanded - {key}, collapsed=self.collapsed | {key})

    def show(self, group: str, members: int) -> "CollapseState":
        """Show this many members of a group."""
        return attrs.evolve(self.expand(group), shown={**self.shown, group: members})


DEFAULT_STATE: Final = CollapseState()


class CollapseNode:
    """A row that may be expanded."""

    __slots__ = ("branch", "children", "depth", "hidden", "key", "kind", "of", "status_counts")

    def __init__(
        self, kind: RowKind, key: str, depth: int, of: Subtree | Siblings, hidden: Tally
    ) -> None:
        self.kind = kind
        self.key = key
        self.depth = depth
        self.of = of
        self.hidden = hidden
        """Its hidden tasks while it is collapsed."""
        self.status_counts: list[int] | None = None
        self.children: list[CollapseNode] | None = None
        """The rows below it, once it is expanded."""


class CollapsePlan:
    """Spends the rows of one frame."""

    def __init__(self, state: CollapseState, grouped: float, left: int) -> None:
        self.state = state
        self.grouped = grouped
        self.left = left
        self.due: list[tuple[int, int, int, int, CollapseNode]] = []
        self.order = itertools.count()
        self.groups: list[CollapseNode] = []
        """The groups that the plan has expanded, not the user."""

    def task(self, branch: Subtree, depth: int) -> CollapseNode:
        return CollapseNode(RowKind.TASK, branch.task, depth, branch, branch.below)

    def plan(self, branch: Subtree) -> CollapseNode:
        root = self.task(branch, 0)
        self.consider(root)
        while self.due:
            *_, node = heapq.heappop(self.due)
            self.expand(node, is_root=node is root)
        for node in sorted(self.groups, key=_rank):
            self.widen(node)
        return root

    def consider(self, node: CollapseNode) -> None:
        """Expand a node if the user has, or let it compete for rows."""
        if not node.hidden.tasks or node.kind is RowKind.MORE:
            return
        if node.key in self.state.collapsed:
            return
        if node.key in self.state.expanded:
            self.show(node, self.child_nodes(node))
            return
        worst = urgency(node.hidden)
        depth = node.depth if worst < NOT_URGENT else 0
        rank = (worst, depth, -node.hidden.tasks, next(self.order), node)
        heapq.heappush(self.due, rank)

    def expand(self, node: CollapseNode, *, is_root: bool) -> None:
        """Expand a node, as far as rows are left."""
        if self.left < 1:
            return
        nodes = self.child_nodes(node)
        if len(nodes) <= self.left:
            self.left -= len(nodes)
            self.show(node, nodes)
            if node.kind is RowKind.GROUP:
                self.groups.append(node)
        elif self.left > 1 and (is_root or urgency(node.hidden) < NOT_URGENT):
            nodes = self.best_of(node, nodes, self.left - 1)
            self.left = 0
            self.show(node, nodes)

    def widen(self, node: CollapseNode) -> None:
        """Spend rows that are left over on more urgent members of a group."""
        assert isinstance(node.of, Siblings), "only groups are widened"
        assert node.children is not None, "it was expanded"
        urgent = sum(map(len, node.of.urgent))
        known = {it.key: it for it in node.children if it.kind is RowKind.TASK}
        more = min(urgent - len(known), self.left)
        if more < 1 or node.key in self.state.shown:
            return
        self.left -= more
        chosen = node.of.most_important(len(known) + more)
        kept = [known.get(it.task) or self.task(it, node.depth + 1) for it in chosen]
        node.children = self.with_rest(node, kept)

    def show(self, node: CollapseNode, nodes: "list[CollapseNode]") -> None:
        node.children = nodes
        for below in nodes:
            self.consider(below)

    def child_nodes(self, node: CollapseNode) -> "list[CollapseNode]":
        if isinstance(node.of, Siblings):
            most = self.state.shown.get(node.key, SHOWN_PER_GROUP)
            chosen = node.of.most_important(most)
            return self.with_rest(node, [self.task(branch, node.depth + 1) for branch in chosen])
        depth = node.depth + 1
        placed: list[tuple[int, CollapseNode]] = []
        for siblings in node.of.groups.values():
            if len(siblings.members) > self.grouped:
                first = next(iter(siblings.members.values())).place
                placed.append((first, self.group(siblings, depth)))
            else:
                placed += (
                    (branch.place, self.task(branch, depth)) for branch in siblings.members.values()
                )
        placed.sort(key=_first)
        return [it for _, it in placed]

    def group(self, siblings: Siblings, depth: int) -> CollapseNode:
        node = CollapseNode(RowKind.GROUP, siblings.key, depth, siblings, siblings.tally)
        node.status_counts = siblings.status_counts
        return node

    def best_of(
        self, node: CollapseNode, nodes: "list[CollapseNode]", most: int
    ) -> "list[CollapseNode]":
        """Return the most urgent children of a node, and a row for the others."""
        if isinstance(node.of, Siblings):
            chosen = node.of.most_important(most)
            kept = [self.task(branch, node.depth + 1) for branch in chosen]
            return self.with_rest(node, kept)
        places = sorted(range(len(nodes)), key=lambda at: _rank(nodes[at]))
        return self.with_rest(node, [nodes[at] for at in sorted(places[:most])])

    def with_rest(self, node: CollapseNode, kept: "list[CollapseNode]") -> "list[CollapseNode]":
        hidden = node.hidden
        for it in kept:
            hidden -= it.of.tally
        if not hidden.tasks:
            return kept
        key = f"{node.key}/…"
        rest = CollapseNode(RowKind.MORE, key, node.depth + 1, node.of, hidden)
        rest.status_counts = _members_but(node, kept)
        return [*kept, rest]


def _members_but(node: CollapseNode, kept: "list[CollapseNode]") -> list[int]:
    """Count the members of a node by status, without those that are shown."""
    if isinstance(node.of, Siblings):
        numbers = node.of.status_counts.copy()
    else:
        groups = node.of.groups.values()
        numbers = [sum(them) for them in zip(*(it.status_counts for it in groups), strict=True)]
    for it in kept:
        if isinstance(it.of, Siblings):
            theirs = it.of.status_counts
            numbers = [one - two for one, two in zip(numbers, theirs, strict=True)]
        else:
            assert it.of.status is not None, "it was added up"
            numbers[it.of.status] -= 1
    return numbers


def _first(placed: tuple[int, CollapseNode]) -> int:
    return placed[0]


def _rank(node: CollapseNode) -> tuple[int, int]:
    return urgency(node.of.tally), -node.of.tally.tasks
