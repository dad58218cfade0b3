"""Recorded runs under another load: their model calls wait for places at a provider.

Each run repeats its recorded times in virtual time. A task begins when the task that it followed
has ended, so waits move everything that comes after them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice

import attrs
import msgspec
import trio

from orchestrator.delegation import SessionId, TaskId, events, root_of
from orchestrator.products.history.simulation.statistics import Quantiles
from orchestrator.products.history.simulation.wait_chain import overlap_counts

ROUNDS = 3
"""The runs that each place of a load makes, one after the other."""


class _Child(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    after: TaskId | None
    """The sibling that ended last before the request; None without one."""
    delay: float


class _Step(msgspec.Struct, frozen=True):
    seconds: float
    """The seconds of a call; of a pause, the seconds after the last child has ended."""
    is_call: bool
    children: tuple[_Child, ...] = ()
    awaited: tuple[TaskId, ...] = ()
    """The children that ended in the pause."""


@attrs.frozen
class RecordedCalls:
    """The calls and pauses of one recorded run."""

    root: TaskId
    steps: dict[TaskId, list[_Step]]
    spans: Sequence[tuple[float, float]]
    """The times of its calls, without their waits."""


@attrs.frozen(kw_only=True)
class Load:
    """The computed time of runs under a load."""

    at_once: int
    """The runs at the same time."""
    calls_at_once: int
    """The calls that the provider answers at the same time."""
    seconds: Quantiles
    runs_per_hour: float


def recorded_calls(entries: Sequence[events.Entry], run: SessionId) -> RecordedCalls:
    """Return the calls of a run that has ended, from its facts."""
    reader = _Reader(root_of(run))
    for entry in events.in_parts(entries):
        reader.add(entry)
    return RecordedCalls(reader.root, reader.steps, reader.spans)


def most_calls_at_once(runs: Iterable[RecordedCalls]) -> int:
    """Return the most calls that were under way at the same time, over all runs."""
    counts = overlap_counts(span for run in runs for span in run.spans)
    return max((it.count for it in counts), default=1)


def simulate_load(runs: Sequence[RecordedCalls], at_once: int, calls_at_once: int) -> Load:
    """Repeat recorded runs in turn, `at_once` at the same time, and return their times.

    The provider answers `calls_at_once` calls at the same time, first come, first served. Starts
    an event loop of its own.
    """
    # Imported late: only a simulation needs a clock that jumps.
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    times, whole = trio.run(_repeat, runs, at_once, calls_at_once, clock=clock)
    per_hour = len(times) * 3600 / whole if whole else math.inf
    return Load(
        at_once=at_once,
        calls_at_once=calls_at_once,
        seconds=Quantiles.of(times),
        runs_per_hour=per_hour,
    )


class _Reader:
    """Reads the facts of a run in their order."""

    def __init__(self, root: TaskId) -> None:
        self.root = root
        self.steps: dict[TaskId, list[_Step]] = {root: []}
        self.spans: list[tuple[float, float]] = []
        self._since: dict[TaskId, float] = {}
        """The end of the last step of each task."""
        self._requested: dict[TaskId, list[tuple[TaskId, float]]] = {}
        """The children since then, and the times of their requests."""
        self._running: dict[TaskId, list[TaskId]] = {}
        """The children of earlier steps that no later step has waited for yet."""
        self._ended: dict[TaskId, float] = {}

    def add(self, entry: events.Entry) -> None:
        at = entry.at
        match entry.event:
            case events.TurnStarted():
                self._since.setdefault(self.root, at)
            case events.TaskRequested(request):
                self.steps[request.id] = []
                self._since[request.id] = at
                self._requested.setdefault(request.parent, []).append((request.id, at))
            case events.ModelAnswered(task, waited=waited) if task in self._since:
                self._pause_of_program(task)
                begin = self._since[task]
                if isinstance(waited, tuple):
                    begin = min(at, max(begin, waited[1]))
                self.spans.append((begin, at))
                self._add(task, _Step(at - begin, is_call=True), at)
            case events.ToolAnswered(task) if task in self._since:
                self._pause(task, at)
            case events.TaskSettled(task) if task in self._since:
                self._pause(task, at)
                self._ended[task] = at
            case events.TurnEnded():
                self._pause(self.root, at)
            case _:
                pass

    def _add(self, task: TaskId, step: _Step, at: float) -> None:
        self.steps[task].append(step)
        self._since[task] = at

    def _pause_of_program(self, task: TaskId) -> None:
        """Let children that no tool answer names end before the next call of their parent."""
        if self._requested.get(task):
            ended = [self._ended.get(it, 0.0) for it, _ in self._requested[task]]
            self._pause(task, max(self._since[task], *ended))

    def _pause(self, task: TaskId, at: float) -> None:
        since = self._since.get(task)
        if since is None:
            return
        asked = self._requested.pop(task, [])
        children = tuple(self._child(it, begun, since, asked) for it, begun in asked)
        running = [*self._running.pop(task, ()), *(it for it, _ in asked)]
        awaited = {it: self._ended[it] for it in running if it in self._ended}
        if left := [it for it in running if it not in awaited]:
            self._running[task] = left
        last = max((since, *awaited.values()))
        self._add(task, _Step(max(0.0, at - last), False, children, tuple(awaited)), at)

    def _child(
        self, task: TaskId, begun: float, since: float, asked: Sequence[tuple[TaskId, float]]
    ) -> _Child:
        """Return a child, with the sibling whose end it may have waited for."""
        before = {
            it: end
            for it, _ in asked
            if (end := self._ended.get(it)) is not None and end <= begun and it != task
        }
        after = max(before, key=before.__getitem__, default=None)
        return _Child(task, after, max(0.0, begun - (since if after is None else before[after])))


async def _repeat(
    runs: Sequence[RecordedCalls], at_once: int, calls_at_once: int
) -> tuple[list[float], float]:
    """Return the times of all runs, and the time until the last one has ended."""
    provider = trio.CapacityLimiter(calls_at_once)
    times: list[float] = []

    async def work(mine: Iterator[RecordedCalls]) -> None:
        await trio.lowlevel.checkpoint()
        for run in mine:
            began = trio.current_time()
            await _run(run, provider)
            times.append(trio.current_time() - began)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(at_once):
            start = number * ROUNDS % len(runs)
            nursery.start_soon(work, islice(cycle(runs), start, start + ROUNDS))
    return times, trio.current_time() - began


async def _run(run: RecordedCalls, provider: trio.CapacityLimiter) -> None:
    ended = {task: trio.Event() for task in run.steps}

    async def run_task(task: TaskId) -> None:
        await trio.lowlevel.checkpoint()
        for step in run.steps[task]:
            if step.is_call:
                # A token of its own: a borrower is a call, and not a task of trio.
                call = object()
                await provider.acquire_on_behalf_of(call)
                try:
                    await trio.sleep(step.seconds)
                finally:
                    provider.release_on_behalf_of(call)
                continue
            for child in step.children:
                nursery.start_soon(run_child, child)
            for it in step.awaited:
                await ended[it].wait()
            await trio.sleep(step.seconds)
        ended[task].set()

    async def run_child(child: _Child) -> None:
        if child.after is not None:
            await ended[child.after].wait()
        await trio.sleep(child.delay)
        await run_task(child.task)

    async with trio.open_nursery() as nursery:
        await run_task(run.root)
