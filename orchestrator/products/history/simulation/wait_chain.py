"""The waits of a run: of each task, and along the longest chain of waits.

The chain is followed backwards from the end of the run: from the latest end before a moment to its
beginning. So every second of a run belongs to exactly one `Wait`, and their sum is the whole run.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import attrs

from orchestrator.delegation import TaskId, TaskNode, Tree
from orchestrator.delegation.tree.intervals import awaited_children


class Wait(enum.StrEnum):
    """The kinds of waits of a task."""

    MODEL = "model"
    """A model that answers."""
    TOOL = "tool"
    """A tool that runs."""
    FAILURES = "failures"
    """An attempt that fails."""
    PAUSE = "pause"
    """The time between a failed attempt and the next one."""
    PROVIDER = "provider"
    """A limiter: the rate of a provider."""
    SLOTS = "slots"
    """A slot: `Rules.live_tasks`, `live_children`."""
    FAN_OUT = "fan_out"
    """The limit of a fan-out: `map_each(limit=)`."""
    BUDGET = "budget"
    """A part of a budget that other calls have reserved."""
    OTHER = "other"
    """A function's own waiting, and the moments between two steps."""


WORK: Final = frozenset({Wait.MODEL, Wait.TOOL, Wait.OTHER})
"""The waits that take the same time with any number of slots: the critical path."""


@attrs.frozen
class WaitInterval:
    """The time of one wait of one task."""

    begin: float
    end: float
    wait: Wait

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@attrs.define
class _TaskHistory:
    """The waits of a task that are still to be visited, backwards in time."""

    requested: float
    started: float
    waits: list[WaitInterval]
    children: list[tuple[float, TaskId]]
    """The end and the id of each child."""


def longest_chain(tree: Tree, waits: Mapping[TaskId, Sequence[WaitInterval]]) -> dict[Wait, float]:
    """Return the seconds of each wait along the chain that leads to the end of a run."""
    histories = {task: _history_of(tree, task, waits.get(task, ())) for task in tree}
    spent: dict[Wait, list[float]] = {wait: [] for wait in Wait}
    here, now = tree.root, end_of(tree[tree.root])
    while True:
        history = histories[here]
        _skip_later(history, now)
        ended = history.waits[-1].end if history.waits else -math.inf
        child_ended = history.children[-1][0] if history.children else -math.inf
        if history.waits and ended >= child_ended:
            interval = history.waits.pop()
            spent[Wait.OTHER].append(now - interval.end)
            spent[interval.wait].append(interval.seconds)
            now = interval.begin
        elif history.children:
            spent[Wait.OTHER].append(now - child_ended)
            now, here = history.children.pop()
        else:
            spent[Wait.OTHER].append(now - history.started)
            needed = [(end_of(tree[it]), it) for it in tree.needs(here)]
            due, cause = max([*needed, (history.requested, tree[here].parent)])
            spent[Wait.SLOTS].append(history.started - due)
            if cause is None:
                break
            now, here = due, cause
    # Rounded once, so that the order does not matter.
    return {wait: math.fsum(seconds) for wait, seconds in spent.items()}


def _history_of(tree: Tree, task: TaskId, waits: Sequence[WaitInterval]) -> _TaskHistory:
    node = tree[task]
    ends = [(tree[child].ended, child) for child in awaited_children(tree, task)]
    return _TaskHistory(
        node.requested,
        start_of(node),
        sorted(waits, key=attrgetter("end", "begin")),
        sorted((end, child) for end, child in ends if end is not None),
    )


def end_of(node: TaskNode) -> float:
    """Return when a task of a finished run ended."""
    assert node.ended is not None, "a simulated run is over"
    return node.ended


def start_of(node: TaskNode) -> float:
    """Return when a task started. A task that never started waited for a slot until its end."""
    return end_of(node) if node.started is None else node.started


def _skip_later(history: _TaskHistory, now: float) -> None:
    """Drop the waits and children that ended later: no task waited for them."""
    while history.waits and history.waits[-1].end > now:
        history.waits.pop()
    while history.children and history.children[-1][0] > now:
        history.children.pop()


@attrs.frozen
class OverlapCount:
    """A number of overlapping spans, from one moment on."""

    at: float
    count: int


def overlap_counts(spans: Iterable[tuple[float, float]]) -> list[OverlapCount]:
    """Return the number of overlapping spans, at each change."""
    changes: dict[float, int] = {}
    for begin, end in spans:
        changes[begin] = changes.get(begin, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    count = 0
    found: list[OverlapCount] = []
    for at in sorted(changes):
        count += changes[at]
        found.append(OverlapCount(at, count))
    return found


def column_means(counts: Sequence[OverlapCount], *, until: float, columns: int) -> list[float]:
    """Divide the time from zero into equal columns, and return the mean count of each."""
    areas: list[list[float]] = [[] for _ in range(columns)]
    width = until / columns if until else 1.0
    for level, following in zip(
        counts, [*counts[1:], OverlapCount(until, 0)] if counts else [], strict=True
    ):
        begin = level.at
        while level.count and begin < following.at:
            column = min(columns - 1, int(begin / width))
            edge = width * (column + 1)
            end = following.at if column == columns - 1 else min(following.at, edge)
            if end <= begin:
                # The edge is rounded to where we are.
                column, end = (
                    min(columns - 1, column + 1),
                    min(following.at, width * (column + 2)),
                )
            areas[column].append(level.count * (end - begin))
            begin = end
    return [math.fsum(area) / width for area in areas]
