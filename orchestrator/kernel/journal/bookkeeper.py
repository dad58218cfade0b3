"""The single writer of the journal: posts facts, and waits until they are durable.

A posted fact is true for every decision that follows. A task acts on it only when it is durable.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import trio
from msgspec.structs import replace

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.delegation import Ledger, SessionId, TaskId
from orchestrator.delegation.events import Entry, Event, ModelAnswered, ModelFailed, TaskSettled
from orchestrator.kernel.errors import ClosedError, JournalError
from orchestrator.kernel.journal.admission import Admission
from orchestrator.kernel.journal.fact_redaction import EventT, FactRedactor
from orchestrator.kernel.journal.group_commit import MAX_DELAY_SECONDS
from orchestrator.kernel.journal.journal import Journal, Pruned
from orchestrator.kernel.journal.records import Records
from orchestrator.kernel.journal.session_cache import SessionCache
from orchestrator.kernel.journal.session_summary import SessionSummary
from orchestrator.kernel.journal.subscriptions import FactSubscribers
from orchestrator.kernel.journal.wakeups import Schedule, Wakeups

if TYPE_CHECKING:
    from orchestrator.kernel.journal.accounts import AccountStore
    from orchestrator.kernel.journal.audit import AuditEvent

PAID: Final = frozenset[type[Event]]({ModelAnswered, ModelFailed, TaskSettled})
"""The facts that may cost money: until they are durable, a crash makes them cost it again."""


class FactStamp(Protocol):
    """Completes and dates a fact before it is folded."""

    def stamp(self, event: EventT) -> tuple[EventT, float]:
        """Return the fact to post, and its time."""
        ...


class Bookkeeper:
    """Numbers and dates facts, folds them, and hands them to the journal."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        redactor: Redactor | None = None,
        fact_stamp: FactStamp | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        """Write to a journal whose contents the ledger has folded.

        Replay has a `fact_stamp`, which dates facts as they were recorded instead of the `clock`,
        and a `schedule`, which begins due work when it was begun.
        """
        self.ledger = ledger
        self.records: Records = ledger
        """The same, to read: for all but the engine and the journal."""
        self.clock = clock
        self.redactor = Redactor() if redactor is None else redactor
        self.closed = False
        """No more facts are posted."""
        self.is_broken = False
        """The journal failed: nothing becomes durable any more."""
        self.durable_seq = ledger.last_seq
        """The last number that a task has waited for: it and all before it survive a crash."""
        self._durable_advanced = trio.lowlevel.ParkingLot()
        self.subscribers = FactSubscribers()
        self.wakeups = Wakeups(ledger, schedule)
        self.admission = Admission(ledger, self.post, self.wakeups)
        self.require_running = self.admission.require_running
        self.wait_running = self.admission.wait_running
        self.cache = SessionCache(journal, ledger, self.wait_durable)
        self.load = self.cache.load
        self.open_left_commands = journal.open_left_commands
        """Opens the exchange with machines that have commands of its journal."""
        self.journal_identity = journal.identity
        """The identity of its journal."""
        self.on_audit: Callable[[float, AuditEvent], None] | None = None
        """Receives a copy of each event of the audit."""
        self._journal = journal
        self._pruning_watchers: list[Callable[[], None]] = []
        self._fact_redactor = FactRedactor(self.redactor)
        self._fact_stamp = fact_stamp

    @property
    def account_store(self) -> "AccountStore | None":
        """The accounts that its journal shares with the others at its address."""
        return self._journal.account_store

    @property
    def journal_file(self) -> Path | None:
        """The file of the journal; None if it is in none."""
        return self._journal.file

    async def file_of_large_session(self, session: SessionId, *, facts: int) -> Path | None:
        """Return where another process can read a session at rest that has more facts than this.

        None if it is in memory, is no larger, or no other process can read it.
        """
        await self.wait_durable()
        file = self._journal.file
        if file is None or not self.ledger.is_evicted(session):
            return None
        is_large = await self._journal.has_more_entries(session, facts)
        return file if is_large else None

    def post(self, event: EventT, /, *more: EventT) -> EventT:
        """Make a fact true for all later decisions, and return its stored form.

        It is not durable yet. Several facts, such as the requests of one call, have one time and
        wake the waiting tasks once; they are of one session, and the last is returned.
        """
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        ledger, subscribers, stamp = self.ledger, self.subscribers, self._fact_stamp
        at, entry = self.clock(), None
        try:
            for event in (event, *more):  # noqa: B020, PLR1704 (the last one is returned)
                if stamp is not None:
                    event, at = stamp.stamp(event)  # noqa: PLW2901 (the fact to post)
                # What cannot be encoded must not become true.
                event, encoded = self._fact_redactor.encode(event)  # noqa: PLW2901
                kind = type(event)
                folded = Entry(ledger.last_seq + 1, at, ledger.session_of(event), event)
                changes = self.cache.note_fact(folded, ledger.fold(folded), len(encoded.body))
                entry = folded
                self._journal.append(entry, encoded, changes, urgent=kind in PAID)
                if kind in subscribers.to_kind or subscribers.to_all or subscribers.to_session:
                    subscribers.notify(entry, encoded)
        finally:
            if entry is not None:
                self.wakeups.notify(entry)
        return event

    def audit(self, event: "AuditEvent") -> None:
        """Record who did something, in the commit of the facts that were posted just before."""
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        at, event = self.clock(), event.redacted(self.redactor)
        self._journal.append_audit(at, event)
        if self.on_audit is not None:
            self.on_audit(at, event)

    async def wait_audited(self) -> None:
        """Wait until all that was posted and recorded so far survives a crash."""
        try:
            await self._journal.wait_audited()
        except JournalError:
            self.is_broken = True
            raise

    async def wait_durable(self, seq: int | None = None) -> None:
        """Wait until a fact survives a crash; by default, until everything posted so far does."""
        if seq is None:
            seq = self.ledger.last_seq
        try:
            await self._journal.wait_durable(seq)
        except JournalError:
            self.is_broken = True
            raise
        if seq > self.durable_seq:
            self.durable_seq = seq
            if self._durable_advanced:
                self._durable_advanced.unpark_all()

    async def wait_committed(self, seq: int) -> None:
        """Wait until a fact survives a crash, for a reader: no commit begins for it alone.

        It shares the next one that a task waits for, and comes a moment later if none does.
        """
        if self.durable_seq >= seq:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(MAX_DELAY_SECONDS):
            while True:
                await self._durable_advanced.park()
                if self.durable_seq >= seq:
                    return
        await self.wait_durable(seq)

    async def read_summary(self, session: SessionId) -> SessionSummary | None:
        """Return the summary of an evicted session, if it has one; None for others."""
        await self.wait_durable()
        if not self.ledger.is_evicted(session):
            return None
        return await self._journal.read_summary(session)

    async def read_entries(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        """Return the entries of a session after a number, and those of no session among them."""
        await self.wait_durable()
        return await self._journal.read_session(session, after=after)

    async def read_last_time(self, session: SessionId) -> float | None:
        """Return the time of the last fact of a session; None if it has none."""
        await self.wait_durable()
        return await self._journal.read_last_time(session)

    async def read_owners(self) -> Mapping[SessionId, str]:
        """Return the owners of all sessions that have one, oldest first."""
        await self.wait_durable()
        return await self._journal.read_owners()

    async def read_naming(self, kind: type[Event], id_: str) -> Sequence[Entry]:
        """Return the entries of one kind, of all sessions, that contain an id."""
        await self.wait_durable()
        return await self._journal.read_naming(kind.__name__, id_)

    async def read_task_entries(self, session: SessionId, task: TaskId) -> Sequence[Entry]:
        """Return the entries of a session that name a task."""
        await self.wait_durable()
        return await self._journal.read_naming("", task, session=session)

    async def prune(
        self, *, before: float, only: SessionId | None = None, by: "AuditEvent | None" = None
    ) -> Pruned:
        """Delete idle sessions for good, while facts are posted.

        Args:
            before: those whose last fact is older than this time.
            only: delete this one instead, whatever its age.
            by: whose action that is.
        """
        audit = None if by is None else (self.clock(), by.redacted(self.redactor))
        posted: set[SessionId] = set()

        def release(session: SessionId) -> bool:
            # One that was used meanwhile is not as old as it was.
            return session not in posted and self.cache.release(session)

        try:
            with self.subscribers.subscribe(lambda entry, _: posted.add(entry.session)):
                await self.wait_audited()
                pruned = await self._journal.prune(
                    before=before, release=release, only=only, audit=audit
                )
            if audit is not None and pruned.runs and self.on_audit is not None:
                at, event = audit
                self.on_audit(at, replace(event, count=pruned.runs))
            return pruned
        finally:
            self.note_pruned()

    async def preview_prune(self, *, before: float) -> Pruned:
        """Return what `prune` would delete now; its entries are not counted."""
        await self.wait_durable()
        expired = await self._journal.expired(before=before)
        return Pruned(
            runs=sum(map(self.cache.may_release, expired)),
            entries=0,
            active=len(self.cache.active) + len(self.cache.untaken),
        )

    def note_pruned(self) -> None:
        """Tell those who watch that sessions were deleted, here or in another journal beside it.

        No fact says it.
        """
        for note_pruned in [*self._pruning_watchers]:
            note_pruned()

    @contextmanager
    def watch_pruning(self, note_pruned: Callable[[], None]) -> Generator[None]:
        """Call `note_pruned` after each pruning, as long as the block lasts."""
        self._pruning_watchers.append(note_pruned)
        try:
            yield
        finally:
            self._pruning_watchers.remove(note_pruned)

    def close(self) -> None:
        """Post no more facts."""
        if not self.closed:
            self.closed = True
            self.cache.store_snapshots()
        self.wakeups.wake_all()
