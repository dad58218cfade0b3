"""The port of a store of one journal: opened by one writer, read by any number.

A backend implements `JournalStore`, `Journal` and `JournalReader`, and gets a line in
`backends.py`. `tests/journal/contract` says what it must do.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from typing import Protocol

import attrs

from delegation import SessionId
from orchestrator.journal.journal import Journal, Pruned
from orchestrator.journal.reader import JournalReader


class Level(StrEnum):
    """How bad a finding is."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


@attrs.frozen
class Finding:
    """The result of one check of a journal."""

    level: Level
    text: str


class JournalStore(Protocol):
    """Where one journal is stored."""

    def exists(self) -> bool:
        """Return whether there is a journal; opening it for writing creates it."""
        ...

    def open_writer(self) -> AbstractAsyncContextManager[Journal]:
        """Open the journal for writing.

        Raises:
            JournalInUseError: another process writes it.
            JournalError: it cannot be opened, or is no journal.
        """
        ...

    def writer(self) -> int | None:
        """Return the id of the process that writes the journal now; None if there is none."""
        ...

    def open_reader(
        self, *, verify: bool = True
    ) -> AbstractContextManager[JournalReader]:
        """Read what is durable now, without creating or changing anything.

        Args:
            verify: refuse a journal with missing entries or unknown facts; a reader that has
                verified it once need not do so again.

        Raises:
            JournalError: there is none, or it cannot be read.
        """
        ...

    def check(self) -> Iterator[Finding]:
        """Check the journal from all sides, without changing it."""
        ...

    def preview_prune(self, *, before: float) -> Pruned:
        """Return what `prune` would delete."""
        ...

    async def prune(self, *, before: float, only: SessionId | None = None) -> Pruned:
        """Delete the idle sessions whose last entry is older than a time, and free the space.

        Args:
            before: that time.
            only: delete this session instead, whatever its age, idle or damaged.

        Raises:
            JournalInUseError: a process writes the journal.
        """
        ...
