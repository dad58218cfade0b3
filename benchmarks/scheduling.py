"""How much faster runs end if the calls that wait for a provider are not served first come first.

The real orchestrator, in virtual time: many runs at once, one provider that takes eight calls. Only
the policy of the limiter differs: all figures are ratios of one run to the same run under `fifo`.

python -m benchmarks.scheduling
"""

import random
import statistics
from collections.abc import Sequence
from typing import Final

import attrs
import trio
from trio.testing import MockClock

from orchestrator import (
    Agent,
    AssistantMessage,
    MemoryJournal,
    Orchestrator,
    Pipeline,
    Rules,
    Usage,
    agent,
    delegate,
    map_each,
    open_orchestrator,
)
from orchestrator.models import Limiter, ModelRequest, with_rate_limit

SEEDS: Final = (0, 1, 2, 3, 4)
IN_FLIGHT: Final = 8
RUNS: Final = 150
KINDS: Final = {"chat": 6, "react": 3, "research": 1}
"""One call; a chain of 4 to 12 calls; a plan, 8 to 40 calls at once and a report."""
RULES: Final = Rules(live_tasks=100_000)


class DrawnModel:
    """Answers after seconds that were drawn ahead."""

    name = "drawn"

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = iter(seconds)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        del request
        await trio.sleep(next(self._seconds))
        return AssistantMessage("ok", usage=Usage(calls=1))


@attrs.frozen
class Program:
    """A run: the seconds of the calls of each step, and when it begins."""

    kind: str
    steps: Sequence[Sequence[float]]
    at: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(map(sum, self.steps))

    def agent(self, limiter: Limiter) -> Pipeline[str, str]:
        """Return the pipeline that makes the calls, one step after the other."""
        stages = [
            (Agent(f"{self.kind}{number}", model=with_rate_limit(DrawnModel(step), limiter)), step)
            for number, step in enumerate(self.steps)
        ]

        @agent(name=self.kind)
        async def program(goal: str) -> str:
            """Run the steps."""
            for stage, step in stages:
                if len(step) == 1:
                    await delegate(stage, goal)
                else:
                    await delegate(map_each(stage), [goal] * len(step))
            return "done"

        return program


def drawn_programs(seed: int, runs: int, load: float) -> list[Program]:
    """Return runs of the three kinds that use the provider to this share."""
    rng = random.Random(seed)  # noqa: S311 (the same runs each time)

    def draw(mean: float) -> float:
        return rng.lognormvariate(0, 0.6) * mean

    programs = list[Program]()
    for kind in rng.choices([*KINDS], [*KINDS.values()], k=runs):
        if kind == "chat":
            steps = [[draw(2)]]
        elif kind == "react":
            steps = [[draw(2)] for _ in range(rng.randint(4, 12))]
        else:
            steps = [[draw(4)], [draw(4) for _ in range(rng.randint(8, 40))], [draw(8)]]
        programs.append(Program(kind, steps))
    span = sum(it.seconds for it in programs) / IN_FLIGHT / load
    starts = sorted(rng.uniform(0, span) for _ in programs)
    return [attrs.evolve(it, at=at) for it, at in zip(programs, starts, strict=True)]


async def run_programs(
    orchestrator: Orchestrator, programs: Sequence[Program], limiter: Limiter
) -> list[float]:
    """Run programs, each from its time on, and return how long each took."""
    seconds = [0.0] * len(programs)
    begun = trio.current_time()

    async def run_one(number: int, program: Program) -> None:
        await trio.sleep_until(begun + program.at)
        await orchestrator.run(program.agent(limiter), "go")
        seconds[number] = trio.current_time() - begun - program.at

    async with trio.open_nursery() as nursery:
        for number, program in enumerate(programs):
            nursery.start_soon(run_one, number, program)
    return seconds


async def measure(
    policy: str, programs: Sequence[Program], history: Sequence[Program]
) -> list[float]:
    """Return the seconds of each program under a policy, after a history of other runs."""
    limiter = Limiter(in_flight=IN_FLIGHT, policy=policy)
    async with open_orchestrator(MemoryJournal(), rules=RULES) as orchestrator:
        if history:
            await run_programs(orchestrator, history, limiter)
        return await run_programs(orchestrator, programs, limiter)


def measured(
    policy: str, programs: Sequence[Program], history: Sequence[Program] = ()
) -> list[float]:
    return trio.run(measure, policy, programs, history, clock=MockClock(autojump_threshold=0))


@attrs.frozen(kw_only=True)
class Gain:
    """How many times faster runs are than under `fifo`; for shares and the worst run: slower."""

    mean: float
    p95: float
    by_kind: dict[str, float]
    slower_by_half: float
    """The share of runs that take more than 1.5 times as long."""
    worst: float
    """The seconds of the run that is slowed down most, relative to `fifo`."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {gain:.2f}x" for kind, gain in self.by_kind.items())
        return (
            f"mean {self.mean:.2f}x, p95 {self.p95:.2f}x, {kinds};"
            f" {self.slower_by_half:.1%} slower than 1.5x, worst {self.worst:.2f}x"
        )


def gain(kinds: Sequence[str], fifo: Sequence[float], other: Sequence[float]) -> Gain:
    """Compare the seconds of the same runs."""
    ratios = [after / before for before, after in zip(fifo, other, strict=True)]

    def mean_of(seconds: Sequence[float], kind: str) -> float:
        return statistics.mean(it for it, its in zip(seconds, kinds, strict=True) if its == kind)

    return Gain(
        mean=statistics.mean(fifo) / statistics.mean(other),
        p95=_p95(fifo) / _p95(other),
        by_kind={it: mean_of(fifo, it) / mean_of(other, it) for it in KINDS},
        slower_by_half=sum(it > 1.5 for it in ratios) / len(ratios),
        worst=max(ratios),
    )


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[18]


def compare(
    policy: str,
    load: float,
    *,
    seeds: Sequence[int] = SEEDS,
    runs: int = RUNS,
    has_history: bool = True,
) -> Gain:
    """Compare a policy with `fifo` on the same runs."""
    kinds, fifo, other = list[str](), list[float](), list[float]()
    for seed in seeds:
        programs = drawn_programs(seed, runs, load)
        history = drawn_programs(1_000 + seed, runs, load) if has_history else []
        kinds += [it.kind for it in programs]
        fifo += measured("fifo", programs)
        other += measured(policy, programs, history)
    return gain(kinds, fifo, other)


def main() -> None:
    for load in (0.7, 0.9, 1.1):
        for policy in ("fair", "shortest"):
            print(f"load {load}, {policy}: {compare(policy, load)}")
    without = compare("shortest", 0.9, has_history=False)
    print(f"load 0.9, shortest without history: {without}")


if __name__ == "__main__":
    main()
