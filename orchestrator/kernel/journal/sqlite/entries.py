"""Entries as rows of a SQLite file: written by the journal, and read for every reader."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from orchestrator.delegation import SessionId, UnreadableFactError
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.checksums import entry_checksum, row_checksum
from orchestrator.kernel.journal.journal import JournalContents
from orchestrator.kernel.journal.long_strings import MAX_INLINE_CHARACTERS, extract_long_strings
from orchestrator.kernel.journal.session_summary import SessionSummary, StoredSummary, read_summary
from orchestrator.kernel.journal.sqlite.schema import last_seq
from orchestrator.kernel.journal.stored_entries import (
    RESTORE,
    Allowance,
    FactRow,
    Row,
    decode_row,
    owner_in,
    require_listed,
    verify_active,
)

COLUMNS: Final = "seq, at, session, kind, version, CAST(body AS BLOB), previous, checksum"
"""The columns of a `Row`: the body as bytes, since damaged text may be no text."""


def write_entries(connection: sqlite3.Connection, batch: Iterable[FactRow]) -> Collection[str]:
    """Write entries and the states of their sessions; return the names of their long strings."""
    rows: list[tuple[int, float, str, str, int, str, int, int]] = []
    payloads: dict[str, str] = {}
    sessions: dict[SessionId, tuple[int, str | None]] = {}
    last: dict[SessionId, int] = {}
    for entry, fact, changed in batch:
        seq, at, session = entry.seq, entry.at, entry.session
        stored = fact.body
        body = stored.decode()
        if len(body) > MAX_INLINE_CHARACTERS:
            body = extract_long_strings(body, payloads)
            stored = body.encode()
        if session not in last:
            last[session] = last_entry(connection, session)
        previous, last[session] = last[session], seq
        kind, version = fact.kind, fact.version
        checksum = entry_checksum(seq, at, session, kind, version, stored, previous)
        rows.append((seq, at, session, kind, version, body, previous, checksum))
        for listed, used in changed.items():
            first, _ = sessions.get(listed, (seq, None))
            sessions[listed] = (first, used)
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    if payloads:
        connection.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads.items())
    if sessions:
        connection.executemany(
            "INSERT INTO sessions VALUES (?, ?, ?, row_checksum(?, ?, ?))"
            " ON CONFLICT (session) DO UPDATE SET used = excluded.used,"
            " checksum = row_checksum(session, first, excluded.used)",
            [(session, *state) * 2 for session, state in sessions.items()],
        )
    connection.executemany("INSERT OR REPLACE INTO last_entries VALUES (?, ?)", last.items())
    return payloads.keys()


def write_summaries(connection: sqlite3.Connection, summaries: Iterable[StoredSummary]) -> None:
    """Write the newest summaries of sessions."""
    connection.executemany(
        "INSERT OR REPLACE INTO summaries SELECT ?, ?, ?, ? FROM sessions WHERE session = ?",
        [(*it, it[0]) for it in summaries],
    )


def read_stored_summary(
    connection: sqlite3.Connection, session: SessionId, *, has_writer: bool
) -> SessionSummary | None:
    """Return the summary of a session, or None if its entries must be folded."""
    stored = connection.execute(
        "SELECT session, seq, body, checksum FROM summaries WHERE session = ?", (session,)
    ).fetchone()
    return read_summary(stored, last=last_entry(connection, session), has_writer=has_writer)


def last_entry(connection: sqlite3.Connection, session: SessionId) -> int:
    """Return the number of the last entry of a session, or of no session; 0 if it has none."""
    found = connection.execute(
        "SELECT seq FROM last_entries WHERE session = ?", (session,)
    ).fetchone()
    return 0 if found is None else found[0]


def has_more_entries(connection: sqlite3.Connection, session: SessionId, count: int) -> bool:
    """Return whether a session has more entries than this."""
    found = connection.execute(
        "SELECT 1 FROM entries WHERE session = ? LIMIT 1 OFFSET ?", (session, count)
    )
    return found.fetchone() is not None


def last_time(connection: sqlite3.Connection, session: SessionId) -> float | None:
    """Return the time of the last entry of a session; None if it has none."""
    found = connection.execute(
        "SELECT at FROM entries WHERE session = ? ORDER BY seq DESC LIMIT 1", (session,)
    ).fetchone()
    return None if found is None else found[0]


def owners(connection: sqlite3.Connection) -> dict[SessionId, str]:
    """Return the owners of all sessions that have one, oldest first."""
    found: dict[SessionId, str] = {}
    # The first entry of a session is the fact that opened it: no other is looked at.
    for session, body in connection.execute(
        "SELECT entries.session, entries.body FROM sessions JOIN entries"
        ' ON entries.seq = sessions.first WHERE instr(entries.body, \'"owner":"\')'
        " ORDER BY entries.seq"
    ):
        if owner := owner_in(body):
            found[SessionId(session)] = owner
    return found


def read_contents(
    connection: sqlite3.Connection, apart: Collection[SessionId] = ()
) -> JournalContents:
    """Return the contents for a writer: the entries of active sessions, the usage of idle ones.

    Active sessions in `apart` are read from their snapshots instead.
    """
    sessions = _read_sessions(connection)
    active = {
        session: first
        for session, (first, used) in sessions.items()
        if used is None and session not in apart
    }
    rows: list[Row] = connection.execute(
        f"""
        SELECT {COLUMNS} FROM entries
        WHERE session IN (
            SELECT session FROM sessions WHERE used IS NULL
            EXCEPT SELECT value FROM json_each(?)
        )
        UNION ALL
        SELECT {COLUMNS} FROM entries WHERE session = '' AND seq >= ?
        ORDER BY seq
        """,  # noqa: S608 (the names of columns are ours)
        (json.dumps([*apart]), min(active.values(), default=None)),
    ).fetchall()
    allowance = file_allowance(connection)
    entries, damaged = verify_active(
        rows,
        active,
        decode=lambda row: from_row(connection, row, allowance),
        last_entry=partial(last_entry, connection),
    )
    return JournalContents(
        sessions={session: used for session, (_, used) in sessions.items()},
        pruned=_read_pruned(connection),
        entries=entries,
        last_seq=last_seq(connection),
        damaged=damaged,
    )


def _read_sessions(connection: sqlite3.Connection) -> dict[SessionId, tuple[int, str | None]]:
    """Return the first entry of each session, and the usage of an idle one, oldest first."""
    sessions: dict[SessionId, tuple[int, str | None]] = {}
    rows = connection.execute("SELECT session, first, used, checksum FROM sessions ORDER BY first")
    for session, first, used, checksum in rows:
        require_listed(session, first, used, checksum)
        sessions[session] = (first, used)
    return sessions


def _read_pruned(connection: sqlite3.Connection) -> list[str]:
    """Return what pruned sessions had used of shared budgets."""
    pruned: list[str] = []
    rows = connection.execute("SELECT entries, last, used, checksum FROM pruned")
    for entries, last, used, checksum in rows:
        if checksum != row_checksum(entries, last, used):
            raise UnreadableFactError(f"the list of pruned runs is damaged; {RESTORE}")
        pruned.append(used)
    return pruned


def file_allowance(connection: sqlite3.Connection) -> Allowance:
    """Return how much the long strings of some entries of a file may come to."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    return Allowance(pages * page)


def from_row(connection: sqlite3.Connection, row: Row, allowance: Allowance | None = None) -> Entry:
    """Return the entry of a row; rows that are read together share the `allowance`."""
    return decode_row(
        row,
        partial(_find_string, connection),
        lambda: file_allowance(connection) if allowance is None else allowance,
    )


def _find_string(connection: sqlite3.Connection, name: str) -> bytes | None:
    found = connection.execute(
        "SELECT CAST(string AS BLOB) FROM payloads WHERE digest = ?", (name,)
    ).fetchone()
    if found is None:
        return None
    (string,) = found
    return string if isinstance(string, bytes) else b""  # damaged: its digest tells


def decode_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> list[Entry]:
    allowance = file_allowance(connection)
    return [from_row(connection, row, allowance) for row in rows]
