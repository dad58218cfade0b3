"""The intervals of work of tasks, and the number of concurrent ones.

A task *works* from its start to its end, except while it waits for joined tasks: from the request
of the first until the end of the last. It does not wait for a child that it stops itself, such as
the loser of a race. A session works during its turns only, and waits for the detached tasks that
its tool `task` waits for. So a waiting parent and its child count as one.

An unended task goes on until `now`, by default the last moment in the tree.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from orchestrator.delegation.task import Ending, Mode, Status, TaskId

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

Interval: TypeAlias = tuple[float, float]
STOPPED: Final[frozenset[Status | Ending]] = frozenset(
    {Ending.CANCELLED, Ending.TIMED_OUT, Ending.LOST}
)
"""The endings of a parent that had waited for the children that were cancelled with it."""


@attrs.frozen
class ConcurrencyStep:
    """How many tasks work from a moment on."""

    at: float
    at_work: int


@attrs.frozen(kw_only=True)
class Parallelism:
    """How many tasks worked at once."""

    peak: int
    """The most tasks that worked at once."""
    achieved: float
    """The average, from the first start to the last end."""
    work: float
    """The seconds of all tasks, one after the other."""
    makespan: float
    """The seconds from the first start to the last end."""


def last_moment(tree: "Tree", tasks: Iterable[TaskId]) -> float:
    """Return the last moment that is known of any of these tasks."""
    moments = (
        moment
        for node in map(tree.__getitem__, tasks)
        for moment in (node.requested, node.started, node.ended)
        if moment is not None
    )
    return max(moments, default=0.0)


def end_of(tree: "Tree", task: TaskId, now: float) -> float:
    """Return when a task ended, or the last turn of a session so far; else now."""
    ended = tree[task].ended
    return now if ended is None else ended


def is_stopped_by_parent(tree: "Tree", task: TaskId) -> bool:
    """Return whether the parent of a task stopped it and went on, as a race stops its losers."""
    node = tree[task]
    parent = node.parent
    return node.abandoned and parent is not None and tree[parent].status not in STOPPED


def awaited_children(tree: "Tree", task: TaskId) -> list[TaskId]:
    """Return the children of a task without those that it stopped itself."""
    return [it for it in tree.children(task) if not is_stopped_by_parent(tree, it)]


def awaited_tasks(tree: "Tree", top: TaskId) -> list[TaskId]:
    """Return a task and all below it, without the subtrees that a parent stopped itself."""
    found: list[TaskId] = []
    pending = [top]
    while pending:
        found.append(pending.pop())
        pending += reversed(awaited_children(tree, found[-1]))
    return found


def wait_intervals(tree: "Tree", task: TaskId, now: float) -> list[Interval]:
    """Return when a task waited for other ones, in order and without overlaps."""
    waits = [
        (tree[child].requested, end_of(tree, child, now))
        for child in awaited_children(tree, task)
        if tree[child].mode == Mode.JOINED
    ]
    if task == tree.root and tree.awaited:
        waits = sorted([*waits, *((since, end_of(tree, it, now)) for since, it in tree.awaited)])
    merged: list[Interval] = []
    for begin, end in waits:
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def run_intervals(tree: "Tree", task: TaskId, now: float) -> list[Interval]:
    """Return when a task ran: once, or in the turns of a session."""
    if task == tree.root:
        return [(began, now if ended is None else ended) for began, ended in tree.turns]
    started = tree[task].started
    return [] if started is None else [(started, end_of(tree, task, now))]


def work_intervals(tree: "Tree", task: TaskId, now: float) -> list[Interval]:
    """Return when a task worked itself."""
    return [*_without(run_intervals(tree, task, now), wait_intervals(tree, task, now))]


def _without(whole: list[Interval], gaps: list[Interval]) -> Iterator[Interval]:
    place = 0
    for begin, end in whole:
        while place < len(gaps) and gaps[place][1] <= begin:
            place += 1
        at = begin
        for gap_begin, gap_end in gaps[place:]:
            if gap_begin >= end:
                break
            if gap_begin > at:
                yield at, gap_begin
            at = max(at, gap_end)
        if at < end:
            yield at, end


def steps(
    tree: "Tree", task: TaskId | None = None, *, now: float | None = None
) -> list[ConcurrencyStep]:
    """Return how many tasks of a subtree worked at once, at each change.

    The first step is the first start; the last one is 0.
    """
    tasks = [*tree.descendants(task, itself=True)]
    until = last_moment(tree, tasks) if now is None else now
    changes: dict[float, int] = {}
    for one in tasks:
        for begin, end in work_intervals(tree, one, until):
            changes[begin] = changes.get(begin, 0) + 1
            changes[end] = changes.get(end, 0) - 1
    found: list[ConcurrencyStep] = []
    level = 0
    for moment in sorted(changes):
        if changes[moment]:
            level += changes[moment]
            found.append(ConcurrencyStep(moment, level))
    return found


def parallelism(
    tree: "Tree", task: TaskId | None = None, *, now: float | None = None
) -> Parallelism:
    """Return the peak and average number of tasks of a subtree that worked at once."""
    tasks = [*tree.descendants(task, itself=True)]
    until = last_moment(tree, tasks) if now is None else now
    spans = [it for one in tasks for it in run_intervals(tree, one, until)]
    if not spans:
        return Parallelism(peak=0, achieved=0.0, work=0.0, makespan=0.0)
    makespan = max(end for _, end in spans) - min(begin for begin, _ in spans)
    found = steps(tree, task, now=until)
    work = sum(step.at_work * (after.at - step.at) for step, after in itertools.pairwise(found))
    return Parallelism(
        peak=max((step.at_work for step in found), default=0),
        achieved=work / makespan if makespan else 0.0,
        work=work,
        makespan=makespan,
    )
