"""The pauses between attempts: longer each time, and the trouble is told once until it is over."""

from collections.abc import Callable
from typing import Final

import trio

FIRST: Final = 1
LONGEST: Final = 60


class Pauses:
    """The pauses of one connection."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._next: float = FIRST
        self._is_told = False

    async def wait(self, trouble: str) -> None:
        """Tell the operator of trouble, unless it was told, and pause."""
        if not self._is_told:
            self._report(f"{trouble}; it is tried again")
        self._is_told = True
        pause, self._next = self._next, min(2 * self._next, LONGEST)
        await trio.sleep(pause)

    def reset(self) -> None:
        """Note that the trouble is over."""
        self._is_told, self._next = False, FIRST
