"""Snapshots of sessions in a SQLite file, so that a long session is read in a moment."""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.delegation import Ledger, Rules, SessionId
from orchestrator.delegation.snapshot import MIN_FACTS, Snapshot, snapshot_layout
from orchestrator.kernel.journal.snapshots import StoredSnapshot, StoreSnapshot, fold_stored
from orchestrator.kernel.journal.sqlite.reader import SQLiteReader


def write_snapshots(connection: sqlite3.Connection, snapshots: Iterable[StoredSnapshot]) -> None:
    """Write the newest snapshots of sessions, in place of those before."""
    connection.executemany(
        "INSERT OR REPLACE INTO snapshots SELECT ?, ?, ?, ?, ? FROM sessions WHERE session = ?",
        [
            (it.session, it.seq, it.layout, it.state, checksum, it.session)
            for it, checksum in snapshots
        ],
    )


def stored_snapshots(
    connection: sqlite3.Connection, session: SessionId | None = None
) -> Iterator[StoredSnapshot]:
    """Yield the snapshots, or that of one session."""
    # A damaged row has anything there; its checksum tells.
    select = (
        "SELECT session, seq, layout, CAST(coalesce(state, '') AS BLOB), checksum FROM snapshots"
    )
    if session is None:
        rows = connection.execute(select)
    else:
        rows = connection.execute(f"{select} WHERE session = ?", (session,))
    for id_, seq, layout, state, checksum in rows:
        yield Snapshot(SessionId(id_), seq, layout, state), checksum


def sessions_apart(connection: sqlite3.Connection, rules: Rules) -> list[SessionId]:
    """Return the active sessions that are long, or have a snapshot which this code can read."""
    rows = connection.execute(
        "SELECT session FROM sessions LEFT JOIN snapshots USING (session)"
        " WHERE used IS NULL AND (layout = ? OR EXISTS ("
        " SELECT 1 FROM entries WHERE session = sessions.session LIMIT 1 OFFSET ?))",
        (snapshot_layout(rules), MIN_FACTS),
    )
    return [SessionId(session) for (session,) in rows]


def fold_session(
    path: Path,
    connection: sqlite3.Connection,
    session: SessionId,
    rules: Rules,
    store: StoreSnapshot | None = None,
) -> Ledger:
    """Return the ledger of one session alone: its snapshot, and the entries after it."""
    reader = SQLiteReader(path, connection)
    return fold_stored(
        stored_snapshots(connection, session),
        lambda after: reader.entries(session, after=after),
        path,
        rules,
        store,
    )
