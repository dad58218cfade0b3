"""Deletes sessions from a journal for good, and frees the space, in small steps.

Each step is one transaction of some rows; between two steps the writer commits facts. A session is
marked first, and is gone for every reader. Then its entries are deleted, some at a time, the last
ones first. The same transaction counts them, so that a lost entry is still noticed. The next
pruning deletes sessions that a crash left marked.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from orchestrator.delegation import SessionId
from orchestrator.kernel.journal.audit import AuditedEvent
from orchestrator.kernel.journal.checksums import row_checksum
from orchestrator.kernel.journal.journal import Pruned
from orchestrator.kernel.journal.long_strings import references
from orchestrator.kernel.journal.sqlite.audit import write_audit
from orchestrator.kernel.journal.sqlite.reader import open_journal_read_only
from orchestrator.kernel.journal.sqlite.schema import INCREMENTAL

# By the last entry, not by the latest: clocks are set back.
EXPIRED_SESSIONS: Final = """
SELECT session FROM sessions WHERE used IS NOT NULL AND (
    SELECT at FROM entries WHERE entries.session = sessions.session
    ORDER BY seq DESC LIMIT 1
) < ?
"""
# In the order of the index, backwards: sorted anew for each step, the steps of a large run would
# take the square of its entries.
DELETE_MARKED: Final = """
DELETE FROM entries WHERE seq IN (
    SELECT seq FROM entries WHERE session IN (SELECT session FROM pruned_sessions)
    ORDER BY session DESC, seq DESC LIMIT ?
)
"""


def preview_prune(path: Path, *, before: float) -> Pruned:
    """Return what pruning would delete; a process may write the journal."""
    with open_journal_read_only(path) as connection:
        runs, entries = connection.execute(
            "SELECT count(DISTINCT session), count(*) FROM entries"  # noqa: S608
            f" WHERE session IN ({EXPIRED_SESSIONS})",
            (before,),
        ).fetchone()
        return Pruned(runs=runs, entries=entries, active=count_active(connection))


def find_expired(connection: sqlite3.Connection, before: float) -> list[SessionId]:
    """Return the idle sessions whose last entry is older than a time."""
    rows = connection.execute(EXPIRED_SESSIONS, (before,))
    return [SessionId(session) for (session,) in rows]


def count_active(connection: sqlite3.Connection) -> int:
    (active,) = connection.execute("SELECT count(*) FROM sessions WHERE used IS NULL").fetchone()
    return int(active)


def mark_pruned(
    connection: sqlite3.Connection, sessions: Sequence[SessionId], audit: AuditedEvent | None = None
) -> None:
    """Take idle sessions out of the lists; their usage of shared budgets stays booked."""
    if audit is not None:
        at, event = audit
        event = replace(event, target=sessions[0], count=len(sessions))
        write_audit(connection, [(at, event)])
    used: list[object] = []
    for session in sessions:
        found = connection.execute(
            "SELECT session, first, used, checksum FROM sessions WHERE session = ?", (session,)
        ).fetchone()
        # What a damaged row says was used is not known.
        if found is not None and found[2] and row_checksum(*found[:3]) == found[3]:
            used += json.loads(found[2])
    connection.executemany(
        "INSERT OR IGNORE INTO pruned_sessions VALUES (?, row_checksum(?))",
        [(session, session) for session in sessions],
    )
    for table in ("sessions", "last_entries"):
        connection.executemany(
            f"DELETE FROM {table} WHERE session = ?",  # noqa: S608
            [(session,) for session in sessions],
        )
    # No number is used twice, also if the last entry of all is deleted.
    (last,) = connection.execute("SELECT max(seq) FROM entries").fetchone()
    row = (last or 0, json.dumps(used))
    connection.execute("INSERT INTO pruned VALUES (0, ?, ?, row_checksum(0, ?, ?))", (*row, *row))


def delete_entries(connection: sqlite3.Connection, limit: int) -> int:
    """Delete some entries of marked sessions, and return how many: fewer than that is all."""
    deleted = connection.execute(DELETE_MARKED, (limit,)).rowcount
    connection.execute(
        "UPDATE pruned SET entries = entries + ?,"
        " checksum = row_checksum(entries + ?, last, used)"
        " WHERE rowid = (SELECT max(rowid) FROM pruned)",
        (deleted, deleted),
    )
    if deleted < limit:
        connection.execute("DELETE FROM pruned_sessions")
    return deleted


def read_referenced(connection: sqlite3.Connection, after: int, until: int) -> set[str]:
    """Return the long strings that entries refer to, of those between two numbers."""
    rows = connection.execute(
        "SELECT CAST(body AS BLOB) FROM entries"
        " WHERE seq > ? AND seq <= ? AND instr(body, char(26))",
        (after, until),
    )
    return {name for (body,) in rows for name in references(body)}


def read_stored(connection: sqlite3.Connection) -> set[str]:
    """Return the names of all long strings."""
    return {name for (name,) in connection.execute("SELECT digest FROM payloads")}


def delete_strings(
    connection: sqlite3.Connection, names: Sequence[str], kept: Collection[str]
) -> None:
    """Delete long strings, but for those that have been written again."""
    connection.executemany(
        "DELETE FROM payloads WHERE digest = ?", [(name,) for name in names if name not in kept]
    )


def free_pages(connection: sqlite3.Connection, limit: int) -> bool:
    """Give some free pages of the file back, and return whether there are more."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if mode != INCREMENTAL:
        return False  # its header is damaged: no page would ever be freed
    # As a script: `execute` takes the first of its steps only, since it has no columns.
    connection.executescript(f"PRAGMA incremental_vacuum({limit})")
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(free)


def truncate_log(connection: sqlite3.Connection) -> None:
    """Move the log into the file and truncate it, unless a reader needs it."""
    (wait,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {wait}")


def size_of(path: Path) -> int:
    """Return the size of a journal on the disk, with the log beside it."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
