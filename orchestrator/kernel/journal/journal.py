"""The port of the journal's writer, and the fold of a journal's contents."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from orchestrator.delegation import (
    Encoded,
    ImpossibleEventError,
    Ledger,
    Rules,
    SessionId,
    SessionRecord,
    UnreadableFactError,
    register_idle_session,
)
from orchestrator.delegation.events import Entry, JournalOpened
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.left_commands import OpenLeftCommands
from orchestrator.kernel.journal.session_summary import SessionSummary
from orchestrator.kernel.journal.tenure import JournalLease, Tenure

if TYPE_CHECKING:
    from orchestrator.kernel.journal.accounts import AccountStore
    from orchestrator.kernel.journal.audit import AuditEvent

MISFITS: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
"""Errors of our code for facts that no orchestrator writes: a stranger may have written them."""
PRUNED_SESSION: Final = SessionId("")
"""The account of pruned sessions in shared budgets."""


class JournalContents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a journal that its next writer must know."""

    entries: Sequence[Entry]
    """Those of active sessions, and those of no session."""
    last_seq: int
    """The number of the last entry of all sessions."""
    sessions: Mapping[SessionId, str | None] = {}
    """All sessions, oldest first: the shared budget usage of an idle one, None if active."""
    pruned: Sequence[str] = ()
    """The usage of pruned sessions on shared budgets."""
    folded: Mapping[SessionId, Ledger] = {}
    """The active sessions that have a snapshot, each in a ledger of its own."""
    last_at: float = 0.0
    """The time of the last entry of all sessions, where writers on several machines date them."""
    damaged: Mapping[SessionId, str] = {}
    """The problems of active sessions that cannot be read; their entries are left out."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The sessions and entries that pruning deleted, or would delete."""

    runs: int
    entries: int
    active: int
    """How many sessions stay because they are not idle, whatever their age."""
    freed: int = 0
    """How many bytes the journal has become smaller."""


class Journal(Protocol):
    """Stores entries in order. One orchestrator writes it at a time."""

    @property
    def tenure(self) -> Tenure | None:
        """The right to write it, which work is lent under; None where no worker can reach it."""
        ...

    @property
    def lease(self) -> JournalLease | None:
        """The time until others may take it over; None where a lock keeps them out."""
        ...

    @property
    def database(self) -> str | None:
        """The address at which workers reach it, which may have a password in it."""
        ...

    @property
    def file(self) -> Path | None:
        """Where another process can read it; None if none can."""
        ...

    @property
    def identity(self) -> Hashable:
        """A key that no other journal has: the address, or itself if it has none."""
        ...

    @property
    def account_store(self) -> "AccountStore | None":
        """The accounts that it shares with the other journals at its address; None in memory."""
        ...

    @property
    def open_left_commands(self) -> OpenLeftCommands | None:
        """Opens the exchange with machines that have commands of it; None if there is only one."""
        ...

    @property
    def spans_hosts(self) -> bool:
        """Processes on other machines can open it, too."""
        ...

    @property
    def clock_offset(self) -> float:
        """How many seconds the clock of the store is ahead of that of this machine."""
        ...

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
        *,
        urgent: bool = False,
    ) -> None:
        """Take the next entry. It is durable once `wait_durable` returns.

        Args:
            entry: a numbered fact.
            encoded: the same fact as it is stored.
            idle_changes: the sessions that this fact made idle, with what they have used of
                shared budgets; None for one that it made active.
            urgent: make it durable as soon as can be, whether a task waits for it or not.
        """
        ...

    async def wait_durable(self, seq: int) -> None:
        """Wait until the entry of this number, and all before it, survive a crash."""
        ...

    def append_audit(self, at: float, event: "AuditEvent") -> None:
        """Take the next row of the audit. It is in the commit of the entry just before it.

        Args:
            at: when it happened.
            event: what happened, without secrets.
        """
        ...

    async def wait_audited(self) -> None:
        """Wait until all that was appended survives a crash, the rows of the audit included."""
        ...

    def store_snapshot(self, ledger: Ledger, session: SessionRecord) -> None:
        """Take the state of a session, to read it faster later; no fact changes it any more.

        It may be stored at any time, or never: durability does not depend on it.
        """
        ...

    def store_summary(self, summary: SessionSummary, seq: int) -> None:
        """Take the summary of a session, in the commit of the entry with this number or later."""
        ...

    async def read_summary(self, session: SessionId) -> SessionSummary | None:
        """Return the durable summary of a session at rest; None if it has none that fits."""
        ...

    async def read(self, rules: Rules) -> JournalContents:
        """Return the contents that the next writer must know.

        Args:
            rules: of the ledger that sessions with a snapshot become a part of.
        """
        ...

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        """Return the fold of the durable entries of one session alone."""
        ...

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        """Return the durable entries of a session after a number, as `JournalReader.entries`."""
        ...

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        """Return whether a session has more durable entries than this."""
        ...

    async def read_last_time(self, session: SessionId) -> float | None:
        """Return the time of the last durable entry of a session; None if it has none."""
        ...

    async def read_owners(self) -> Mapping[SessionId, str]:
        """Return the owners of all durable sessions that have one, oldest first."""
        ...

    async def read_naming(
        self, kind: str, id_: str, *, session: SessionId | None = None
    ) -> Sequence[Entry]:
        """Return the durable entries that contain an id, as `JournalReader.naming`."""
        ...

    async def expired(self, *, before: float) -> Sequence[SessionId]:
        """Return the idle sessions whose last entry is older than a time."""
        ...

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: "tuple[float, AuditEvent] | None" = None,
    ) -> Pruned:
        """Delete idle sessions for good, and free the space, while facts are appended.

        Args:
            before: those whose last entry is older than this time.
            release: called with each session before it is deleted; returns whether it may be.
            only: delete this one instead, whatever its age, idle or damaged.
            audit: when, and by whom; it is recorded with the sessions if there are any. The rows
                of the audit stay.
        """
        ...


def restore_ledger(contents: JournalContents, name: object, rules: Rules | None = None) -> Ledger:
    """Return the ledger after everything that a journal has."""
    ledger = Ledger(rules)
    try:
        for used in contents.pruned:
            register_idle_session(ledger, PRUNED_SESSION, used)
        ledger.all_sessions.pop(PRUNED_SESSION, None)
        for session, used_by_it in contents.sessions.items():
            register_idle_session(ledger, session, used_by_it or "")
    except UnreadableFactError as exc:
        raise JournalError(name, str(exc)) from exc
    fold(ledger, contents.entries, name)
    ledger.last_seq = contents.last_seq
    if contents.folded:
        # Imported late: only long sessions have snapshots.
        from orchestrator.delegation.snapshot.restore import adopt_session

        for session, past in contents.folded.items():
            adopt_session(ledger, session, past)
        ledger.sessions = {
            session: ledger.sessions[session]
            for session in ledger.all_sessions
            if session in ledger.sessions
        }
    return ledger


def fold_entries(entries: Sequence[Entry], name: object, rules: Rules | None = None) -> Ledger:
    """Return the ledger after these entries: all of a journal, or all of some sessions."""
    ledger = Ledger(rules)
    fold(ledger, entries, name)
    return ledger


def fold_run(entries: Sequence[Entry], name: object, *, has_writer: bool) -> Ledger:
    """Return the ledger after the entries of some runs; without a writer no task runs."""
    ledger = fold_entries(entries, name)
    if entries and not has_writer:
        interrupted = JournalOpened("read only")
        ledger.fold(Entry(ledger.last_seq + 1, entries[-1].at, SessionId(""), interrupted))
    return ledger


def fold(ledger: Ledger, entries: Sequence[Entry], name: object) -> None:
    for entry in entries:
        try:
            ledger.fold(entry)
        except ImpossibleEventError as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc.because}"
            raise JournalError(name, problem) from exc
        except MISFITS as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc!r}"
            raise JournalError(name, problem) from exc
