"""The sums of every subtree for the views of a tree.

`Rollups` begins with the first view, adds up everything once, and from then on only the changes,
O(depth) for each task.
"""

import heapq
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from orchestrator.agents import Usage
from orchestrator.delegation.task import Status, TaskId
from orchestrator.delegation.tree.node import TaskNode
from orchestrator.delegation.tree.tally import ACTIVE, FAILURES, STATUS_INDEX, STATUSES, Tally

WAITING, RUNNING, FAILED, NOT_URGENT = range(4)
"""How urgent a subtree is: as its most urgent task."""

_WAITING: Final = STATUS_INDEX[Status.WAITING]
_RUNNING: Final = tuple(STATUS_INDEX[status] for status in ACTIVE)
_FAILED: Final = tuple(STATUS_INDEX[status] for status in FAILURES)


def urgency(tally: Tally) -> int:
    """Return how urgent some tasks are: `WAITING`, `RUNNING`, `FAILED` or `NOT_URGENT`."""
    counts = tally.status_counts
    if counts[_WAITING]:
        return WAITING
    if any(counts[at] for at in _RUNNING):
        return RUNNING
    if any(counts[at] for at in _FAILED):
        return FAILED
    return NOT_URGENT


_Used: TypeAlias = tuple[int, int, int, int, int]
_NO_CHANGE: Final = (0, 0, 0, 0, 0)


class Subtree:
    """A task and all below it."""

    __slots__ = (
        "calls",
        "ended",
        "estimated",
        "groups",
        "micro_usd",
        "parent",
        "place",
        "siblings",
        "started",
        "status",
        "tally",
        "task",
        "tokens",
        "unpriced",
        "urgency",
    )

    def __init__(self, task: TaskId, parent: "Subtree | None", place: int) -> None:
        self.task = task
        self.parent = parent
        self.place = place
        """Its index among the children of its parent."""
        self.siblings: Siblings | None = None
        """The children of its parent with the same agent, itself included."""
        # Its own, as they were added up last.
        self.status: int | None = None
        self.tokens = self.calls = self.micro_usd = self.unpriced = self.estimated = 0
        self.started: float | None = None
        self.ended: float | None = None
        self.tally = Tally()
        """Its own and that of all below it."""
        self.groups: Mapping[str, Siblings] = _NO_GROUPS
        """The children, by agent."""
        self.urgency = NOT_URGENT

    @property
    def below(self) -> Tally:
        """The tally of all below it, without itself."""
        below = self.tally - Tally(
            1, self.tokens, self.calls, self.micro_usd, self.unpriced, self.estimated
        )
        assert self.status is not None, "it was added up"
        below.status_counts[self.status] -= 1
        return below

    @property
    def width(self) -> int:
        """How many children it has."""
        return sum(len(group.members) for group in self.groups.values())


class Siblings:
    """The children of one task that have one agent."""

    __slots__ = ("agent", "branching", "members", "parent", "status_counts", "tally", "urgent")

    def __init__(self, agent: str, parent: Subtree) -> None:
        self.agent = agent
        self.parent = parent
        self.members: dict[TaskId, Subtree] = {}
        self.tally = Tally()
        """Their own and that of all below them."""
        self.status_counts = [0] * len(STATUSES)
        """How many of them have each status."""
        self.urgent: tuple[dict[TaskId, Subtree], ...] = ({}, {}, {})
        """The urgent ones, by urgency."""
        self.branching: dict[TaskId, Subtree] = {}
        """The ones that have children."""

    @property
    def key(self) -> str:
        """The name of the group in views. No id of a task contains a slash."""
        return f"{self.parent.task}/{self.agent}"

    def most_important(self, most: int) -> list[Subtree]:
        """Return the most important ones in their order: urgent, then costly, then the first.

        Among failures, tasks that failed themselves come first, then those with the largest share
        of failed tasks, then the costliest.
        """
        chosen: dict[TaskId, Subtree] = {}
        for rank, those in enumerate(self.urgent):
            if len(chosen) < most and those:
                left = most - len(chosen)
                key = _failure if rank == FAILED else _place
                _take(chosen, heapq.nsmallest(left, those.values(), key=key))
        if len(chosen) < most and self.branching:
            large = heapq.nlargest(most + len(chosen), self.branching.values(), key=_size)
            _take(chosen, (it for it in large if it.task not in chosen), most)
        if len(chosen) < most:
            rest = (it for it in self.members.values() if it.task not in chosen)
            _take(chosen, rest, most)
        return sorted(chosen.values(), key=_place)


_NO_GROUPS: Final[Mapping[str, Siblings]] = {}


def _take(chosen: dict[TaskId, Subtree], more: Iterable[Subtree], most: int | None = None) -> None:
    left = None if most is None else most - len(chosen)
    # A list first: the iterator filters by the chosen tasks.
    for branch in list(islice(more, left)):
        chosen[branch.task] = branch


def _place(branch: Subtree) -> int:
    return branch.place


def _failure(branch: Subtree) -> tuple[bool, float, int, int]:
    tally = branch.tally
    is_below = branch.status not in _FAILED
    return is_below, -tally.failed / tally.tasks, -tally.micro_usd, branch.place


def _size(branch: Subtree) -> tuple[int, int, int, int]:
    tally = branch.tally
    return tally.micro_usd, tally.tasks, tally.tokens, -branch.place


class Rollups:
    """The tallies of a tree, brought up to date when they are read."""

    def __init__(self, nodes: Mapping[TaskId, TaskNode]) -> None:
        self._nodes = nodes
        self.changed: dict[TaskId, None] = dict.fromkeys(nodes)
        """The tasks that have changed since then, parents before their new children."""
        self._branches: dict[TaskId, Subtree] = {}

    def __getitem__(self, task: TaskId) -> Subtree:
        """Return the current sums of a subtree."""
        if self.changed:
            self._refresh()
        return self._branches[task]

    def _refresh(self) -> None:
        branches, self.changed, changed = self._branches, {}, self.changed
        if not branches:
            self._add_up()
            return
        for task in changed:
            branch = branches.get(task)
            if branch is None:
                branch = branches[task] = self._add_subtree(task)
            _propagate(branch, self._nodes[task])

    def _add_up(self) -> None:
        """Add up the whole tree: parents come before their children."""
        for task, node in self._nodes.items():
            branch = self._branches[task] = self._add_subtree(task)
            _initialize(branch, node)
        for branch in reversed(self._branches.values()):
            branch.urgency = urgency(branch.tally)
            if branch.parent is not None and branch.siblings is not None:
                branch.parent.tally.absorb(branch.tally)
                branch.siblings.tally.absorb(branch.tally)
                if branch.urgency != NOT_URGENT:
                    branch.siblings.urgent[branch.urgency][branch.task] = branch

    def _add_subtree(self, task: TaskId) -> Subtree:
        node = self._nodes[task]
        if node.parent is None:
            return Subtree(task, None, 0)
        parent = self._branches[node.parent]
        branch = Subtree(task, parent, parent.width)
        if parent.groups is _NO_GROUPS:
            parent.groups = {}
            if parent.siblings is not None:
                parent.siblings.branching[parent.task] = parent
        assert isinstance(parent.groups, dict), "it has just been made"
        if node.agent not in parent.groups:
            parent.groups[node.agent] = Siblings(node.agent, parent)
        siblings = branch.siblings = parent.groups[node.agent]
        siblings.members[task] = branch
        return branch


def _propagate(branch: Subtree, node: TaskNode) -> None:
    """Add the changes of a task to all its ancestors."""
    before, status = branch.status, STATUS_INDEX[node.status]
    change = _used_since(branch, node.usage)
    times = (node.started, node.ended)
    is_timed = times != (branch.started, branch.ended)
    if before == status and change is None and not is_timed:
        return
    branch.status = status
    branch.started, branch.ended = times
    if branch.siblings is not None and before != status:
        branch.siblings.status_counts[status] += 1
        if before is not None:
            branch.siblings.status_counts[before] -= 1
    above: Subtree | None = branch
    while above is not None:
        _add(above.tally, before, status, change, times)
        if above.siblings is not None:
            _add(above.siblings.tally, before, status, change, times)
        if before != status:
            _update_urgency(above)
        above = above.parent


def _initialize(branch: Subtree, node: TaskNode) -> None:
    """Add up a task itself, and nothing above it."""
    status = branch.status = STATUS_INDEX[node.status]
    branch.started, branch.ended = times = (node.started, node.ended)
    _add(branch.tally, None, status, _used_since(branch, node.usage), times)
    if branch.siblings is not None:
        branch.siblings.status_counts[status] += 1


def _used_since(branch: Subtree, usage: Usage) -> _Used | None:
    """Return the usage that is not added up yet: tokens, calls, cost, unpriced, estimated calls."""
    tokens = usage.tokens
    change = (
        tokens - branch.tokens,
        usage.calls - branch.calls,
        usage.micro_usd - branch.micro_usd,
        usage.unpriced - branch.unpriced,
        usage.estimated - branch.estimated,
    )
    if change == _NO_CHANGE:
        return None
    branch.tokens, branch.calls, branch.micro_usd = tokens, usage.calls, usage.micro_usd
    branch.unpriced, branch.estimated = usage.unpriced, usage.estimated
    return change


def _add(
    tally: Tally,
    before: int | None,
    status: int,
    change: _Used | None,
    times: tuple[float | None, float | None],
) -> None:
    started, ended = times
    if before is None:
        tally.tasks += 1
        tally.status_counts[status] += 1
    elif before != status:
        tally.status_counts[before] -= 1
        tally.status_counts[status] += 1
    if change is not None:
        tokens, calls, micro_usd, unpriced, estimated = change
        tally.tokens += tokens
        tally.calls += calls
        tally.micro_usd += micro_usd
        tally.unpriced += unpriced
        tally.estimated += estimated
    if started is not None and (tally.began is None or started < tally.began):
        tally.began = started
    # The end of a root goes with each new turn, and comes back later.
    if ended is not None and (tally.ended is None or ended > tally.ended):
        tally.ended = ended


def _update_urgency(branch: Subtree) -> None:
    """Move a subtree among its siblings to its urgency."""
    now, before = urgency(branch.tally), branch.urgency
    if now == before or branch.siblings is None:
        branch.urgency = now
        return
    branch.urgency = now
    if before != NOT_URGENT:
        del branch.siblings.urgent[before][branch.task]
    if now != NOT_URGENT:
        branch.siblings.urgent[now][branch.task] = branch
