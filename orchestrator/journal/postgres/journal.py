"""The writer of one journal in a database, which no other process writes at the same time.

A lease keeps it for this process; it is renewed by every commit, and by the event loop between
commits: a loop that hangs must lose its journal.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

import trio

from agents import raising_one_error
from delegation import Encoded, Ledger, Rules, SessionId
from delegation.events import Entry
from delegation.snapshot import SnapshotCapture
from orchestrator.errors import JournalError
from orchestrator.journal.audit import (
    AuditedEvent,
    AuditEvent,
    AuditHead,
    AuditRow,
)
from orchestrator.journal.group_commit import GroupCommit
from orchestrator.journal.journal import JournalContents, Pruned
from orchestrator.journal.postgres import prune
from orchestrator.journal.postgres.acquisition import open_lease
from orchestrator.journal.postgres.entries import EntryWriter
from orchestrator.journal.postgres.fenced_connection import (
    FENCE,
    FENCED,
    IS_MINE,
    FencedConnection,
)
from orchestrator.journal.postgres.reader import (
    PostgresReader,
    one_moment,
    read_row,
)
from orchestrator.journal.snapshots import SnapshotQueue, StoredSnapshot
from orchestrator.journal.stored_entries import FactRow, IdleChanges
from orchestrator.journal.tenure import Tenure
from orchestrator.postgres.address import DatabaseAddress
from orchestrator.postgres.database import Database, open_database
from orchestrator.postgres.left_commands import open_left_commands

if TYPE_CHECKING:
    from orchestrator.postgres.connection import Connection

ResultT = TypeVar("ResultT")

STEP_SESSIONS: Final = 50
STEP_ENTRIES: Final = 500
STEP_STRINGS: Final = 50
"""How much pruning does at a time: so long the next commit waits at most."""
SCAN_ENTRIES: Final = 5_000
"""How many entries pruning reads at a time, while facts are written."""
FLUSH_SECONDS: Final = 10
"""How long closing may take to write what is left."""
RENEWALS: Final = 3
"""How often a lease is renewed while it lasts."""
_SNAPSHOT: Final[LiteralString] = (
    FENCE
    + FENCED
    + """, stored AS (
    INSERT INTO orchestrator.snapshots
    SELECT session, mine.journal, %s::bigint, %s, %s, %s::bigint
    FROM mine JOIN orchestrator.sessions USING (journal) WHERE session = %s
    ON CONFLICT (session, journal) DO UPDATE SET seq = excluded.seq,
        layout = excluded.layout, state = excluded.state, checksum = excluded.checksum
) """
    + IS_MINE
)


class PostgresJournal:
    """An open journal. `open_postgres_journal` makes it."""

    takes_snapshots = True
    spans_hosts = True
    file = None

    def __init__(
        self,
        address: DatabaseAddress,
        where: str,
        connection: FencedConnection,
        reading: Database,
        clock_offset: float,
    ) -> None:
        self._where = where
        self.name = address.journal
        self.epoch = connection.lease.epoch
        self.tenure = Tenure(self.name, self.epoch)
        self.identity = where
        self.clock_offset = clock_offset
        self.database = address.url
        """The address of the database, with its password."""
        self.open_left_commands = partial(
            open_left_commands, address.url, journal=self.name, epoch=self.epoch
        )
        self._lease_seconds = address.lease
        self._journal = connection.lease.journal
        self._connection = connection
        self._reading = reading
        self._writer = EntryWriter(connection)
        self._new_strings: set[str] | None = None
        """The long strings that were written since a pruning looks for unused ones."""
        self.snapshots = SnapshotQueue()
        self.group = GroupCommit[FactRow | AuditedEvent](self._commit)
        self.wait_durable = self.group.wait_durable
        self.wait_audited = self.group.wait_all_durable

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: IdleChanges,
        *,
        urgent: bool = False,
    ) -> None:
        self.group.append(entry.seq, (entry, encoded, idle_changes), urgent=urgent)

    def append_audit(self, at: float, event: AuditEvent) -> None:
        self.group.append_unnumbered((at, event))

    def store_snapshot(self, capture: SnapshotCapture) -> None:
        self.snapshots.put(capture)

    async def read(self, rules: Rules) -> JournalContents:
        return await self._read(lambda it: it.contents(rules))

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        return await self._read(lambda it: it.fold(session, rules))

    async def read_session(
        self, session: SessionId, *, after: int = 0
    ) -> Sequence[Entry]:
        return await self._read(lambda it: it.entries(session, after=after))

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        return await self._read(lambda it: it.has_more_entries(session, count))

    async def read_last_time(self, session: SessionId) -> float | None:
        return await self._read(lambda it: it.last_time(session))

    async def read_owners(self) -> Mapping[SessionId, str]:
        return await self._read(lambda it: it.owners())

    async def read_naming(self, kind: str, id_: str) -> Sequence[Entry]:
        return await self._read(lambda it: it.naming(id_, kind=kind))

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: AuditedEvent | None = None,
    ) -> Pruned:
        if only is not None:
            expired = [only]
        else:
            expired = await self._find(prune.find_expired, before)
        runs = entries = 0
        while True:
            some, expired = expired[:STEP_SESSIONS], expired[STEP_SESSIONS:]
            if released := [session for session in some if release(session)]:
                runs += await self._mark_pruned(released, audit)
            # Also those that a crash has left.
            while deleted := await self._step(
                lambda it: prune.delete_entries(it, self._journal, STEP_ENTRIES)
            ):
                entries += deleted
            if not expired:
                break
        if entries:
            await self._delete_strings()
        active = await self._find(prune.count_active)
        return Pruned(runs=runs, entries=entries, active=active)

    async def _mark_pruned(
        self, sessions: Sequence[SessionId], audit: AuditedEvent | None
    ) -> int:
        async with self.group.turn:
            writer = self._writer
            rows, head = prune.audited_prune(writer.audit_head, sessions, audit)
            count = await trio.to_thread.run_sync(
                lambda: self._connection.transact(
                    lambda it: prune.mark_pruned(it, self._journal, sessions, rows)
                )
            )
            writer.audit_head = head
            writer.forget(sessions)
            return count

    async def prune_audit(self, *, before: float, at: float, event: AuditEvent) -> int:
        """Put a checkpoint in place of the rows of the audit before a time; return how many."""
        async with self.group.turn:

            def plan(
                connection: "Connection",
            ) -> tuple[AuditHead, list[AuditRow], int]:
                row = read_row(connection, self.name)
                assert row is not None, "this process has opened it"
                return prune.plan_audit_prune(
                    connection, self._where, row, before, (at, event)
                )

            last, chained, count = await trio.to_thread.run_sync(
                lambda: self._connection.read(plan)
            )
            if count:
                await trio.to_thread.run_sync(
                    lambda: self._connection.transact(
                        lambda it: prune.delete_audit(it, self._journal, last, chained)
                    )
                )
                self._writer.audit_head = chained[-1].head
            return count

    async def _delete_strings(self) -> None:
        """Delete the long strings that no entry refers to."""
        self._new_strings = set()
        try:
            stored = await self._find(prune.read_stored)
            for after in range(0, self._writer.last, SCAN_ENTRIES):
                until = after + SCAN_ENTRIES
                stored -= await self._find(prune.read_referenced, after, until)
            spare = sorted(stored)
            for start in range(0, len(spare), STEP_STRINGS):
                names = spare[start : start + STEP_STRINGS]
                kept = self._new_strings
                await self._step(
                    partial(self._delete_some_strings, names=names, kept=kept)
                )
        finally:
            self._new_strings = None

    def _delete_some_strings(
        self, connection: "Connection", *, names: Sequence[str], kept: set[str]
    ) -> int:
        return prune.delete_strings(connection, self._journal, names, kept)

    async def _step(self, change: "Callable[[Connection], int]") -> int:
        """Change something in a transaction of its own, between two commits."""
        async with self.group.turn:
            return await trio.to_thread.run_sync(
                lambda: self._connection.transact(change)
            )

    async def _find(self, read: "Callable[..., ResultT]", *values: float) -> ResultT:
        """Read something beside the commits."""
        return await self._reading.run(lambda it: read(it, self._journal, *values))

    async def _read(self, read: Callable[[PostgresReader], ResultT]) -> ResultT:
        def look(connection: "Connection") -> ResultT:
            with one_moment(connection):
                row = read_row(connection, self.name)
                assert row is not None, "this process has opened it"
                return read(PostgresReader(self._where, connection, row))

        return await self._reading.run(look)

    def _commit(self, batch: Sequence[FactRow | AuditedEvent]) -> None:
        facts = [row for row in batch if len(row) == 3]
        audited = [row for row in batch if len(row) == 2]
        strings = self._writer.write(facts, audited)
        # Read once: the event loop sets it to None when the pruning ends.
        if (new_strings := self._new_strings) is not None:
            new_strings.update(strings)
        self._write_snapshots(self.snapshots.take(until=self._writer.last))

    def _write_snapshots(self, snapshots: Sequence[StoredSnapshot]) -> None:
        for it, checksum in snapshots:
            values = (str(it.seq), it.layout, it.state, str(checksum), it.session)
            self._connection.execute(_SNAPSHOT, (), values)

    async def write_last_snapshots(self) -> None:
        """Write the snapshots that no commit has taken: there will be none."""
        await self.snapshots.wait_encoded()
        if snapshots := self.snapshots.take():
            async with self.group.turn:
                await trio.to_thread.run_sync(lambda: self._write_snapshots(snapshots))

    async def renew_forever(self, scope: trio.CancelScope) -> None:
        """Renew the lease, until the scope is cancelled; commits do so, too.

        Raises:
            JournalInUseError: another process has taken the journal over.
        """
        pause = self._lease_seconds / RENEWALS
        try:
            with scope:
                while True:
                    await trio.sleep(pause)
                    async with self.group.turn:
                        await trio.to_thread.run_sync(self._connection.renew)
        except JournalError as exc:
            self.group.fail(exc)
            raise


@asynccontextmanager
async def open_postgres_journal(
    address: DatabaseAddress, where: str, *, served_at: str = ""
) -> AsyncGenerator[PostgresJournal]:
    """Open a journal for writing, and create it where there is none.

    Args:
        address: names the journal.
        where: the journal in errors.
        served_at: where this process is reached over HTTP.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened, or is no journal.
    """
    async with open_database(address.url, application="orchestrator reader") as reading:
        # Last: what takes long is done, and the lease runs.
        opened = await trio.to_thread.run_sync(open_lease, address, where, served_at)
        connection = FencedConnection(address, where, opened.connection, opened.lease)
        journal = PostgresJournal(
            address, where, connection, reading, opened.clock_offset
        )
        try:
            with raising_one_error():
                async with _writing(journal, where, connection):
                    yield journal
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(connection.release)


@asynccontextmanager
async def _writing(
    journal: PostgresJournal, where: str, connection: FencedConnection
) -> AsyncGenerator[None]:
    """Commit and renew, as long as the block lasts; then write what is left."""
    group = journal.group
    async with trio.open_nursery() as nursery:
        # A task that is cancelled from outside still posts how it ended.
        writing = trio.CancelScope(shield=True)
        nursery.start_soon(group.commit_forever, writing)
        encoding = trio.CancelScope(shield=True)
        nursery.start_soon(journal.snapshots.encode_forever, encoding)
        renewing = trio.CancelScope(shield=True)
        nursery.start_soon(journal.renew_forever, renewing)
        try:
            yield
        finally:
            try:
                with trio.move_on_after(FLUSH_SECONDS, shield=True) as flushing:
                    await group.wait_all_durable()
                if not flushing.cancelled_caught:
                    with trio.move_on_after(FLUSH_SECONDS, shield=True):
                        await journal.write_last_snapshots()
            finally:
                # All are shielded: whatever was raised, nothing else ends them.
                renewing.cancel(reason="the journal is closed")
                encoding.cancel(reason="the journal is closed")
                group.fail(JournalError(where, "it is closed"))
                writing.cancel(reason="the journal is closed")
            if flushing.cancelled_caught:
                connection.hang_up()
                raise JournalError(
                    where,
                    "the database did not take what was left to write within"
                    f" {FLUSH_SECONDS} seconds",
                )
