"""The lender, the borrower and the lent work: ids only, never goals, arguments or keys."""

from typing import Final, NewType

import attrs

from orchestrator.ports.journals import Tenure

__all__ = ["Dispatch", "DispatchId", "ExecutionId", "Tenure", "WorkerId", "attempt_number"]

DispatchId = NewType("DispatchId", str)
"""A piece of work that a writer lends; the same in every attempt."""
WorkerId = NewType("WorkerId", str)
"""A process that runs what writers lend it; another one after each start."""
ExecutionId = NewType("ExecutionId", str)
"""One execution of an attempt; the worker draws its id, and the writer accepts it once."""

ATTEMPTS_OF_AN_EPOCH: Final = 1000


@attrs.frozen
class Dispatch:
    """An attempt to have a piece of work done at a place."""

    id: DispatchId
    attempt: int
    """Grows with every attempt, also over the epochs of a journal."""
    journal: str
    """Whose writer is asked for the rest."""
    place: str


def attempt_number(epoch: int, tries: int) -> int:
    """Return the number of an attempt, after some tries of the writer with this epoch."""
    # A thousandth try in one epoch would look like the first of the next one.
    return epoch * ATTEMPTS_OF_AN_EPOCH + min(tries, ATTEMPTS_OF_AN_EPOCH - 1)
