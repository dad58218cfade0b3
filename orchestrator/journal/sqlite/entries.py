"""Entries as rows of a SQLite file: written by the journal, decoded for every reader."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from delegation import Encoded, SessionId, UnreadableFactError, decode
from delegation.events import Entry
from orchestrator.journal.journal import JournalContents
from orchestrator.journal.sqlite.long_strings import (
    extract_long_strings,
    restore_long_strings,
)
from orchestrator.journal.sqlite.schema import last_seq

IdleChanges: TypeAlias = Mapping[SessionId, str | None]
Row: TypeAlias = tuple[int, float, str, str, int, str]

COLUMNS: Final = "seq, at, session, kind, version, body"
SELECT_ACTIVE_SESSIONS: Final = f"""
SELECT {COLUMNS} FROM entries
WHERE session IN (SELECT session FROM sessions WHERE used IS NULL)
UNION ALL
SELECT {COLUMNS} FROM entries
WHERE session = '' AND seq >= (SELECT min(first) FROM sessions WHERE used IS NULL)
ORDER BY seq
"""  # noqa: S608


def write_entries(
    connection: sqlite3.Connection, batch: Iterable[tuple[Entry, Encoded, IdleChanges]]
) -> None:
    """Write entries, their long strings, and the sessions that they make idle or active."""
    rows: list[Row] = []
    payloads: dict[str, str] = {}
    sessions: dict[SessionId, tuple[int, str | None]] = {}
    for entry, fact, changed in batch:
        body = extract_long_strings(fact.body.decode(), payloads)
        rows.append((entry.seq, entry.at, entry.session, fact.kind, fact.version, body))
        for session, used in changed.items():
            first, _ = sessions.get(session, (entry.seq, None))
            sessions[session] = (first, used)
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
    if payloads:
        connection.executemany(
            "INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads.items()
        )
    connection.executemany(
        "INSERT INTO sessions VALUES (?, ?, ?)"
        " ON CONFLICT (session) DO UPDATE SET used = excluded.used",
        [(session, *state) for session, state in sessions.items()],
    )


def read_contents(connection: sqlite3.Connection) -> JournalContents:
    """Return what a writer must know: the entries of active sessions, the usage of idle ones."""
    sessions = connection.execute("SELECT session, used FROM sessions ORDER BY first")
    pruned = connection.execute("SELECT used FROM pruned")
    return JournalContents(
        sessions=dict(sessions.fetchall()),
        pruned=[used for (used,) in pruned],
        entries=list(
            decode_rows(connection, connection.execute(SELECT_ACTIVE_SESSIONS))
        ),
        last_seq=last_seq(connection),
    )


def from_row(connection: sqlite3.Connection, row: Row) -> Entry:
    """Return the entry of a row."""
    seq, at, session, kind, version, body = row

    def find(digest: str) -> str:
        found = connection.execute(
            "SELECT string FROM payloads WHERE digest = ?", (digest,)
        ).fetchone()
        if found is None:
            raise UnreadableFactError(
                f"a damaged {kind!r}: its string {digest} is missing"
            )
        return str(found[0])

    try:
        event = decode(
            Encoded(kind, version, restore_long_strings(body, find).encode())
        )
    except UnreadableFactError as exc:
        raise UnreadableFactError(f"entry {seq} is {exc}") from exc
    return Entry(seq, at, SessionId(session), event)


def decode_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> Iterator[Entry]:
    return (from_row(connection, row) for row in rows)
