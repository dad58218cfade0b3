"""A journal that crashes after a given entry."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

from orchestrator.delegation import Encoded, Ledger, Rules, SessionId, SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.journal import Journal, JournalContents, Pruned
from orchestrator.kernel.journal.session_summary import SessionSummary


class CrashedError(JournalError):
    """The simulated process is dead: the journal accepts no more entries."""


class CrashingJournal:
    """Appends entries up to a number, and drops all later ones.

    A wait for a later entry to become durable raises `CrashedError`, which closes the orchestrator.
    Facts that were not yet durable are lost, as in a real crash. To continue, open the wrapped
    journal again.
    """

    def __init__(self, journal: Journal, *, after: int, kill: bool = False) -> None:
        """Wrap a journal.

        Args:
            journal: the journal that stores the entries.
            after: the number of the last stored entry.
            kill: whether to kill this process with SIGKILL once that entry is durable.
        """
        self._journal = journal
        self._after = after
        self._kill = kill
        self.crashed = False
        self.open_left_commands = journal.open_left_commands
        self.spans_hosts = journal.spans_hosts
        self.clock_offset = journal.clock_offset
        self.identity = journal.identity
        self.file = journal.file
        self.tenure = journal.tenure
        self.lease = journal.lease
        self.database = journal.database
        self.account_store = journal.account_store

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
        *,
        urgent: bool = False,
    ) -> None:
        if entry.seq > self._after:
            self.crashed = True
        else:
            self._journal.append(entry, encoded, idle_changes, urgent=urgent)

    async def wait_durable(self, seq: int) -> None:
        await self._journal.wait_durable(min(seq, self._after))
        if self._kill and seq >= self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        if seq > self._after:
            raise CrashedError(
                type(self._journal).__name__, f"it crashed after entry {self._after}"
            )

    def append_audit(self, at: float, event: AuditEvent) -> None:
        if not self.crashed:
            self._journal.append_audit(at, event)

    async def wait_audited(self) -> None:
        await self._journal.wait_audited()

    def store_snapshot(self, ledger: Ledger, session: SessionRecord) -> None:
        if ledger.last_seq <= self._after:
            self._journal.store_snapshot(ledger, session)

    def store_summary(self, summary: SessionSummary, seq: int) -> None:
        if seq <= self._after:
            self._journal.store_summary(summary, seq)

    async def read_summary(self, session: SessionId) -> SessionSummary | None:
        return await self._journal.read_summary(session)

    async def read(self, rules: Rules) -> JournalContents:
        return await self._journal.read(rules)

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        return await self._journal.read_ledger(session, rules)

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        return await self._journal.read_session(session, after=after)

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        return await self._journal.has_more_entries(session, count)

    async def read_last_time(self, session: SessionId) -> float | None:
        return await self._journal.read_last_time(session)

    async def read_owners(self) -> Mapping[SessionId, str]:
        return await self._journal.read_owners()

    async def read_naming(
        self, kind: str, id_: str, *, session: SessionId | None = None
    ) -> Sequence[Entry]:
        return await self._journal.read_naming(kind, id_, session=session)

    async def expired(self, *, before: float) -> Sequence[SessionId]:
        return await self._journal.expired(before=before)

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: tuple[float, AuditEvent] | None = None,
    ) -> Pruned:
        return await self._journal.prune(before=before, release=release, only=only, audit=audit)
