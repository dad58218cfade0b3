"""Paired statistics: intervals by the bootstrap, the exact test of McNemar, and sample sizes.

A pair is one case, measured with two versions. The same pairs give the same interval: the random
numbers have a fixed seed.
"""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import NormalDist, stdev
from typing import Final, TypeAlias

import msgspec

LEVEL: Final = 0.95
POWER: Final = 0.8
MIN_PAIRS: Final = 6
"""Fewer pairs decide nothing: if all of five agree, a sign test has p = 0.06."""
_RESAMPLES: Final = 10_000
_DRAWS: Final = 2_000_000
"""The most values that one bootstrap draws: a second of work."""
Pair: TypeAlias = tuple[float, float]


class Interval(msgspec.Struct, frozen=True):
    """An estimate and its interval."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def is_decided(self) -> bool:
        """Whether the interval leaves out zero, with enough pairs to say so."""
        return self.pairs >= MIN_PAIRS and (self.low > 0 or self.high < 0)


def mean_difference(pairs: Sequence[Pair]) -> float:
    """Return the mean of second minus first."""
    return sum(b - a for a, b in pairs) / len(pairs)


def relative_change(pairs: Sequence[Pair]) -> float:
    """Return how much larger the sum of the second values is: -0.4 is 40 % less."""
    first, second = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    return second / first - 1 if first else 0.0


def paired_interval(
    pairs: Sequence[Pair],
    statistic: Callable[[Sequence[Pair]], float] = mean_difference,
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Return a statistic of pairs with its percentile bootstrap interval."""
    value = statistic(pairs)
    count = len(pairs)
    random = Random(seed)  # noqa: S311 (statistics, not a secret)
    resamples = max(1_000, min(_RESAMPLES, _DRAWS // count))
    drawn = sorted(statistic(random.choices(pairs, k=count)) for _ in range(resamples))
    tail = (1 - level) / 2
    return Interval(value, quantile(drawn, tail), quantile(drawn, 1 - tail), count)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated between neighbours."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p value for cases that only one of two versions passed."""
    changed = only_first + only_second
    fewer = min(only_first, only_second)
    tail = sum(math.comb(changed, it) for it in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**changed))


def pairs_needed(
    differences: Sequence[float], effect: float, *, power: float = POWER, level: float = LEVEL
) -> int | None:
    """Return how many pairs detect an effect with this power; None if the spread is unknown."""
    if len(differences) < 2 or (spread := stdev(differences)) == 0:
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - (1 - level) / 2) + normal.inv_cdf(power)
    return math.ceil((z * spread / effect) ** 2)
