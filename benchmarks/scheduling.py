"""How much faster runs end if the calls that wait for a provider are not served first come first.

The real orchestrator, in virtual time: many runs at once, one provider that takes eight calls. Only
the policy of the limiter differs: all figures are ratios of one run to the same run under `fifo`.

python -m benchmarks.scheduling [TRACE]
"""

import gzip
import itertools
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec
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
    detach,
    map_each,
    open_orchestrator,
)
from orchestrator.models import Limiter, ModelRequest, with_rate_limit

SEEDS: Final = (200, 201, 202, 203, 204)
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
    prompts: Sequence[int] = ()
    """The characters of the goal of each step; by default all goals are short."""

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
            for number, (stage, step) in enumerate(stages):
                if self.prompts:
                    goal = "x" * self.prompts[number]
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
        run = await orchestrator.run(program.agent(limiter), "go")
        assert run.outcome.succeeded, run.outcome
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


LEAVES: Final = 80
LEVELS: Final = 12


async def _run_tree(policy: str, seeds: Sequence[int]) -> float:
    """Return the seconds of the last of several runs of one uneven tree."""
    limiter = Limiter(in_flight=IN_FLIGHT, policy=policy)
    async with open_orchestrator(MemoryJournal(), rules=RULES) as orchestrator:
        begun = 0.0
        for seed in seeds:
            begun = trio.current_time()
            await orchestrator.run(_uneven_tree(seed, limiter), "go")
        return trio.current_time() - begun


def _uneven_tree(seed: int, limiter: Limiter) -> Pipeline[str, str]:
    """Return a root with many short children, and one child that makes a chain of calls."""
    rng = random.Random(seed)  # noqa: S311 (the same tree each time)
    seconds = [rng.lognormvariate(0, 0.3) * 4 for _ in range(LEAVES + LEVELS)]
    leaf = Agent("leaf", model=with_rate_limit(DrawnModel(seconds[:LEAVES]), limiter))
    step = Agent("step", model=with_rate_limit(DrawnModel(seconds[LEAVES:]), limiter))

    @agent
    async def chain(goal: str) -> str:
        """Make one call after the other."""
        for _ in range(LEVELS):
            await delegate(step, goal)
        return "done"

    @agent
    async def root(goal: str) -> str:
        """Have all children work at once."""
        leaves = [await detach(leaf, goal) for _ in range(LEAVES)]
        await delegate(chain, goal)
        for it in leaves:
            await it.wait()
        return "done"

    return root


def compare_tree(seed: int) -> float:
    """Return how many times faster an uneven tree is than under `fifo`, after one run before it."""
    before, after = (
        trio.run(_run_tree, policy, (1_000, seed), clock=MockClock(autojump_threshold=0))
        for policy in ("fifo", "shortest")
    )
    return before / after


PREFILL: Final = 1e-4
"""The seconds of one token of a prompt in a trace."""
DECODE: Final = 0.02
"""The seconds of one token of an answer in a trace."""
TRACE_CALLS: Final = 2_000


class TraceLine(msgspec.Struct):
    """A request in Mooncake's format: each hash names a prefix of the prompt, by blocks."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_trace(file: Path, first: int = 0, *, load: float = 0.9) -> list[Program]:
    """Return the conversations of a trace as runs, each a chain of calls.

    A request whose prompt begins with the prompt of an earlier one continues that conversation. The
    first block is the same in many conversations, and connects none. Times are stretched to a load.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    found = list[tuple[float, list[TraceLine]]]()
    ends = dict[int, list[TraceLine]]()
    with opened(file, "rt") as lines:
        for line in itertools.islice(lines, first, first + TRACE_CALLS):
            request = msgspec.json.decode(line, type=TraceLine)
            blocks = request.hash_ids[1:]
            requests = next((ends[it] for it in reversed(blocks) if it in ends), None)
            if requests is None:
                requests = []
                found.append((request.timestamp, requests))
            requests.append(request)
            ends.update(dict.fromkeys(blocks[-2:], requests))
    programs = [
        Program(
            "trace",
            [[PREFILL * it.input_length + DECODE * it.output_length] for it in requests],
            at,
            # Shorter than in reality: only ratios matter.
            [it.input_length // 16 for it in requests],
        )
        for at, requests in found
    ]
    work = sum(it.seconds for it in programs)
    begun = programs[0].at
    stretch = work / IN_FLIGHT / load / (programs[-1].at - begun)
    return [attrs.evolve(it, at=(it.at - begun) * stretch) for it in programs]


def compare_trace(file: Path) -> float:
    """Return how many times faster the mean conversation of a trace is than under `fifo`."""
    programs, history = read_trace(file), read_trace(file, TRACE_CALLS)
    before, after = measured("fifo", programs), measured("shortest", programs, history)
    return statistics.mean(before) / statistics.mean(after)


def main() -> None:
    if len(sys.argv) > 1:
        print(f"{sys.argv[1]}: {compare_trace(Path(sys.argv[1])):.2f}x")
        return
    for load in (0.7, 0.9, 1.1):
        for policy in ("fair", "shortest"):
            print(f"load {load}, {policy}: {compare(policy, load)}")
    without = compare("shortest", 0.9, has_history=False)
    print(f"load 0.9, shortest without history: {without}")
    trees = [compare_tree(seed) for seed in SEEDS]
    print(f"uneven tree: {statistics.mean(trees):.2f}x, the worst {min(trees):.2f}x")


if __name__ == "__main__":
    main()
