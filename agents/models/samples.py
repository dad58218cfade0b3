"""The latest samples of one amount, such as the seconds of calls of about the same size."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

SAMPLES: Final = 64
"""The most samples that are remembered."""


class Samples:
    """The latest samples of one amount."""

    __slots__ = ("_sum", "_values")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values: deque[float] = deque(values, maxlen=SAMPLES)
        self._sum = sum(self._values)

    def add(self, value: float) -> None:
        if len(self._values) == SAMPLES:
            self._sum -= self._values[0]
        self._values.append(value)
        self._sum += value

    @property
    def mean(self) -> float:
        return self._sum / len(self._values)

    def quantile(self, share: float) -> float:
        ordered = sorted(self._values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def latest(self, count: int) -> list[float]:
        """Return the latest samples, the oldest first."""
        return [*self._values][-count:]

    def __len__(self) -> int:
        return len(self._values)


def step_of(number: int) -> int:
    """Return the step of a number: small numbers differ, large ones by about a third."""
    return number if number < 4 else int(2 * math.log2(number))
