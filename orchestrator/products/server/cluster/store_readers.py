"""Reads stores of journals in threads, for clients who do not wait long for an answer."""

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from orchestrator.ports.errors import JournalAwayError

ResultT = TypeVar("ResultT")

AT_ONCE: Final = 10
"""The number of reads at the same time: those of a silent store go on for a while."""
ANSWER_SECONDS: Final = 5
"""The most seconds that a client waits for a store."""


class StoreReaders:
    """Threads of their own: reads of a silent store keep no thread from commits and tools."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(AT_ONCE)

    async def read(self, look: Callable[[], ResultT]) -> ResultT:
        """Return the result of a blocking function that opens and closes its own connection.

        Raises:
            JournalAwayError: the store has not answered in time.
        """
        with trio.move_on_after(ANSWER_SECONDS):
            return await trio.to_thread.run_sync(
                look, limiter=self._threads, abandon_on_cancel=True
            )
        raise JournalAwayError("here", f"it has not answered for {ANSWER_SECONDS} seconds")
