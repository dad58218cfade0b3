"""The queue of writes to a journal: facts and audit for the next commit, and snapshots.

A closing process writes the rest of the queue, within `FLUSH_SECONDS`, and then nothing more.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from orchestrator.agents import raising_one_error
from orchestrator.delegation import Encoded, Ledger, SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.group_commit import GroupCommit, RunInThread
from orchestrator.kernel.journal.session_summary import SessionSummary, StoredSummary, store_form
from orchestrator.kernel.journal.snapshots import SnapshotQueue, StoredSnapshot
from orchestrator.kernel.journal.stored_entries import FactRow, IdleChanges

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditedEvent, AuditEvent

FLUSH_SECONDS: Final = 10
"""The most seconds that a closing process takes to write the rest of the queue."""

Commit: TypeAlias = Callable[
    [Sequence[FactRow], Sequence["AuditedEvent"], Sequence[StoredSummary]], None
]
"""Writes all of it, or nothing; blocking."""
RunUntil: TypeAlias = Callable[[trio.CancelScope], Awaitable[None]]
"""Runs until a scope is cancelled."""


class WriteQueue:
    """Takes facts, audit and snapshots, and tells when they are durable."""

    def __init__(self, commit: Commit, *, in_thread: RunInThread | None = None) -> None:
        self._commit = commit
        self.snapshots = SnapshotQueue()
        self.group: GroupCommit[FactRow | AuditedEvent | StoredSummary] = GroupCommit(
            self._commit_batch, in_thread=in_thread
        )

    def append(
        self, entry: Entry, encoded: Encoded, idle_changes: IdleChanges, *, urgent: bool = False
    ) -> None:
        self.group.append(entry.seq, (entry, encoded, idle_changes), urgent=urgent)

    def append_audit(self, at: float, event: "AuditEvent") -> None:
        self.group.append_unnumbered((at, event))

    def store_snapshot(self, ledger: Ledger, session: SessionRecord) -> None:
        self.snapshots.put(ledger, session)

    def store_summary(self, summary: SessionSummary, seq: int) -> None:
        self.group.append_unnumbered(store_form(summary, seq))

    def _commit_batch(self, batch: "Sequence[FactRow | AuditedEvent | StoredSummary]") -> None:
        facts = [row for row in batch if len(row) == 3]
        audited = [row for row in batch if len(row) == 2]
        # Of each session, the newest matters.
        summaries = {row[0]: row for row in batch if len(row) == 4}
        self._commit(facts, audited, [*summaries.values()])

    @asynccontextmanager
    async def running(
        self,
        where: object,
        *,
        medium: str,
        write_snapshots: Callable[[Sequence[StoredSnapshot]], Awaitable[None]],
        beside: Sequence[RunUntil] = (),
    ) -> AsyncGenerator[None]:
        """Commit as long as the block lasts, then write the rest, or raise `JournalError`."""
        # All are shielded: a task that is cancelled from outside still posts how it ended.
        scopes: list[trio.CancelScope] = []
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                encode, commit = (self.snapshots.encode_forever, self.group.commit_forever)
                for run in (*beside, encode, commit):
                    scopes.append(trio.CancelScope(shield=True))
                    nursery.start_soon(run, scopes[-1])
                try:
                    yield
                finally:
                    try:
                        with trio.move_on_after(FLUSH_SECONDS, shield=True) as flushing:
                            await self.group.wait_all_durable()
                        if not flushing.cancelled_caught:
                            # The thread that encodes one ends first in any case.
                            with trio.move_on_after(FLUSH_SECONDS, shield=True):
                                await self._flush_snapshots(write_snapshots)
                    finally:
                        # Whatever was raised: nothing else ends them.
                        self.group.fail(JournalError(where, "it is closed"))
                        for scope in scopes:
                            scope.cancel(reason="the journal is closed")
                    if flushing.cancelled_caught:
                        raise JournalError(
                            where,
                            f"the {medium} did not take the remaining entries within"
                            f" {FLUSH_SECONDS} seconds",
                        )

    async def _flush_snapshots(
        self, write: Callable[[Sequence[StoredSnapshot]], Awaitable[None]]
    ) -> None:
        """Write the snapshots that no commit has taken: there will be none."""
        await self.snapshots.wait_encoded()
        if snapshots := self.snapshots.take():
            await write(snapshots)
