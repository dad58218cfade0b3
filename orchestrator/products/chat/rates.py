"""How often each person may talk: so many messages in any minute."""

from collections import deque
from collections.abc import Callable
from typing import Final

MINUTE: Final = 60.0
MOST_USERS: Final = 10_000
"""So many people are remembered; those that were silent for a minute are forgotten first."""


class Rates:
    """The messages of the last minute, by person."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    def take(self, user: str, most: int | None) -> float:
        """Count a message; return for how many seconds its sender must wait, 0 if it is taken.

        Args:
            user: the person.
            most: how many messages a minute they may send; None is any number.
        """
        if most is None:
            return 0.0
        now = self._clock()
        if len(self._times) > MOST_USERS:
            self._forget(now)
        times = self._times.setdefault(user, deque())
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) >= most:
            return MINUTE if not times else max(1.0, times[0] + MINUTE - now)
        times.append(now)
        return 0.0

    def _forget(self, now: float) -> None:
        self._times = {
            user: times for user, times in self._times.items() if times and times[-1] > now - MINUTE
        }
