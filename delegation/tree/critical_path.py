"""The critical path of a run: the chain of tasks that took as long as all of it.

**The critical path** of a subtree is found from its end backwards. It begins at the last end: the
end of the task itself, or of a detached task below it that outlived it. From there, at each moment:

- in a task, back to the end of the child that it had waited for last, and on in that one; if there
  is none, back to its start: the task *works*, or waits for its *provider*. A session waits for
  detached tasks with its tool `task`, and a task does not wait for a child that it stops itself;
- from its start, back to when it could have started: it was *queued*. That moment is the last end
  of its dependencies, and the path goes on there; else its request, and the path goes on in its
  parent;
- from the beginning of a turn of a session, back to the detached task whose notice it read: the
  last that ended since the turn before. If there is none, it was *idle* until a message came.

So it has no gaps: its parts reach from the start of the task to the last end, and its length is the
makespan. Only its parts at work are worth making faster.

A task that has not ended will end after all that have, so in a live tree the path leads to the task
that all wait for, whether or not the caller says what time it is.
"""

import bisect
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from orchestrator.delegation.task import Mode, TaskId
from orchestrator.delegation.tree.intervals import (
    awaited_children,
    awaited_tasks,
    end_of,
    last_moment,
)

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


class SegmentKind(enum.StrEnum):
    WORKS = "works"
    PROVIDER = "provider"
    """Its model call waits until the provider takes it."""
    QUEUED = "queued"
    """It waits for a slot."""
    IDLE = "idle"
    """A session without mail."""


@attrs.frozen
class Segment:
    """A part of the critical path: what one task did, from when to when."""

    task: TaskId
    part: SegmentKind
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@attrs.frozen
class CriticalPath:
    """The segments of the path, oldest first."""

    segments: tuple[Segment, ...]

    @property
    def seconds(self) -> float:
        """How long it is: the makespan."""
        return self.segments[-1].end - self.segments[0].begin if self.segments else 0.0

    @property
    def work(self) -> float:
        """The seconds of work of a task."""
        return self.seconds_of(SegmentKind.WORKS)

    def seconds_of(self, part: SegmentKind) -> float:
        """Return the seconds of all segments of one kind."""
        return sum(it.seconds for it in self.segments if it.part is part)

    @property
    def tasks(self) -> list[TaskId]:
        """The tasks on it, in the order of their first segments."""
        return [*dict.fromkeys(it.task for it in self.segments)]


def critical_path(
    tree: "Tree", task: TaskId | None = None, *, now: float | None = None
) -> CriticalPath:
    """Return the critical path of a subtree, as this module defines it.

    Args:
        tree: the run.
        task: the top of the subtree; by default the root.
        now: until when tasks that have not ended are measured; by default the last known moment.
    """
    top = tree.root if task is None else task
    if tree[top].started is None:
        return CriticalPath(())
    until = last_moment(tree, tree.descendants(top, itself=True)) if now is None else now
    walk = _BackwardWalk(tree, top, awaited_tasks(tree, top), until)
    # A task that waited for nothing has empty segments.
    found = [it for whole in walk.segments() for it in _parts(tree, whole) if it.end > it.begin]
    return CriticalPath(tuple(reversed(found)))


def _parts(tree: "Tree", segment: Segment) -> Iterator[Segment]:
    """Yield the work of a task and its waits for a provider, the last one first."""
    waits = tree.provider_waits.get(segment.task)
    at = segment.end
    if waits and segment.part is SegmentKind.WORKS:
        for begin, end in reversed(waits):
            since, until = max(begin, segment.begin), min(end, at)
            if since < until:
                yield attrs.evolve(segment, begin=until, end=at)
                yield Segment(segment.task, SegmentKind.PROVIDER, since, until)
                at = since
    yield segment if at == segment.end else attrs.evolve(segment, end=at)


def _end_order(tree: "Tree", task: TaskId, now: float) -> tuple[float, bool]:
    """Return what to sort ends by: at the same moment, a task that goes on comes last."""
    return end_of(tree, task, now), tree[task].ended is None


def _last_to_end(tree: "Tree", top: TaskId, tasks: list[TaskId], now: float) -> TaskId:
    last, end = top, _end_order(tree, top, now)
    for task in tasks:
        if tree[task].mode == Mode.DETACHED:
            order = _end_order(tree, task, now)
            if order > end:
                last, end = task, order
    return last


class _BackwardWalk:
    """Walks from the last end back to the start."""

    def __init__(self, tree: "Tree", top: TaskId, tasks: list[TaskId], now: float) -> None:
        self.tree = tree
        self.top = top
        self.now = now
        self.last = _last_to_end(tree, top, tasks, now)
        self.turn = len(tree.turns) - 1
        self.detached_ends = sorted(
            (end_of(tree, task, now), place)
            for place, task in enumerate(tasks)
            if tree[task].mode == Mode.DETACHED and task != top
        )
        self.tasks = tasks
        self._joined: dict[TaskId, list[tuple[tuple[float, bool], int, TaskId]]] = {}

    def segments(self) -> Iterator[Segment]:
        task, at = self.last, self.end(self.last)
        before = len(self.tree)  # only children before this index count
        while True:
            begin = self.begin(task, at)
            child = self.last_joined(task, at, before)
            if child is not None and self.end(child) >= begin:
                yield Segment(task, SegmentKind.WORKS, self.end(child), at)
                task, at, before = child, self.end(child), len(self.tree)
                continue
            if self.tree[task].started is not None:
                yield Segment(task, SegmentKind.WORKS, begin, at)
                at = begin
            if task == self.tree.root and self.turn > 0:
                task, segment = self.turn_back(at)
                yield segment
                at, before = segment.begin, len(self.tree)
                continue
            if task == self.top:
                return
            need, ready = self.ready(task)
            yield Segment(task, SegmentKind.QUEUED, min(ready, at), at)
            at = min(ready, at)
            if need is None:
                before = self.tree.subtree(task).place
                parent = self.tree[task].parent
                assert parent is not None, "a root is never queued"
                task = parent
            else:
                task, before = need, len(self.tree)

    def end(self, task: TaskId) -> float:
        return end_of(self.tree, task, self.now)

    def begin(self, task: TaskId, at: float) -> float:
        """Return since when a task had run without a break, at a moment."""
        if task != self.tree.root:
            started = self.tree[task].started
            return at if started is None else started
        while self.turn > 0 and self.tree.turns[self.turn][0] > at:
            self.turn -= 1
        return self.tree.turns[self.turn][0]

    def last_joined(self, task: TaskId, at: float, before: int) -> TaskId | None:
        """Return the awaited child that ended last, of those requested before another one."""
        if task not in self._joined:
            tree = self.tree
            joined = [it for it in awaited_children(tree, task) if tree[it].mode == Mode.JOINED]
            if task == tree.root:
                joined += dict.fromkeys(it for _, it in tree.awaited)
            self._joined[task] = sorted(
                (_end_order(tree, child, self.now), tree.subtree(child).place, child)
                for child in joined
            )
        ends = self._joined[task]
        # The walk only goes back: an entry that is too late now stays too late.
        while ends:
            (ended, _), place, child = ends[-1]
            if ended <= at and place < before:
                return child
            ends.pop()
        return None

    def ready(self, task: TaskId) -> tuple[TaskId | None, float]:
        """Return its last dependency, if any, and when it could have started."""
        ready = self.tree[task].requested
        last: TaskId | None = None
        for need in self.tree.needs(task):
            if self.end(need) >= ready:
                last, ready = need, self.end(need)
        return last, ready

    def turn_back(self, at: float) -> tuple[TaskId, Segment]:
        """Return the task that woke a session for a turn, and how long the turn took to begin."""
        _, before = self.tree.turns[self.turn - 1]
        earlier = at if before is None else min(before, at)
        self.turn -= 1
        place = bisect.bisect_right(self.detached_ends, (at, len(self.tasks))) - 1
        root = self.tree.root
        if place >= 0 and self.detached_ends[place][0] > earlier:
            ended, which = self.detached_ends[place]
            return self.tasks[which], Segment(root, SegmentKind.IDLE, ended, at)
        return root, Segment(root, SegmentKind.IDLE, earlier, at)
