"""How well an order could do that knows the seconds of every call ahead, in a plain model.

The same runs as in `benchmarks/scheduling.py`, without the orchestrator. `shortest` sends the run
with the least work left. `guarded` knows also when each run would end first come, first served: a
run that must be first to take at most some times as long is first, and only runs with less than a
tenth of its work pass it. No policy knows so much, so its figures are bounds for all of them.

python -m benchmarks.scheduling_oracle [SEED ...]
"""

import heapq
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from benchmarks.scheduling import IN_FLIGHT, RUNS, SEEDS, Gain, Program, drawn_programs, gain

SHORT_SHARE: Final = 0.1
STRETCHES: Final = (1.2, 1.4, 2.0)


@attrs.define(eq=False)
class KnownRun:
    """A run, with all that it will do."""

    program: Program
    left: float
    """The seconds of all calls that have not ended."""
    ends_by: float
    waiting: deque[float] = attrs.Factory(deque)
    """The seconds of its waiting calls."""
    arrived: int = 0
    """The number of its waiting calls, in the order of arrival."""
    step: int = -1
    open: int = 0
    ended: float = 0.0

    @property
    def must_be_first_at(self) -> float:
        """The latest time at which it must become the first one, to end in time."""
        after = sum(max(step) for step in self.program.steps[self.step + 1 :])
        return self.ends_by - max(self.waiting) - after - sum(self.waiting) / IN_FLIGHT


Choice = Callable[[float, Sequence[KnownRun]], KnownRun]


def fifo(now: float, runs: Sequence[KnownRun]) -> KnownRun:
    del now
    return min(runs, key=lambda it: it.arrived)


def shortest(now: float, runs: Sequence[KnownRun]) -> KnownRun:
    del now
    return min(runs, key=lambda it: it.left)


def guarded(now: float, runs: Sequence[KnownRun]) -> KnownRun:
    first = shortest(now, runs)
    urgent = min(runs, key=lambda it: it.must_be_first_at)
    if urgent.must_be_first_at > now or first.left <= SHORT_SHARE * urgent.left:
        return first
    return urgent


def play(programs: Sequence[Program], choose: Choice, ends_by: Sequence[float] = ()) -> list[float]:
    """Return the seconds of each program, in an order."""
    times = ends_by or [0.0] * len(programs)
    runs = [KnownRun(it, it.seconds, by) for it, by in zip(programs, times, strict=True)]
    # At a time a run begins (no call has ended), or a call of it ends after some seconds.
    events = [(run.program.at, number, 0.0) for number, run in enumerate(runs)]
    heapq.heapify(events)
    ready: dict[KnownRun, None] = {}
    free, arrivals = IN_FLIGHT, 0
    while events:
        now, number, seconds = heapq.heappop(events)
        run = runs[number]
        if seconds:
            free += 1
            run.open -= 1
            run.left -= seconds
        if not run.open:
            run.step += 1
            if run.step < len(run.program.steps):
                arrivals += 1
                run.arrived = arrivals
                run.waiting.extend(run.program.steps[run.step])
                run.open = len(run.waiting)
                ready[run] = None
            else:
                run.ended = now
        while free and ready:
            chosen = choose(now, [*ready])
            free -= 1
            taken = chosen.waiting.popleft()
            heapq.heappush(events, (now + taken, runs.index(chosen), taken))
            if not chosen.waiting:
                del ready[chosen]
    return [run.ended - run.program.at for run in runs]


def bounds(seeds: Sequence[int], load: float = 0.9) -> Mapping[str, Gain]:
    """Return the gains over `fifo` of orders that know everything."""
    kinds, before = list[str](), list[float]()
    after: dict[str, list[float]] = {}
    for seed in seeds:
        programs = drawn_programs(seed, RUNS, load)
        seconds = play(programs, fifo)
        kinds += [it.kind for it in programs]
        before += seconds
        after.setdefault("shortest", []).extend(play(programs, shortest))
        for stretch in STRETCHES:
            ends_by = [it.at + stretch * took for it, took in zip(programs, seconds, strict=True)]
            after.setdefault(f"guarded, {stretch}x", []).extend(play(programs, guarded, ends_by))
    return {name: gain(kinds, before, it) for name, it in after.items()}


def main() -> None:
    seeds = [*map(int, sys.argv[1:])] or SEEDS
    for name, it in bounds(seeds).items():
        print(f"{name}: {it}")


if __name__ == "__main__":
    main()
