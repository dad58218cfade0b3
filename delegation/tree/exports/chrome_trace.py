"""Trees as Chrome traces, which Perfetto, speedscope and chrome://tracing show: every task.

A lane shows only nested intervals properly, so each task lies on the lane of its parent if it fits
inside it beside no other task, and otherwise on the first free lane. Arrows lead from a parent to a
child on another lane, and from a task to its dependents.
"""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from orchestrator.delegation.task import TaskId
from orchestrator.delegation.tree.intervals import end_of, last_moment
from orchestrator.delegation.tree.safe_text import json_text, one_line

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

MICRO: Final = 1_000_000
PROCESS: Final = 1


@attrs.frozen
class Slice:
    """When a task ran, in microseconds since the first, and on which lane."""

    task: TaskId
    begin: int
    end: int
    lane: int


def trace(tree: "Tree", *, now: float | None = None) -> str:
    """Return the JSON of a trace, whatever its size."""
    until = last_moment(tree, tree) if now is None else now
    slices = {it.task: it for it in pack_lanes(tree, now=until)}
    begun = tree[tree.root].requested
    events = [
        *_names(tree, slices),
        *(_complete(tree, it) for it in slices.values()),
        *_never_started(tree, slices, begun),
        *_arrows(tree, slices, begun),
    ]
    never = len(tree) - len(slices)
    about = {"run": tree.root, "tasks": len(tree), "never started": never}
    return json_text({"traceEvents": events, "otherData": about})


def pack_lanes(tree: "Tree", *, now: float) -> list[Slice]:
    """Return when each started task ran, on lanes where all that overlaps is nested."""
    begun = tree[tree.root].requested
    spans = [
        (_micro(node.started - begun), _micro(end_of(tree, task, now) - begun), task)
        for task in tree.descendants(itself=True)
        if (node := tree[task]).started is not None
    ]
    # By start, and then the longest first: parents come before the tasks inside them.
    spans.sort(key=lambda span: (span[0], -span[1]))
    packing = _Packing()
    return [
        Slice(task, begin, end, packing.place(task, tree[task].parent, begin, end))
        for begin, end, task in spans
    ]


class _Packing:
    """The lanes so far."""

    def __init__(self) -> None:
        self.stacks: list[list[tuple[int, TaskId]]] = []
        """The open slices of each lane, the innermost last: end and task."""
        self.free: list[int] = []
        self.busy: list[tuple[int, int]] = []
        """The busy lanes: until when, and which."""
        self.lanes: dict[TaskId, int] = {}

    def place(self, task: TaskId, parent: TaskId | None, begin: int, end: int) -> int:
        lane = self.beside(parent, begin, end)
        if lane is None:
            lane = self.first_free(begin)
            heapq.heappush(self.busy, (end, lane))
        self.stacks[lane].append((end, task))
        self.lanes[task] = lane
        return lane

    def beside(self, parent: TaskId | None, begin: int, end: int) -> int | None:
        """Return the lane of the parent, if the task fits inside."""
        if parent is None or parent not in self.lanes:
            return None
        lane = self.lanes[parent]
        stack = self.stacks[lane]
        while stack and stack[-1][0] <= begin:
            stack.pop()
        fits = bool(stack) and stack[-1][1] == parent and end <= stack[-1][0]
        return lane if fits else None

    def first_free(self, begin: int) -> int:
        while self.busy and self.busy[0][0] <= begin:
            _, lane = heapq.heappop(self.busy)
            self.stacks[lane].clear()
            heapq.heappush(self.free, lane)
        if self.free:
            return heapq.heappop(self.free)
        self.stacks.append([])
        return len(self.stacks) - 1


def _micro(seconds: float) -> int:
    return round(seconds * MICRO)


def _names(tree: "Tree", slices: dict[TaskId, Slice]) -> Iterator[dict[str, Any]]:
    yield _event("M", 0, name="process_name", args={"name": f"run {tree.root}"})
    for lane in range(max((it.lane for it in slices.values()), default=-1) + 1):
        yield _event("M", lane, name="thread_name", args={"name": f"lane {lane + 1}"})
        yield _event("M", lane, name="thread_sort_index", args={"sort_index": lane})


def _event(phase: str, lane: int, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": PROCESS, "tid": lane + 1, **more}


def _complete(tree: "Tree", it: Slice) -> dict[str, Any]:
    return _event(
        "X",
        it.lane,
        name=_name(tree, it.task),
        cat=tree[it.task].agent,
        ts=it.begin,
        dur=it.end - it.begin,
        args=_about(tree, it.task),
    )


def _name(tree: "Tree", task: TaskId) -> str:
    return tree[task].path.rpartition("/")[2]


def _about(tree: "Tree", task: TaskId) -> dict[str, Any]:
    node = tree[task]
    about = {
        "task": task,
        "path": node.path,
        "status": node.status,
        "mode": node.mode,
        "about": one_line(node.label or node.goal),
        "tokens": node.usage.tokens,
        "tokens with all below": node.total.tokens,
        "micro-dollars with all below": node.total.micro_usd,
        "calls without a price": node.total.unpriced,
        "estimated calls": node.total.estimated,
    }
    return about | ({"error": one_line(node.error)} if node.error else {})


def _never_started(
    tree: "Tree", slices: dict[TaskId, Slice], begun: float
) -> Iterator[dict[str, Any]]:
    """Yield a mark at the request of each task that never ran."""
    for task in tree:
        if task in slices:
            continue
        node = tree[task]
        parent = None if node.parent is None else slices.get(node.parent)
        yield _event(
            "i",
            parent.lane if parent is not None else 0,
            name=f"{_name(tree, task)}: {node.status}",
            s="t",
            ts=_micro(node.requested - begun),
            args=_about(tree, task),
        )


def _arrows(tree: "Tree", slices: dict[TaskId, Slice], begun: float) -> Iterator[dict[str, Any]]:
    for number, (above, below, kind) in enumerate(tree.edges()):
        if above not in slices or below not in slices:
            continue
        one, two = slices[above], slices[below]
        if kind == "delegates" and one.lane == two.lane:
            continue  # a task inside needs no arrow
        asked = _micro(tree[below].requested - begun)
        at = asked if kind == "delegates" else one.end
        # An arrow begins within a slice, and not after its last moment.
        at = max(one.begin, min(at, one.end - 1))
        yield _event("s", one.lane, id=number, name=kind, cat=kind, ts=at)
        yield _event("f", two.lane, id=number, name=kind, cat=kind, ts=two.begin, bp="e")
