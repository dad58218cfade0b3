"""The slack of every task of a run: how much later it could have ended.

**The slack** of a task is how much later it could have ended without a later last end. All other
durations stay the same: a waiting parent goes on at once, and the time to begin stays the same,
whether a task waits for a slot or a session for its turn. A task on the critical path has no slack.
A task that its parent stopped is not in the result, and neither is anything below it.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from orchestrator.delegation.task import Mode, TaskId
from orchestrator.delegation.tree.intervals import (
    awaited_children,
    awaited_tasks,
    end_of,
    last_moment,
    wait_intervals,
)

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


def slack(
    tree: "Tree", task: TaskId | None = None, *, now: float | None = None
) -> Mapping[TaskId, float]:
    """Return how many seconds later each task of a subtree could have ended."""
    top = tree.root if task is None else task
    until = last_moment(tree, tree.descendants(top, itself=True)) if now is None else now
    return _Slack(tree, top, awaited_tasks(tree, top), until).found


class _Slack:
    """Walks a subtree from its end: what depends on a task comes before it."""

    def __init__(self, tree: "Tree", top: TaskId, tasks: list[TaskId], now: float) -> None:
        self.tree = tree
        self.top = top
        self.now = now
        self.end = max(end_of(tree, task, now) for task in tasks)
        self.found: dict[TaskId, float] = {top: self.end - end_of(tree, top, now)}
        self.starts: dict[TaskId, float] = {}
        """How much later each could have started."""
        self.needed_by: dict[TaskId, list[TaskId]] = {}
        self.delegated: dict[tuple[TaskId, int], _Delegated] = defaultdict(_Delegated)
        """By task, and by turn of a session."""
        self.turns_later: list[float] = []
        """How much later the turns of a session could have ended, the last one first."""
        for task in tasks:
            for need in tree.needs(task):
                self.needed_by.setdefault(need, []).append(task)
        self.awaited_since = {it: since for since, it in tree.awaited}
        self.begins = [begin for begin, _ in tree.turns]
        self.causes = self.causes_of_turns(tasks)
        pending = [self.backwards(top)]
        while pending:
            child = next(pending[-1], None)
            if child is None:
                pending.pop()
            else:
                pending.append(self.backwards(child))

    def causes_of_turns(self, tasks: list[TaskId]) -> list[float | None]:
        """Return the end of the detached task whose notice began each turn, if any did."""
        causes: list[float | None] = [None] * len(self.begins)
        ends = sorted(
            end_of(self.tree, task, self.now)
            for task in tasks
            if self.tree[task].mode == Mode.DETACHED
        )
        for turn, begin in enumerate(self.begins):
            last = bisect.bisect_right(ends, begin) - 1
            _, before = self.tree.turns[turn - 1] if turn else (0.0, begin)
            if last >= 0 and before is not None and ends[last] > before:
                causes[turn] = ends[last]
        return causes

    def backwards(self, parent: TaskId) -> Iterator[TaskId]:
        """Yield the children, the last one first, each once its own slack is known.

        The caller walks all below a child before it takes the next one.
        """
        tree = self.tree
        intervals = wait_intervals(tree, parent, self.now)
        for child in reversed(awaited_children(tree, parent)):
            own = self.of(parent, child, intervals)
            self.found[child] = own
            yield child
            # Had it started later, all that it delegated would have, too.
            start = self.starts[child] = min(own, self.delegated[child, 0].least)
            at = tree[child].requested
            self.delegated[parent, self.turn_at(parent, at)].add(at, start)

    def of(self, parent: TaskId, child: TaskId, intervals: list[tuple[float, float]]) -> float:
        tree = self.tree
        ended = end_of(tree, child, self.now)
        later = self.end - ended
        is_joined = tree[child].mode == Mode.JOINED
        asked = tree[child].requested if is_joined else self.awaited_since.get(child)
        if asked is not None:
            place = bisect.bisect_right(intervals, (asked, self.end + 1)) - 1
            goes_on = intervals[place][1]
            turn = self.turn_at(parent, asked)
            since = self.delegated[parent, turn].least_since(goes_on)
            later = min(later, goes_on - ended + min(self.end_later(parent, turn), since))
        elif self.top == tree.root:
            turn = bisect.bisect_left(self.begins, ended)
            if turn < len(self.begins):
                cause = self.causes[turn]
                begins = self.begins[turn] if cause is None else cause
                later = min(later, begins - ended + self.begin_later(turn))
        for dependent in self.needed_by.get(child, ()):
            ready = max(
                tree[dependent].requested,
                *(end_of(tree, need, self.now) for need in tree.needs(dependent)),
            )
            later = min(later, ready - ended + self.starts[dependent])
        return later

    def turn_at(self, task: TaskId, at: float) -> int:
        """Return which turn of a session it is at a moment; of any other task, 0."""
        if task != self.tree.root:
            return 0
        return bisect.bisect_right(self.begins, at) - 1

    def begin_later(self, turn: int) -> float:
        """Return how much later a turn could have begun, with all in it."""
        delegated = self.delegated[self.tree.root, turn]
        return min(self.end_later(self.tree.root, turn), delegated.least)

    def end_later(self, task: TaskId, turn: int) -> float:
        """Return how much later a task could have ended, or a turn of a session."""
        if task != self.tree.root:
            return self.found[task]
        last = len(self.begins) - 1
        # The turns after the last known one are known, too.
        for at in range(last - len(self.turns_later), turn - 1, -1):
            if at == last:
                self.turns_later.append(self.found[task])
                continue
            later = min(self.turns_later[-1], self.delegated[self.tree.root, at + 1].least)
            cause, (_, ended) = self.causes[at + 1], self.tree.turns[at]
            if cause is not None and ended is not None:
                # The next turn waited for a notice anyway.
                later += cause - ended
            self.turns_later.append(later)
        return self.turns_later[last - turn]


class _Delegated:
    """The tasks that a task, or a turn of a session, has delegated: the last is added first."""

    def __init__(self) -> None:
        self.requested: list[float] = []
        self.starts: list[float] = []

    def add(self, requested: float, start: float) -> None:
        """Note when a task was requested, and how much later it could have started."""
        self.requested.append(-requested)
        self.starts.append(min(start, self.least))

    @property
    def least(self) -> float:
        """How much later all of it could have started."""
        return self.starts[-1] if self.starts else math.inf

    def least_since(self, at: float) -> float:
        """Return how much later the tasks requested since a moment could have started."""
        since = bisect.bisect_right(self.requested, -at)
        return self.starts[since - 1] if since else math.inf
