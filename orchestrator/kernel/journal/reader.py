"""The port that reads a journal beside its writer: in another process, or a thread.

A reader sees the journal at one moment, and only its durable entries. Its methods block.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from orchestrator.delegation import SessionId, encode
from orchestrator.delegation.events import Entry, SessionOpened, TaskRequested
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.session_summary import SessionSummary

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditLog


class DatedSession(msgspec.Struct, frozen=True, gc=False):
    """A session, and when it began."""

    id: SessionId
    began: float


class JournalReader(Protocol):
    """A journal at one moment. `JournalStore.open_reader` opens it."""

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> Sequence[SessionId]:
        """Return the sessions whose id begins with a prefix, oldest first.

        Args:
            prefix: how the ids begin.
            newest: return the newest so many only; None is all.
        """
        ...

    def dated_sessions(
        self, *, prefix: str = "", newest: int | None = None
    ) -> Sequence[DatedSession]:
        """Return the same sessions, each with the time of its first entry."""
        ...

    def owners(self) -> Mapping[SessionId, str]:
        """Return the owners of all sessions that have one, oldest first."""
        ...

    def has_session(self, session: SessionId) -> bool:
        """Return whether there is a session of this very id, without looking at the others."""
        ...

    def active_sessions(self) -> Sequence[SessionId]:
        """Return the sessions that are listed as not idle, oldest first.

        If the journal has no writer, they wait for a process that goes on with them.
        """
        ...

    def count(self) -> int:
        """Return the number of sessions."""
        ...

    def entries(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        """Return the entries of a session after a number, and those of no session among them.

        An entry of no session says that all processes ended that ran anything. The first one after
        the last entry of the session is included; any later one says the same.
        """
        ...

    def summary(self, session: SessionId, *, has_writer: bool) -> SessionSummary | None:
        """Return the summary of a long session; None if its entries must be folded instead.

        Args:
            session: its id.
            has_writer: whether a process writes the journal: then a summary may be a second old.
        """
        ...

    def naming(
        self, id_: str, *, session: SessionId | None = None, kind: str = ""
    ) -> Sequence[Entry]:
        """Return the entries that contain an id.

        Args:
            id_: the id of a task, a message, an approval.
            session: only entries of this session; None is all.
            kind: only facts of this class; by default all.
        """
        ...

    def sessions_with_task(self, prefix: str) -> Sequence[SessionId]:
        """Return the sessions that have a task whose id begins with a prefix, oldest first."""
        ...

    def audit(self) -> "AuditLog":
        """Return the audit; its rows are read as they are iterated over."""
        ...


class EntriesReader:
    """Reads a journal that is a list in memory."""

    def __init__(self, entries: Sequence[Entry], audit: "AuditLog | None" = None) -> None:
        self._entries = entries
        self._audit = audit

    def audit(self) -> "AuditLog":
        if self._audit is None:
            from orchestrator.kernel.journal.audit import AuditLog

            return AuditLog(rows=())
        return self._audit

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> Sequence[SessionId]:
        every = dict.fromkeys(entry.session for entry in self._entries)
        found = [id_ for id_ in every if id_ and id_.startswith(prefix)]
        return found if newest is None else found[max(0, len(found) - newest) :]

    def dated_sessions(
        self, *, prefix: str = "", newest: int | None = None
    ) -> Sequence[DatedSession]:
        began: dict[SessionId, float] = {}
        for entry in self._entries:
            began.setdefault(entry.session, entry.at)
        found = self.sessions(prefix=prefix, newest=newest)
        return [DatedSession(session, began[session]) for session in found]

    def owners(self) -> Mapping[SessionId, str]:
        return {
            entry.session: entry.event.owner
            for entry in self._entries
            if isinstance(entry.event, SessionOpened) and entry.event.owner
        }

    def has_session(self, session: SessionId) -> bool:
        return bool(session) and any(it.session == session for it in self._entries)

    def active_sessions(self) -> Sequence[SessionId]:
        sessions = fold_entries(self._entries, "in memory").sessions
        return [session.id for session in sessions.values() if not session.is_idle]

    def count(self) -> int:
        return len(self.sessions())

    def entries(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        own = [entry.seq for entry in self._entries if entry.session == session]
        if not own:
            return []
        found: list[Entry] = []
        for entry in self._entries:
            if entry.session == session or (not entry.session and entry.seq > own[0]):
                found.append(entry)
            if entry.seq > own[-1] and not entry.session:
                break
        return [entry for entry in found if entry.seq > after]

    def summary(self, session: SessionId, *, has_writer: bool) -> SessionSummary | None:
        """Return None: memory has no summaries."""
        del session, has_writer
        return None

    def naming(
        self, id_: str, *, session: SessionId | None = None, kind: str = ""
    ) -> Sequence[Entry]:
        quoted = f'"{id_}"'.encode()
        return [
            entry
            for entry in self._entries
            if session in {None, entry.session}
            and kind in {"", type(entry.event).__name__}
            and quoted in encode(entry.event).body
        ]

    def sessions_with_task(self, prefix: str) -> Sequence[SessionId]:
        return list(
            dict.fromkeys(
                entry.session
                for entry in self._entries
                if isinstance(entry.event, TaskRequested)
                and entry.event.request.id.startswith(prefix)
            )
        )
