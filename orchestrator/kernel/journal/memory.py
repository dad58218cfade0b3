"""A journal that lives as long as the process: for tests, trials and simulation."""

import os
import platform
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
from typing import TYPE_CHECKING

import trio

from orchestrator.delegation import Encoded, Ledger, Rules, SessionId, SessionRecord
from orchestrator.delegation.events import Entry, SessionOpened
from orchestrator.kernel.errors import JournalError, JournalInUseError
from orchestrator.kernel.journal.audit import AuditEvent, AuditHead, AuditLog, AuditRow
from orchestrator.kernel.journal.journal import JournalContents, Pruned, fold_entries
from orchestrator.kernel.journal.left_commands import OpenLeftCommands
from orchestrator.kernel.journal.reader import EntriesReader, JournalReader
from orchestrator.kernel.journal.session_summary import SessionSummary
from orchestrator.kernel.journal.store import Finding, Level, Writer
from orchestrator.kernel.journal.tenure import JournalLease, Tenure

if TYPE_CHECKING:
    from orchestrator.kernel.journal.accounts import AccountStore


class MemoryJournal:
    """Keeps entries in a list. An entry is durable when it is appended."""

    spans_hosts = False
    open_left_commands: OpenLeftCommands | None = None
    clock_offset = 0.0
    file = None
    tenure: Tenure | None = None
    lease: JournalLease | None = None
    database: str | None = None
    account_store: "AccountStore | None" = None

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)
        self.audit: list[AuditRow] = []

    @property
    def identity(self) -> "MemoryJournal":
        return self

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
        *,
        urgent: bool = False,
    ) -> None:
        self.entries.append(entry)

    async def wait_durable(self, seq: int) -> None:
        # There is nothing to wait for, and the caller is about to act, which is a checkpoint.
        await trio.lowlevel.checkpoint_if_cancelled()

    def append_audit(self, at: float, event: AuditEvent) -> None:
        head = self.audit[-1].head if self.audit else AuditHead()
        self.audit.append(head.next_row(at, event))

    async def wait_audited(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()

    def store_snapshot(self, ledger: Ledger, session: SessionRecord) -> None:
        """Do nothing: memory ends with the process."""

    def store_summary(self, summary: SessionSummary, seq: int) -> None:
        """Do nothing: no other process reads it."""

    async def read_summary(self, session: SessionId) -> SessionSummary | None:
        await trio.lowlevel.checkpoint()
        return None

    async def read(self, rules: Rules) -> JournalContents:
        await trio.lowlevel.checkpoint()
        if not self.entries:
            return JournalContents(entries=(), last_seq=0)
        last = self.entries[-1]
        return JournalContents(entries=tuple(self.entries), last_seq=last.seq, last_at=last.at)

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        entries = await self.read_session(session)
        return fold_entries(entries, type(self).__name__, rules)

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return EntriesReader(self.entries).entries(session, after=after)

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        return len(await self.read_session(session)) > count

    async def read_last_time(self, session: SessionId) -> float | None:
        await trio.lowlevel.checkpoint()
        times = (entry.at for entry in reversed(self.entries) if entry.session == session)
        return next(times, None)

    async def read_owners(self) -> Mapping[SessionId, str]:
        await trio.lowlevel.checkpoint()
        return {
            entry.session: entry.event.owner
            for entry in self.entries
            if isinstance(entry.event, SessionOpened) and entry.event.owner
        }

    async def read_naming(
        self, kind: str, id_: str, *, session: SessionId | None = None
    ) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return EntriesReader(self.entries).naming(id_, session=session, kind=kind)

    async def expired(self, *, before: float) -> Sequence[SessionId]:
        """Return an empty list: memory deletes nothing before the process ends."""
        await trio.lowlevel.checkpoint()
        del before
        return ()

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: tuple[float, AuditEvent] | None = None,
    ) -> Pruned:
        """Delete nothing: it ends with the process."""
        await trio.lowlevel.checkpoint()
        return Pruned(runs=0, entries=0, active=EntriesReader(self.entries).count())


class MemoryStore:
    """Stores one journal in memory. It is never pruned: it ends with the process."""

    file = None

    def __init__(self) -> None:
        self._journal: MemoryJournal | None = None
        self._writer: Writer | None = None

    def exists(self) -> bool:
        return self._journal is not None

    @asynccontextmanager
    async def open_writer(self, *, address: str = "") -> AsyncGenerator[MemoryJournal]:
        await trio.lowlevel.checkpoint()
        if self._writer is not None:
            raise JournalInUseError(
                "in memory", f"process {os.getpid()} is writing it; use another journal"
            )
        self._writer = Writer(
            process=os.getpid(), host=platform.node(), network=platform.node(), address=address
        )
        self._journal = self._journal or MemoryJournal()
        try:
            yield self._journal
        finally:
            self._writer = None

    def writer(self) -> Writer | None:
        return self._writer

    @contextmanager
    def open_reader(self, *, verify: bool = True) -> Generator[JournalReader]:
        entries = tuple(self._entries())
        rows = () if self._journal is None else tuple(self._journal.audit)
        head = rows[-1].head if rows else AuditHead()
        yield EntriesReader(entries, AuditLog(rows=rows, head=head))

    def check(self) -> Iterator[Finding]:
        yield Finding(Level.FINE, f"it has {len(self._entries()):,} entries in memory")

    def preview_prune(self, *, before: float) -> Pruned:
        return Pruned(runs=0, entries=0, active=EntriesReader(self._entries()).count())

    async def prune(
        self,
        *,
        before: float,
        only: SessionId | None = None,
        audit: tuple[float, AuditEvent] | None = None,
    ) -> Pruned:
        await trio.lowlevel.checkpoint()
        return self.preview_prune(before=before)

    async def append_audit(self, at: float, event: AuditEvent) -> None:
        async with self.open_writer() as journal:
            journal.append_audit(at, event)

    async def prune_audit(self, *, before: float, at: float, event: AuditEvent) -> int:
        """Delete nothing: it ends with the process."""
        await trio.lowlevel.checkpoint()
        return 0

    def _entries(self) -> Sequence[Entry]:
        if self._journal is None:
            raise JournalError("in memory", "nothing was ever written")
        return self._journal.entries
