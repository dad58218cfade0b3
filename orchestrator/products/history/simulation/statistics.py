"""Statistics of many simulated runs, and their bottleneck.

The same agent, goal, settings and seeds give the same report, byte for byte.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import attrs
import msgspec

from orchestrator.products.history.simulation import charts
from orchestrator.products.history.simulation.charts import Timeline
from orchestrator.products.history.simulation.one_run import SimulatedRun
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.wait_chain import WORK, Wait

DIGITS: Final = 3
"""The decimals of rounded seconds."""
LIMITS: Final[Mapping[str, frozenset[Wait]]] = {
    "critical path": WORK,
    "failures": frozenset({Wait.FAILURES, Wait.PAUSE}),
    "provider rate": frozenset({Wait.PROVIDER}),
    "slots": frozenset({Wait.SLOTS}),
    "fan-out limit": frozenset({Wait.FAN_OUT}),
    "budget": frozenset({Wait.BUDGET}),
}
MENTIONED_SHARE: Final = 0.05
LIMIT_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "critical path": "models and tools that wait for each other",
    "failures": "attempts that fail, and the pauses after them",
    "provider rate": "waiting for the rate limit of a provider",
    "slots": "waiting for a slot to start a task",
    "fan-out limit": "waiting for the limit of a fan-out",
    "budget": "waiting for what other calls have reserved of a budget",
}


@attrs.frozen(kw_only=True)
class Quantiles:
    """A measure over all seeds. p50 and p95 are measured values, by nearest rank."""

    min: float
    p50: float
    p95: float
    max: float
    mean: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Quantiles":
        ordered = sorted(values)
        return cls(
            min=ordered[0],
            p50=ordered[math.ceil(0.50 * len(ordered)) - 1],
            p95=ordered[math.ceil(0.95 * len(ordered)) - 1],
            max=ordered[-1],
            mean=math.fsum(ordered) / len(ordered),
        )


@attrs.frozen(kw_only=True)
class SimulationReport:
    """The statistics of many simulated runs of one agent."""

    agent: str
    goal: str
    settings: SimulationSettings
    makespan: Quantiles
    """The seconds from the question to the answer."""
    cost: Quantiles | None
    """The dollars for models with a known price; None if no price is known."""
    tokens: Quantiles
    calls: Quantiles
    """The number of model calls, failed attempts included."""
    tasks: Quantiles
    """The number of tasks, the root included."""
    peak: Quantiles
    """The most calls at a provider at the same time."""
    mean: Quantiles
    """The average number of calls at a provider."""
    places: Quantiles
    """The most slots in use at the same time, which `Rules.live_tasks` limits."""
    shares: Mapping[str, float]
    """The share of all makespans that the longest chain of waits spent on each of `LIMITS`."""
    queued: Mapping[str, float]
    """The share of all tasks' seconds that was spent on each wait."""
    runs: Mapping[str, int]
    """The number of runs with each ending."""
    endings: Mapping[str, int]
    """The number of tasks with each ending, in all runs."""
    failures: Mapping[str, int]
    """The number of failed attempts of each kind, in all runs."""
    unpriced: tuple[str, ...]
    """The models without a known price."""
    seeds: tuple["SeedResult", ...]
    typical: Timeline
    """The timeline of the run whose makespan is the p50."""
    doubled: "DoubledLimits | None" = None
    """The effect of doubled limits of fan-outs, if these limits slow the run down."""

    @property
    def limited_by(self) -> str:
        """The entry of `LIMITS` with the largest share of the longest chain."""
        return max(self.shares, key=self.shares.__getitem__)

    @property
    def sentence(self) -> str:
        """A sentence for people about the bottleneck."""
        limit, second, *_ = sorted(self.shares, key=lambda it: -self.shares[it])
        words = f"{limit}: {self.shares[limit]:.0%} of the makespan is {LIMIT_DESCRIPTIONS[limit]}"
        if self.shares[second] >= MENTIONED_SHARE:
            words += f", {self.shares[second]:.0%} {LIMIT_DESCRIPTIONS[second]}"
        return words if self.doubled is None else f"{words}; {self.doubled.sentence}"

    @property
    def is_held_by_fan_out(self) -> bool:
        """Whether a large part of the time is spent at the limit of a fan-out."""
        return self.shares["fan-out limit"] >= MENTIONED_SHARE

    def to_text(self) -> str:
        """Return the report as lines of text, with charts."""
        return charts.text(self)

    def to_svg(self) -> str:
        """Return the charts as an SVG file."""
        return charts.svg(self)

    def to_json(self) -> str:
        """Return the report as JSON, the same for the same seeds."""
        report: dict[str, Any] = {
            "agent": self.agent,
            "goal": self.goal,
            "settings": _plain(self.settings),
            **{name: _plain(getattr(self, name)) for name in MEASURES},
            "limited_by": self.limited_by,
            "sentence": self.sentence,
            **{name: _plain(getattr(self, name)) for name in COUNTS},
            "doubled_limits": _plain(self.doubled),
            "unpriced": list(self.unpriced),
            "seeds": [_plain(seed) for seed in self.seeds],
        }
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


@attrs.frozen(kw_only=True)
class DoubledLimits:
    """The p50 makespan of some seeds, with the limits of fan-outs and with doubled limits."""

    seeds: int
    makespan: float
    doubled: float

    @property
    def sentence(self) -> str:
        return (
            f"with twice the limit it takes {self.doubled:,.1f} s instead of {self.makespan:,.1f} s"
        )


@attrs.frozen(kw_only=True)
class SeedResult:
    """The result of one seed, in numbers."""

    seed: int
    ending: str
    makespan: float
    cost: float
    """The dollars for models with a known price."""
    tokens: int
    calls: int
    tasks: int
    peak: int
    mean: float
    places: int


MEASURES: Final = ("makespan", "cost", "tokens", "calls", "tasks", "peak", "mean", "places")
COUNTS: Final = ("shares", "queued", "runs", "endings", "failures")


def result_of(run: SimulatedRun) -> SeedResult:
    """Return the numbers of a run, without its tree."""
    return SeedResult(
        seed=run.seed,
        ending=run.outcome.ending.value,
        makespan=round(run.makespan, DIGITS),
        cost=run.usage.micro_usd / 1_000_000,
        tokens=run.usage.tokens,
        calls=run.usage.calls,
        tasks=run.tasks,
        peak=run.peak,
        mean=round(run.mean, DIGITS),
        places=run.peak_places,
    )


class SeedStatistics:
    """Adds up runs one by one, without keeping their trees."""

    def __init__(self) -> None:
        self.results: list[SeedResult] = []
        self._chain: dict[Wait, list[float]] = {wait: [] for wait in Wait}
        self._waited: dict[Wait, list[float]] = {wait: [] for wait in Wait}
        self._endings: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._unpriced: set[str] = set()
        self._timelines: list[Timeline] = []

    def add(self, run: SimulatedRun) -> None:
        self.results.append(result_of(run))
        for wait in Wait:
            self._chain[wait].append(run.chain[wait])
            self._waited[wait].append(run.waited[wait])
        self._endings.update(run.endings)
        self._failures.update(run.failures)
        self._unpriced.update(run.unpriced)
        self._timelines.append(Timeline.of(run))

    def report(self, agent: str, goal: str, settings: SimulationSettings) -> SimulationReport:
        def over(measure: Callable[[SeedResult], float]) -> Quantiles:
            return Quantiles.of(map(measure, self.results))

        makespan = over(lambda it: it.makespan)
        p50 = [it.makespan for it in self.results].index(makespan.p50)
        is_unknown = self._unpriced and not any(it.cost for it in self.results)
        return SimulationReport(
            agent=agent,
            goal=goal,
            settings=settings,
            makespan=makespan,
            cost=None if is_unknown else over(lambda it: it.cost),
            tokens=over(lambda it: it.tokens),
            calls=over(lambda it: it.calls),
            tasks=over(lambda it: it.tasks),
            peak=over(lambda it: it.peak),
            mean=over(lambda it: it.mean),
            places=over(lambda it: it.places),
            shares=_shares(self._chain, LIMITS),
            queued=_shares(self._waited, {it.value: frozenset({it}) for it in Wait}),
            runs=_sorted(Counter(it.ending for it in self.results)),
            endings=_sorted(self._endings),
            failures=_sorted(self._failures),
            unpriced=tuple(sorted(self._unpriced)),
            seeds=tuple(self.results),
            typical=self._timelines[p50],
        )


def _shares(
    spent: Mapping[Wait, Sequence[float]], groups: Mapping[str, Iterable[Wait]]
) -> dict[str, float]:
    # Summed exactly, so that the last digit does not depend on the order.
    whole = math.fsum(second for seconds in spent.values() for second in seconds)
    return {
        name: round(math.fsum(it for wait in waits for it in spent[wait]) / (whole or 1), DIGITS)
        for name, waits in groups.items()
    }


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {str(name): counts[name] for name in sorted(counts)}


def _plain(value: Any) -> Any:
    """Return a value as plain JSON, with rounded numbers."""
    return _rounded(msgspec.to_builtins(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {name: _rounded(part) for name, part in parts.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in cast("list[Any]", value)]
    return value
