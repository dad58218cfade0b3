"""Entries as rows of a SQLite file: written by the journal, verified and decoded for every reader.

An entry that is damaged or missing is an error that names it. The session of it cannot be read; the
others can.
"""

import json
import sqlite3
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from delegation import Encoded, SessionId, UnreadableFactError, decode
from delegation.events import Entry
from orchestrator.journal.journal import JournalContents
from orchestrator.journal.sqlite.checksums import entry_checksum, row_checksum
from orchestrator.journal.sqlite.long_strings import (
    MARK_BYTES,
    digest,
    extract_long_strings,
    restore_long_strings,
)
from orchestrator.journal.sqlite.schema import has_checksums, last_seq

IdleChanges: TypeAlias = Mapping[SessionId, str | None]
Row: TypeAlias = tuple[int, float, str, str, int, bytes, int | None, int | None]

UNCHECKED: Final = (int, float, str, str, int, bytes, type(None), type(None))
"""The types of a `Row` without a checksum."""
NO_SESSION: Final = SessionId("")
RESTORE: Final = "restore a copy of the journal"
WHAT_TO_DO: Final = f"delete the run (orchestrator runs --delete RUN), or {RESTORE}"


def columns(connection: sqlite3.Connection) -> str:
    """Return the columns of a `Row`: the body as bytes, since damaged text may be no text."""
    stored = "previous, checksum" if has_checksums(connection) else "NULL, NULL"
    return f"seq, at, session, kind, version, CAST(body AS BLOB), {stored}"


def write_entries(
    connection: sqlite3.Connection, batch: Iterable[tuple[Entry, Encoded, IdleChanges]]
) -> Collection[str]:
    """Write entries, their long strings, and the sessions that they make idle or active.

    Returns:
        the names of the long strings.
    """
    rows: list[tuple[int, float, str, str, int, str, int, int]] = []
    payloads: dict[str, str] = {}
    sessions: dict[SessionId, tuple[int, str | None]] = {}
    last: dict[SessionId, int] = {}
    for entry, fact, changed in batch:
        seq, at, session = entry.seq, entry.at, entry.session
        body = extract_long_strings(fact.body.decode(), payloads)
        stored = fact.body if len(fact.body) == len(body) else body.encode()
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
        connection.executemany(
            "INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads.items()
        )
    if sessions:
        connection.executemany(
            "INSERT INTO sessions VALUES (?1, ?2, ?3, row_checksum(?1, ?2, ?3))"
            " ON CONFLICT (session) DO UPDATE SET used = excluded.used,"
            " checksum = row_checksum(session, first, excluded.used)",
            [(session, *state) for session, state in sessions.items()],
        )
    connection.executemany(
        "INSERT OR REPLACE INTO last_entries VALUES (?, ?)", last.items()
    )
    return payloads.keys()


def last_entry(connection: sqlite3.Connection, session: SessionId) -> int:
    """Return the number of the last entry of a session, or of no session; 0 if it has none."""
    found = connection.execute(
        "SELECT seq FROM last_entries WHERE session = ?", (session,)
    ).fetchone()
    return 0 if found is None else found[0]


def read_contents(
    connection: sqlite3.Connection, apart: Collection[SessionId] = ()
) -> JournalContents:
    """Return what a writer must know: the entries of active sessions, the usage of idle ones.

    Args:
        connection: the file.
        apart: the active sessions that are read from their snapshots instead.
    """
    sessions = _read_sessions(connection)
    active = {
        session: first
        for session, (first, used) in sessions.items()
        if used is None and session not in apart
    }
    rows: list[Row] = connection.execute(
        f"""
        SELECT {columns(connection)} FROM entries
        WHERE session IN (
            SELECT session FROM sessions WHERE used IS NULL
            EXCEPT SELECT value FROM json_each(?1)
        )
        UNION ALL
        SELECT {columns(connection)} FROM entries WHERE session = '' AND seq >= ?2
        ORDER BY seq
        """,  # noqa: S608 (the names of columns are ours)
        (json.dumps([*apart]), min(active.values(), default=None)),
    ).fetchall()
    entries, damaged = _verify_active(connection, rows, active)
    return JournalContents(
        sessions={session: used for session, (_, used) in sessions.items()},
        pruned=_read_pruned(connection),
        entries=entries,
        last_seq=last_seq(connection),
        damaged=damaged,
    )


def _verify_active(
    connection: sqlite3.Connection, rows: Iterable[Row], active: Mapping[SessionId, int]
) -> tuple[list[Entry], dict[SessionId, str]]:
    """Return the entries of the sessions that are whole, and what is wrong with the others.

    Args:
        connection: the file.
        rows: the entries of active sessions, and of none, in order.
        active: the number of the first entry of each active session.
    """
    entries: list[Entry] = []
    damaged: dict[SessionId, str] = {}
    chains: dict[str, list[Row]] = {session: [] for session in (*active, NO_SESSION)}
    for row in rows:
        if row[2] not in chains:
            raise UnreadableFactError(f"entry {row[0]} is damaged; {RESTORE}")
        chains[row[2]].append(row)
        try:
            entries.append(from_row(connection, row))
        except UnreadableFactError as exc:
            damaged |= _concerned(row[2], row[0], active, exc)
    for session, chain in chains.items() if active else ():
        last = last_entry(connection, SessionId(session))
        try:
            require_chain(chain, 0 if session else min(active.values()), last)
        except UnreadableFactError as exc:
            damaged |= _concerned(session, last, active, exc)
    if damaged:
        entries = [entry for entry in entries if entry.session not in damaged]
    return entries, damaged


def _concerned(
    session: str, seq: int, active: Mapping[SessionId, int], problem: Exception
) -> dict[SessionId, str]:
    """Return the active sessions that cannot be read without an entry, and why."""
    if session:
        return {SessionId(session): str(problem)}
    # That all processes ended is news for all sessions that had begun.
    return {it: str(problem) for it, first in active.items() if first <= seq}


def _read_sessions(
    connection: sqlite3.Connection,
) -> dict[SessionId, tuple[int, str | None]]:
    """Return the first entry of each session, and what an idle one has used, oldest first."""
    sessions: dict[SessionId, tuple[int, str | None]] = {}
    rows = connection.execute(
        "SELECT session, first, used, checksum FROM sessions ORDER BY first"
    )
    for session, first, used, checksum in rows:
        require_listed(session, first, used, checksum)
        sessions[session] = (first, used)
    (count,) = connection.execute(
        "SELECT count(*) FROM last_entries WHERE session != ''"
    ).fetchone()
    if len(sessions) != count:
        raise UnreadableFactError(
            f"the list of runs is damaged: it has {len(sessions)} of {count} runs;"
            f" {RESTORE}"
        )
    return sessions


def require_listed(session: str, first: int, used: str | None, checksum: int) -> None:
    """Refuse a row of the list of sessions that is not what was written."""
    if checksum != row_checksum(session, first, used):
        raise UnreadableFactError(
            f"the list of runs is damaged at run {session!r}; {RESTORE}"
        )


def _read_pruned(connection: sqlite3.Connection) -> list[str]:
    """Return what pruned sessions had used of shared budgets."""
    pruned: list[str] = []
    rows = connection.execute("SELECT entries, last, used, checksum FROM pruned")
    for entries, last, used, checksum in rows:
        if checksum != row_checksum(entries, last, used):
            raise UnreadableFactError(f"the list of pruned runs is damaged; {RESTORE}")
        pruned.append(used)
    return pruned


def from_row(connection: sqlite3.Connection, row: Row) -> Entry:
    """Return the entry of a row."""
    require_whole(row)
    seq, at, session, kind, version, body, _, _ = row
    try:
        if MARK_BYTES in body:
            body = restore_long_strings(body, partial(_find_string, connection, kind))
        event = decode(Encoded(kind, version, body))
    except UnreadableFactError as exc:
        raise UnreadableFactError(f"entry {seq} is {exc}; {WHAT_TO_DO}") from exc
    return Entry(seq, at, SessionId(session), event)


def _find_string(connection: sqlite3.Connection, kind: str, name: str) -> bytes:
    found = connection.execute(
        "SELECT CAST(string AS BLOB) FROM payloads WHERE digest = ?", (name,)
    ).fetchone()
    if found is None:
        raise UnreadableFactError(f"a damaged {kind!r}: its string {name} is missing")
    (string,) = found
    if not isinstance(string, bytes) or digest(string) != name:
        raise UnreadableFactError(
            f"a damaged {kind!r}: its string {name} is not what was written"
        )
    return string


def require_whole(row: Row) -> None:
    """Refuse a row that is not what was written."""
    seq, at, session, kind, version, body, previous, checksum = row
    try:
        if previous is None or checksum is None:
            # From before there were checksums. A damaged row may have anything in its columns.
            types = tuple(type(value) for value in row)
            is_whole = types == UNCHECKED
        else:
            found = entry_checksum(seq, at, session, kind, version, body, previous)
            is_whole = found == checksum
    except (struct.error, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise UnreadableFactError(
            f"entry {seq} is damaged: it is not what was written; {WHAT_TO_DO}"
        )


def require_chain(rows: Sequence[Row], after: int, last: int) -> None:
    """Refuse the entries of one session, or of none, if one is missing among them.

    Args:
        rows: those of them after a number, in order.
        after: that number.
        last: the number of the last entry that there is.
    """
    seq = after
    for row in rows:
        previous = row[6]
        if previous is not None and (
            previous > seq if seq == after else previous != seq
        ):
            raise UnreadableFactError(
                f"entry {previous}, before entry {row[0]}, is missing; {WHAT_TO_DO}"
            )
        seq = row[0]
    if seq < last or (rows and seq > last):
        raise UnreadableFactError(
            f"entry {last} should be the last one, and {seq} is; {WHAT_TO_DO}"
        )


def decode_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> list[Entry]:
    return [from_row(connection, row) for row in rows]
