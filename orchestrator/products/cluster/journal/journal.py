"""The writer of one journal in a database, which no other process writes at the same time.

A lease keeps it for this process; it is renewed by every commit, and by the event loop between
commits: a loop that hangs must lose its journal.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

import trio

from orchestrator.delegation import Ledger, Rules, SessionId
from orchestrator.delegation.events import Entry
from orchestrator.ports import journals
from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.database import Database, open_database
from orchestrator.products.cluster.database.left_commands import open_left_commands
from orchestrator.products.cluster.database.statements import run_statements
from orchestrator.products.cluster.journal import fenced_connection, prune
from orchestrator.products.cluster.journal.accounts import DatabaseAccounts
from orchestrator.products.cluster.journal.acquisition import OpenedLease, open_lease
from orchestrator.products.cluster.journal.entries import EntryWriter
from orchestrator.products.cluster.journal.lease import in_use
from orchestrator.products.cluster.journal.lease_watch import LeaseWatch
from orchestrator.products.cluster.journal.reader import PostgresReader, one_moment, read_row

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")

STEP_SESSIONS: Final = 50
STEP_ENTRIES: Final = 500
STEP_STRINGS: Final = 50
"""How much pruning does at a time: so long the next commit waits at most."""
SCAN_ENTRIES: Final = 5_000
"""How many entries pruning reads at a time, while facts are written."""
RELEASE_SECONDS: Final = 2
"""How long closing may take to let others write at once: else they wait for the lease."""
RENEWALS: Final = 3
"""How often a lease is renewed while it lasts."""
_SNAPSHOT: Final[LiteralString] = (
    fenced_connection.FENCE
    + fenced_connection.FENCED
    + """, stored AS (
    INSERT INTO orchestrator.snapshots
    SELECT session, mine.journal, %s::bigint, %s, %s, %s::bigint
    FROM mine JOIN orchestrator.sessions USING (journal) WHERE session = %s
    ON CONFLICT (session, journal) DO UPDATE SET seq = excluded.seq,
        layout = excluded.layout, state = excluded.state, checksum = excluded.checksum
) """
    + fenced_connection.IS_MINE
)
_SUMMARY: Final[LiteralString] = (
    fenced_connection.FENCE
    + fenced_connection.FENCED
    + """, stored AS (
    INSERT INTO orchestrator.summaries
    SELECT session, mine.journal, %s::bigint, %s, %s::bigint
    FROM mine JOIN orchestrator.sessions USING (journal) WHERE session = %s
    ON CONFLICT (session, journal) DO UPDATE SET seq = excluded.seq,
        body = excluded.body, checksum = excluded.checksum
) """
    + fenced_connection.IS_MINE
)

_EPOCH: Final[LiteralString] = "SELECT epoch FROM orchestrator.journals WHERE journal = %s"


class PostgresJournal:
    """An open journal. `open_postgres_journal` makes it."""

    spans_hosts = True
    file = None

    def __init__(
        self,
        address: DatabaseAddress,
        where: str,
        opened: OpenedLease,
        reading: Database,
        sent: float,
    ) -> None:
        """Write a journal that was taken just after `sent`, by the clock of the address."""
        self._where = where
        self.name = address.journal
        self.epoch = opened.lease.epoch
        self.tenure = journals.Tenure(self.name, self.epoch)
        self.identity = where
        self.clock_offset = opened.clock_offset
        self.database = address.url
        """The address of the database, with its password."""
        self.open_left_commands = partial(
            open_left_commands, address.url, journal=self.name, epoch=self.epoch
        )
        self._lease_seconds = address.lease
        self._journal = opened.lease.journal
        self.lease: LeaseWatch = LeaseWatch(
            seconds=address.lease, clock=address.clock, sent=sent, confirm=self._confirm
        )
        self._connection = fenced_connection.FencedConnection(
            address, where, opened.connection, opened.lease, self.lease
        )
        self._reading = reading
        self.account_store = DatabaseAccounts(address.url, self.name, self.epoch)
        self._writer = EntryWriter(self._connection)
        self._new_strings: set[str] | None = None
        """The long strings that were written since a pruning looks for unused ones."""
        self.queue = journals.WriteQueue(self._commit, in_thread=self._run)
        self.group = self.queue.group
        self.append = self.queue.append
        self.append_audit = self.queue.append_audit
        self.store_snapshot = self.queue.store_snapshot
        self.store_summary = self.queue.store_summary
        self.wait_durable = self.group.wait_durable
        self.wait_audited = self.group.wait_all_durable

    async def read(self, rules: Rules) -> journals.JournalContents:
        return await self._read(lambda it: it.contents(rules, self.queue.snapshots.encode))

    async def read_summary(self, session: SessionId) -> journals.SessionSummary | None:
        return await self._read(lambda it: it.summary(session, has_writer=False))

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        return await self._read(lambda it: it.fold(session, rules, self.queue.snapshots.encode))

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        return await self._read(lambda it: it.entries(session, after=after))

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        return await self._read(lambda it: it.has_more_entries(session, count))

    async def read_last_time(self, session: SessionId) -> float | None:
        return await self._read(lambda it: it.last_time(session))

    async def read_owners(self) -> Mapping[SessionId, str]:
        return await self._read(lambda it: it.owners())

    async def read_naming(
        self, kind: str, id_: str, *, session: SessionId | None = None
    ) -> Sequence[Entry]:
        return await self._read(lambda it: it.naming(id_, session=session, kind=kind))

    async def expired(self, *, before: float) -> Sequence[SessionId]:
        return await self._find(prune.find_expired, before)

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: journals.AuditedEvent | None = None,
    ) -> journals.Pruned:
        expired = [only] if only is not None else await self.expired(before=before)
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
        return journals.Pruned(runs=runs, entries=entries, active=active)

    async def _mark_pruned(
        self, sessions: Sequence[SessionId], audit: journals.AuditedEvent | None
    ) -> int:
        writer = self._writer

        def mark() -> int:
            rows, head = prune.audited_prune(writer.audit_head, sessions, audit)

            def happened() -> None:
                writer.audit_head = head
                writer.forget(sessions)

            return self._connection.transact(
                lambda it: prune.mark_pruned(it, self._journal, sessions, rows), happened
            )

        async with self.group.turn:
            return await self._run(mark)

    async def prune_audit(self, *, before: float, at: float, event: journals.AuditEvent) -> int:
        """Put a checkpoint in place of the rows of the audit before a time; return how many."""

        def plan(
            connection: "Connection",
        ) -> tuple[journals.AuditHead, list[journals.AuditRow], int]:
            row = read_row(connection, self.name)
            assert row is not None, "this process has opened it"
            return prune.plan_audit_prune(connection, self._where, row, before, (at, event))

        def delete() -> int:
            last, chained, count = self._connection.read(plan)

            def happened() -> None:
                self._writer.audit_head = chained[-1].head

            if count:
                self._connection.transact(
                    lambda it: prune.delete_audit(it, self._journal, last, chained), happened
                )
            return count

        async with self.group.turn:
            return await self._run(delete)

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
                delete = partial(prune.delete_strings, journal=self._journal, names=names)
                await self._step(partial(delete, kept=self._new_strings))
        finally:
            self._new_strings = None

    async def _step(self, change: "Callable[[Connection], int]") -> int:
        """Change something in a transaction of its own, between two commits."""
        async with self.group.turn:
            return await self._run(lambda: self._connection.transact(change))

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        """Use the connection in a thread; its caller has the turn of the commits."""

        def settle_and_work() -> ResultT:
            self._connection.settle()
            return work()

        with self.lease.waiting():
            return await run_statements(settle_and_work, break_off=self._connection.hang_up)

    async def _find(self, read: "Callable[..., ResultT]", *values: float) -> ResultT:
        """Read something beside the commits."""
        with self.lease.waiting():
            return await self._reading.run(lambda it: read(it, self._journal, *values))

    async def _read(self, read: Callable[[PostgresReader], ResultT]) -> ResultT:
        def look(connection: "Connection") -> ResultT:
            with one_moment(connection):
                row = read_row(connection, self.name)
                assert row is not None, "this process has opened it"
                return read(PostgresReader(self._where, connection, row))

        with self.lease.waiting():
            return await self._reading.run(look)

    async def _confirm(self) -> None:
        def require_mine(connection: "Connection") -> None:
            found = connection.execute(_EPOCH, (self._journal,)).fetchone()
            if found != (self.epoch,):
                raise in_use(connection, self.name, self._where)

        await self._reading.ask(require_mine)

    def _commit(
        self,
        facts: Sequence[journals.FactRow],
        audited: Sequence[journals.AuditedEvent],
        summaries: Sequence[journals.StoredSummary],
    ) -> None:
        strings = self._writer.write(facts, audited)
        # Read once: the event loop sets it to None when the pruning ends.
        if (new_strings := self._new_strings) is not None:
            new_strings.update(strings)
        for session, seq, body, checksum in summaries:
            self._connection.execute(_SUMMARY, (), (str(seq), body, str(checksum), session))
        self._write_snapshots(self.queue.snapshots.take(until=self._writer.last))

    def _write_snapshots(self, snapshots: Sequence[journals.StoredSnapshot]) -> None:
        for it, checksum in snapshots:
            values = (str(it.seq), it.layout, it.state, str(checksum), it.session)
            self._connection.execute(_SNAPSHOT, (), values)

    async def write_snapshots(self, snapshots: Sequence[journals.StoredSnapshot]) -> None:
        """Write snapshots that no commit has taken."""
        async with self.group.turn:
            await self._run(lambda: self._write_snapshots(snapshots))

    async def release(self) -> None:
        """Let others take the journal at once, if the database answers."""
        connection = self._connection
        await run_statements(connection.release, break_off=connection.hang_up)

    async def renew_forever(self, scope: trio.CancelScope) -> None:
        """Renew the lease until the scope is cancelled, or raise `JournalInUseError`."""
        pause = self._lease_seconds / RENEWALS
        try:
            with scope:
                while True:
                    await trio.sleep(pause)
                    async with self.group.turn:
                        await self._run(self._connection.renew)
        except JournalError as exc:
            self.group.fail(exc)
            raise


@asynccontextmanager
async def open_postgres_journal(
    address: DatabaseAddress, where: str, *, served_at: str = ""
) -> AsyncGenerator[PostgresJournal]:
    """Open a journal for writing, and create it where there is none.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened, or is no journal.
    """
    async with open_database(address.url, application="orchestrator reader") as reading:
        # Last: what takes long is done, and the lease runs.
        sent = address.clock()
        opened = await open_lease(address, where, served_at)
        journal = PostgresJournal(address, where, opened, reading, sent)
        try:
            async with journal.queue.running(
                where,
                medium="database",
                write_snapshots=journal.write_snapshots,
                beside=[journal.renew_forever, journal.lease.watch_forever],
            ):
                yield journal
        finally:
            with trio.move_on_after(RELEASE_SECONDS, shield=True):
                await journal.account_store.aclose()
                await journal.release()
