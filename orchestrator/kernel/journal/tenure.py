"""The right of one process to write a journal, until another takes the journal over."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class Tenure(msgspec.Struct, frozen=True, gc=False):
    """The right of one process to write a journal, until another takes the journal over.

    Whatever a writer does beside the journal is conditional on it in the same statement.
    """

    journal: str
    epoch: int


class JournalLease(Protocol):
    """The time for which no other process may take a journal over, by the writer's own clock."""

    @property
    def is_current(self) -> bool:
        """Whether the last confirmed renewal is younger than the lease.

        If not, another process may write the journal, and the ledger here may be out of date.
        """
        ...

    async def confirm(self) -> None:
        """Ask the store whether this process still writes the journal.

        Raises:
            JournalInUseError: another process has taken it over.
            JournalAwayError: the store does not answer.
        """
        ...

    def on_silent(self, receive: Callable[[], None]) -> None:
        """Call a function now and then while the store leaves a statement unanswered."""
        ...
