"""Fits slopes to the samples of a soak, and says which are beyond their bounds.

A slope is beyond its bound if it is greater by two standard errors: memory grows in steps, and few
sessions would otherwise break a bound by chance.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean, linear_regression
from typing import Final

import attrs

from tests.soak.probe import Measurement

WARM_UP: Final = 1 / 3
"""The share of the samples in which caches are filled."""
ERRORS: Final = 2
"""How many standard errors a slope must be beyond its bound: one fit in forty is, by chance."""
LONGEST_MEMORY: Final = 0.9
"""The most correlation of neighbours that is believed: a fit needs some independent samples."""


@attrs.frozen(kw_only=True)
class Sample:
    """One measurement of a process, and how much it had done by then."""

    sessions: int
    facts: int
    journal_bytes: int
    """With the log beside it."""
    measured: Measurement

    def __str__(self) -> str:
        it = self.measured
        return (
            f"{self.sessions:>9,} sessions {self.facts:>10,} facts"
            f" {it.rss / 1e6:>7.1f} MB {it.files:>4} files"
            f" {sum(it.objects.values()):>9,} objects"
            f" stalls {1000 * it.stall_p99:>5.1f} ms p99 {1000 * it.stall_max:>5.0f} ms max"
            f" {self.journal_bytes / 1e6:>8.1f} MB journal"
        )


@attrs.frozen(kw_only=True)
class Bounds:
    """The most that a long-lived process uses."""

    warm_up: int = 5_000
    """How many sessions fill the caches, such as the pages of the journal in memory."""
    rss_per_session: float = 400
    """Bytes: the ledger keeps the id of every session (100 bytes); freed memory has gaps."""
    objects_per_session: float = 0.02
    """Live objects of any one type."""
    journal_per_fact: float = 1_000
    """Bytes."""
    files: float = 8
    """File descriptors more than after the warm-up."""
    stall: float = 0.5
    """Seconds of CPU time: the longest of all."""
    stall_growth: float = 0.05
    """Seconds: how much longer the longest stalls of a sample may become."""


@attrs.frozen
class Slope:
    """The slope of a line through samples, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, x: Sequence[float], y: Sequence[float]) -> "Slope":
        """Fit a line; neighbours that are alike count as fewer samples."""
        slope, intercept = linear_regression(x, y)
        rests = [found - slope * at - intercept for at, found in zip(x, y, strict=True)]
        squares = sum(it * it for it in rests)
        if not squares:
            return cls(slope, 0)
        alike = sum(before * after for before, after in pairwise(rests)) / squares
        alike = min(max(alike, 0), LONGEST_MEMORY)
        mean = fmean(x)
        spread = sum((it - mean) ** 2 for it in x)
        independent = sqrt(squares / (len(x) - 2) / spread)
        return cls(slope, independent * sqrt((1 + alike) / (1 - alike)))

    @property
    def least(self) -> float:
        """The slope that the samples prove."""
        return self.value - ERRORS * self.error


def problems(samples: Sequence[Sample], bounds: Bounds) -> list[str]:
    """Return a sentence for each slope that is beyond its bound."""
    later = samples[int(WARM_UP * len(samples)) :]
    steady = [it for it in later if it.sessions >= bounds.warm_up]
    if len(steady) < 4:
        return [
            f"{samples[-1].sessions:,} sessions are too few: {bounds.warm_up:,} fill the caches"
        ]
    sessions = [it.sessions for it in steady]
    memory = Slope.of(sessions, [it.measured.rss for it in steady])
    journal = Slope.of([it.facts for it in steady], [it.journal_bytes for it in steady])
    found = [
        _exceeds("bytes of memory per session", memory.least, bounds.rss_per_session),
        _exceeds("bytes of error of that slope", memory.error, bounds.rss_per_session),
        _exceeds("bytes of the journal per fact", journal.least, bounds.journal_per_fact),
        _exceeds("more open files", _growth(steady, _files), bounds.files),
        _exceeds("seconds of stall", max(map(_stall, steady)), bounds.stall),
        _exceeds("seconds more stall", _growth(steady, _stall), bounds.stall_growth),
    ]
    for kind in sorted({kind for it in steady for kind in it.measured.objects}):
        counts = _without_largest_step([_count_of(it, kind) for it in steady])
        slope = Slope.of(sessions, counts).least
        found.append(_exceeds(f"objects {kind!r} per session", slope, bounds.objects_per_session))
    return [problem for problem in found if problem]


def _files(sample: Sample) -> float:
    return sample.measured.files


def _stall(sample: Sample) -> float:
    return sample.measured.stall_max


def _count_of(sample: Sample, kind: str) -> int:
    return sample.measured.objects.get(kind, 0)


def _without_largest_step(counts: Sequence[int]) -> list[int]:
    """Return the counts without what was added at once: a late import is no leak."""
    steps = [after - before for before, after in pairwise(counts)]
    steps[steps.index(max(steps))] = 0
    return [*accumulate(steps, initial=counts[0])]


def _growth(samples: Sequence[Sample], y: Callable[[Sample], float]) -> float:
    """Return how much more the second half has than the first, on average."""
    half = len(samples) // 2
    return fmean(map(y, samples[half:])) - fmean(map(y, samples[:half]))


def _exceeds(what: str, found: float, bound: float) -> str:
    return f"{found:,.3f} {what}; at most {bound:,.3f}" if found > bound else ""
