"""How the cost of a piece of work grows with its size.

A limit in seconds says how busy the machine is, and coverage alone makes the same work five times
as long. So the CPU time of a large piece is compared with that of a small one, in the same run.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

MEASUREMENTS: Final = 5
"""Other processes only ever add to a measurement: the least of some is the cost."""


def grows_at_most(times: float, work: Callable[[T], object], *, small: T, large: T) -> bool:
    """Return whether the large work costs at most so many times the CPU time of the small.

    For a large one of ten times the size, linear work takes 10 times as long and quadratic work
    100 times: 30 is far from both.
    """
    work(small)  # the first time, what is kept for later is made
    least = min(_seconds(work, small) for _ in range(MEASUREMENTS))
    return any(_seconds(work, large) <= times * least for _ in range(MEASUREMENTS))


def _seconds(work: Callable[[T], object], given: T) -> float:
    began = time.thread_time()
    work(given)
    return time.thread_time() - began
