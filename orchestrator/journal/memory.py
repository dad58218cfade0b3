"""A journal that lives as long as the process: for tests, trials and simulation."""

import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager

import trio

from delegation import Encoded, Ledger, Rules, SessionId
from delegation.events import Entry
from delegation.snapshot import SnapshotCapture
from orchestrator.errors import JournalError, JournalInUseError
from orchestrator.journal.journal import JournalContents, Pruned, fold_entries
from orchestrator.journal.reader import EntriesReader, JournalReader
from orchestrator.journal.store import Finding, Level


class MemoryJournal:
    """Keeps entries in a list. An entry is durable when it is appended."""

    takes_snapshots = False

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
    ) -> None:
        self.entries.append(entry)

    async def wait_durable(self, seq: int) -> None:
        # There is nothing to wait for, and the caller is about to act, which is a checkpoint.
        await trio.lowlevel.checkpoint_if_cancelled()

    def store_snapshot(self, capture: SnapshotCapture) -> None:
        """Do nothing: what is in memory ends with the process."""

    async def read(self, rules: Rules) -> JournalContents:
        await trio.lowlevel.checkpoint()
        last = self.entries[-1].seq if self.entries else 0
        return JournalContents(entries=tuple(self.entries), last_seq=last)

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        entries = await self.read_session(session)
        return fold_entries(entries, type(self).__name__, rules)

    async def read_session(
        self, session: SessionId, *, after: int = 0
    ) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return EntriesReader(self.entries).entries(session, after=after)

    async def read_naming(self, kind: str, id_: str) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return EntriesReader(self.entries).naming(id_, kind=kind)

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
    ) -> Pruned:
        """Delete nothing: it ends with the process."""
        await trio.lowlevel.checkpoint()
        return Pruned(runs=0, entries=0, active=EntriesReader(self.entries).count())


class MemoryStore:
    """Stores one journal in memory. It is never pruned: it ends with the process."""

    def __init__(self) -> None:
        self._journal: MemoryJournal | None = None
        self._has_writer = False

    def exists(self) -> bool:
        return self._journal is not None

    @asynccontextmanager
    async def open_writer(self) -> AsyncGenerator[MemoryJournal]:
        await trio.lowlevel.checkpoint()
        if self._has_writer:
            raise JournalInUseError(
                "in memory", f"process {os.getpid()} is writing it; use another journal"
            )
        self._has_writer = True
        self._journal = self._journal or MemoryJournal()
        try:
            yield self._journal
        finally:
            self._has_writer = False

    def writer(self) -> int | None:
        return os.getpid() if self._has_writer else None

    @contextmanager
    def open_reader(self, *, verify: bool = True) -> Generator[JournalReader]:
        yield EntriesReader(tuple(self._entries()))

    def check(self) -> Iterator[Finding]:
        yield Finding(Level.FINE, f"it has {len(self._entries()):,} entries in memory")

    def preview_prune(self, *, before: float) -> Pruned:
        return Pruned(runs=0, entries=0, active=EntriesReader(self._entries()).count())

    async def prune(self, *, before: float, only: SessionId | None = None) -> Pruned:
        await trio.lowlevel.checkpoint()
        return self.preview_prune(before=before)

    def _entries(self) -> Sequence[Entry]:
        if self._journal is None:
            raise JournalError("in memory", "nothing was ever written")
        return self._journal.entries
