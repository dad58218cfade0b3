"""Reads entries from a SQLite file beside its writer.

It decodes only the requested entries: a journal may hold a million facts of idle sessions.
"""

import json
import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal import stored_entries
from orchestrator.kernel.journal.reader import DatedSession
from orchestrator.kernel.journal.session_summary import SessionSummary
from orchestrator.kernel.journal.sqlite import lock, schema
from orchestrator.kernel.journal.sqlite.entries import (
    COLUMNS,
    decode_rows,
    last_entry,
    owners,
    read_stored_summary,
)
from orchestrator.kernel.journal.sqlite.trust import distrust, reading_deadline, require_own_tables
from orchestrator.kernel.private_files import irregularity

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditLog

IS_KEPT: Final = "session NOT IN (SELECT session FROM pruned_sessions)"
"""The condition of entries that are not about to be deleted."""
# An entry of no session says that all processes have ended: after the last entry of a session, one
# of them is as good as all.
SELECT_SESSION: Final = """
SELECT {columns} FROM entries WHERE session = :session AND seq > :after AND {kept}
UNION ALL
SELECT {columns} FROM entries WHERE session = '' AND seq > :after AND seq BETWEEN
    (SELECT min(seq) FROM entries WHERE session = :session) AND
    coalesce(
        (SELECT min(seq) FROM entries WHERE session = '' AND seq >
            (SELECT max(seq) FROM entries WHERE session = :session)),
        (SELECT max(seq) FROM entries WHERE session = :session)
    )
ORDER BY seq
"""

ListedRow: TypeAlias = tuple[Any, ...]


class SQLiteReader:
    """A SQLite file at one moment: within one transaction."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._is_empty = not schema.version_of(connection)
        """A writer has just made the file, and no table yet."""

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> Sequence[SessionId]:
        rows = self._listed(prefix, newest)
        return [SessionId(session) for session, *_ in rows]

    def dated_sessions(
        self, *, prefix: str = "", newest: int | None = None
    ) -> Sequence[DatedSession]:
        rows = self._listed(prefix, newest)
        times = self._times([first for _, first, *_ in rows]) if rows else {}
        return [DatedSession(SessionId(id_), times[at]) for id_, at, *_ in rows]

    def owners(self) -> Mapping[SessionId, str]:
        return {} if self._is_empty else owners(self._connection)

    def _listed(self, prefix: str, newest: int | None) -> list[ListedRow]:
        """Return the rows of sessions, oldest first: the id, and the number of the first entry."""
        if self._is_empty:
            return []
        rows = self._connection.execute(
            "SELECT session, first, used, checksum FROM sessions"
            # A damaged row has anything there, also nothing: it must be among those verified.
            " WHERE substr(session, 1, ?) = ? OR typeof(session) != 'text'"
            " ORDER BY first DESC LIMIT ?",
            (len(prefix), prefix, -1 if newest is None else newest),
        ).fetchall()
        with schema.translate_errors(self._path):
            for row in rows:
                stored_entries.require_listed(*row)
        return rows[::-1]

    def _times(self, numbers: Sequence[int]) -> dict[int, float]:
        """Return the times of entries; 0 for one that is missing or has none."""
        times = dict.fromkeys(numbers, 0.0)
        rows = self._connection.execute(
            "SELECT seq, at FROM entries WHERE seq IN (SELECT value FROM json_each(?))",
            (json.dumps([*times]),),
        )
        for number, at in rows:
            if isinstance(at, float):
                times[number] = at
        return times

    def has_session(self, session: SessionId) -> bool:
        if self._is_empty:
            return False
        found = self._connection.execute("SELECT 1 FROM sessions WHERE session = ?", (session,))
        return found.fetchone() is not None

    def active_sessions(self) -> Sequence[SessionId]:
        if self._is_empty:
            return ()
        rows = self._connection.execute(
            "SELECT session FROM sessions WHERE used IS NULL ORDER BY first"
        )
        return [SessionId(session) for (session,) in rows]

    def count(self) -> int:
        if self._is_empty:
            return 0
        (count,) = self._connection.execute("SELECT count(*) FROM sessions").fetchone()
        return int(count)

    def entries(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        # Translated here: the other sessions can still be read.
        with schema.translate_errors(self._path):
            rows = self.rows(session, after=after)
            stored_entries.require_chains(
                session,
                rows,
                after,
                last=last_entry(self._connection, session),
                last_of_none=last_entry(self._connection, stored_entries.NO_SESSION),
            )
            return decode_rows(self._connection, rows)

    def rows(self, session: SessionId, *, after: int = 0) -> list[stored_entries.Row]:
        """Return the same entries as they are stored."""
        select = SELECT_SESSION.format(columns=COLUMNS, kept=IS_KEPT)
        return self._connection.execute(select, {"session": session, "after": after}).fetchall()

    def summary(self, session: SessionId, *, has_writer: bool) -> SessionSummary | None:
        return read_stored_summary(self._connection, session, has_writer=has_writer)

    def naming(
        self, id_: str, *, session: SessionId | None = None, kind: str = ""
    ) -> Sequence[Entry]:
        # The session and the kind first: the bodies of few entries are searched, and fewer decoded.
        conditions, values = "", list[str]()
        if session is not None:
            conditions, values = "session = ? AND ", [session]
        if kind:
            conditions, values = f"{conditions}kind = ? AND ", [*values, kind]
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM entries"  # noqa: S608
            f" WHERE {conditions}instr(body, ?) AND {IS_KEPT} ORDER BY seq",
            (*values, f'"{id_}"'),
        )
        return decode_rows(self._connection, rows)

    def sessions_with_task(self, prefix: str) -> Sequence[SessionId]:
        if self._is_empty:
            return []
        rows = self._connection.execute(
            "SELECT DISTINCT session FROM entries"  # noqa: S608
            f" WHERE kind = 'TaskRequested' AND instr(body, ?) AND {IS_KEPT}"
            " ORDER BY seq",
            (f'"id":"{prefix}',),
        )
        return [SessionId(session) for (session,) in rows]

    def audit(self) -> "AuditLog":
        from orchestrator.kernel.journal.sqlite.audit import read_audit

        return read_audit(self._connection)

    def all_entries(self) -> list[Entry]:
        """Return the entries of all sessions."""
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM entries"  # noqa: S608
            f" WHERE {IS_KEPT} ORDER BY seq"
        )
        return decode_rows(self._connection, rows)


def has_active_sessions(path: Path) -> bool:
    """Return whether a journal lists a session as not idle: so much is read of it, and no more."""
    with open_tables_read_only(path) as connection, schema.translate_errors(path):
        return lists_active_session(connection)


def lists_active_session(connection: sqlite3.Connection) -> bool:
    if not schema.version_of(connection):
        return False
    found = connection.execute("SELECT 1 FROM sessions WHERE used IS NULL LIMIT 1")
    return found.fetchone() is not None


@contextmanager
def open_journal_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a journal that another process may be writing, at this moment; raise `JournalError` if
    the file is missing, not ours, incomplete, or has an unknown version.
    """
    with open_verified_read_only(path) as connection, schema.translate_errors(path):
        if not schema.version_of(connection):
            raise JournalError(path, "it is empty: nothing was ever written")
        schema.require_known_facts(path, connection)
        schema.require_complete(path, connection)
        if lock.writer_of(path) is None:
            refuse_lost_entries(path, connection, lock.last_writer_of(path))
        yield connection


def require_durable(path: Path, writer: lock.LastWriter) -> None:
    """Refuse a journal that ends before an entry that was durable."""
    if writer.durable_seq:
        # Without writing: what is left of the log stays as it is.
        with open_tables_read_only(path) as connection, schema.translate_errors(path):
            refuse_lost_entries(path, connection, writer)


def refuse_lost_entries(
    path: Path, connection: sqlite3.Connection, writer: lock.LastWriter
) -> None:
    last, seq = (
        schema.last_seq(connection) if schema.version_of(connection) else 0,
        writer.durable_seq,
    )
    # A file that was closed may be replaced by an older copy, but not by nothing.
    if last < seq and (writer.process or not last):
        raise JournalError(
            path,
            f"its entries {last + 1} to {seq} are lost, which its last writer has written:"
            f" {path.name} or {path.name}-wal is damaged, or is an older copy;"
            f" to go on without them, remove {lock.lock_path(path).name}",
        )


@contextmanager
def open_verified_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a journal that a reader has already verified as complete."""
    with (
        open_tables_read_only(path) as connection,
        schema.translate_errors(path),
        reading_deadline(path, connection),
    ):
        yield connection


@contextmanager
def open_tables_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a journal that may be damaged: what runs when it is read is at least our own SQL."""
    with open_file_read_only(path) as connection:
        with schema.translate_errors(path):
            require_own_tables(path, connection)
        yield connection


@contextmanager
def open_file_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a file, whatever it is, without ever creating or changing it."""
    path = lock.real_path(path)
    if not path.exists():
        raise JournalError(path, "there is no such file")
    if problem := irregularity(path.stat()):
        raise JournalError(path, problem)
    # Percent and question marks mean something in the address, so it is built by pathlib.
    address = f"{path.absolute().as_uri()}?mode=ro"
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists():
        lock.require_one_name(path)
    if not wal.exists() and not os.access(path.parent, os.W_OK):
        # Readers and writers meet in files beside it: where there can be none, there is no writer.
        address += "&immutable=1"
    with schema.translate_errors(path):
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
        connection.text_factory = schema.AS_STORED
    with closing(connection):
        with schema.translate_errors(path):
            distrust(connection)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
        yield connection
