"""The port of a store of one journal: one writer opens it, and any number of readers.

A backend implements `JournalStore`, `Journal` and `JournalReader`, and gets a line in
`backends.py`. `tests/journal/contract` tests its duties.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec

from orchestrator.delegation import SessionId
from orchestrator.kernel.journal.journal import Journal, Pruned
from orchestrator.kernel.journal.reader import JournalReader

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditEvent


class Level(StrEnum):
    """How bad a finding is."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


class Finding(msgspec.Struct, frozen=True, gc=False):
    """The result of one check of a journal."""

    level: Level
    text: str


@attrs.frozen(kw_only=True)
class Writer:
    """The process that writes a journal."""

    process: int
    """Its id on its host; 0 for a moment while it begins."""
    host: str
    """The name of its machine."""
    address: str = ""
    """Where others reach it over HTTP; empty if they cannot."""
    network: str = attrs.field(default="", eq=False)
    """The network name of its machine, where a loopback address leads to it; empty if unknown."""
    epoch: int = 0
    """How often the journal was taken over; always 0 where the system ends the right to write."""
    seconds_left: float | None = attrs.field(default=None, eq=False)
    """How long no other process may take the journal over; None as long as this one lives."""


class JournalStore(Protocol):
    """Where one journal is stored."""

    @property
    def file(self) -> Path | None:
        """The file; its writer has a control socket beside it. None if it is in no file."""
        ...

    def exists(self) -> bool:
        """Return whether there is a journal; opening it for writing creates it."""
        ...

    def open_writer(self, *, address: str = "") -> AbstractAsyncContextManager[Journal]:
        """Open the journal for writing.

        Args:
            address: where this process is reached over HTTP, for readers on other machines.

        Raises:
            JournalInUseError: another process writes it.
            JournalError: it cannot be opened, or is no journal.
        """
        ...

    def writer(self) -> Writer | None:
        """Return the process that writes the journal now; None if there is none."""
        ...

    def open_reader(self, *, verify: bool = True) -> AbstractContextManager[JournalReader]:
        """Read the durable entries now, without creating or changing anything.

        Args:
            verify: refuse a journal with missing entries or unknown facts; a reader that has
                verified it once need not do so again.

        Raises:
            JournalError: the journal is missing, or cannot be read.
        """
        ...

    def check(self) -> Iterator[Finding]:
        """Check the journal from all sides, without changing it."""
        ...

    def preview_prune(self, *, before: float) -> Pruned:
        """Return what `prune` would delete."""
        ...

    async def prune(
        self,
        *,
        before: float,
        only: SessionId | None = None,
        audit: "tuple[float, AuditEvent] | None" = None,
    ) -> Pruned:
        """Delete the idle sessions whose last entry is older than a time, and free the space.

        Args:
            before: that time.
            only: delete this session instead, whatever its age, idle or damaged.
            audit: when, and by whom.

        Raises:
            JournalInUseError: a process writes the journal.
        """
        ...

    async def append_audit(self, at: float, event: "AuditEvent") -> None:
        """Record an action beside a journal that no process writes.

        Raises:
            JournalInUseError: a process writes the journal.
        """
        ...

    async def prune_audit(self, *, before: float, at: float, event: "AuditEvent") -> int:
        """Delete the rows of the audit that are older than a time, and return how many.

        A checkpoint takes their place: a row with the number and the hash of the last of them.

        Args:
            before: that time.
            at: the time of now.
            event: who does it.

        Raises:
            JournalInUseError: a process writes the journal.
            JournalError: the chain is broken, so nothing is deleted.
        """
        ...
