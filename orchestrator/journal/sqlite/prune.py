"""Deletes idle sessions from a journal for good, and frees the space.

The deleted entries are counted in the same transaction, so that an entry that is missing for
another reason is still found.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.journal.sqlite.journal import connect
from orchestrator.journal.sqlite.lock import hold_lock
from orchestrator.journal.sqlite.long_strings import MARK, references
from orchestrator.journal.sqlite.reader import open_journal_read_only
from orchestrator.journal.sqlite.schema import (
    has_table,
    last_seq,
    require_complete,
    require_known_facts,
    translate_errors,
)
from orchestrator.journal.store import Pruned

# By the last entry, not by the latest: clocks are set back.
EXPIRED_SESSIONS: Final = """
SELECT session FROM sessions WHERE used IS NOT NULL AND (
    SELECT at FROM entries WHERE entries.session = sessions.session
    ORDER BY seq DESC LIMIT 1
) < ?
"""


async def prune_sqlite_journal(path: Path, *, before: float) -> Pruned:
    """Delete the idle sessions whose last entry is older, and free the space.

    Args:
        path: the journal.
        before: seconds since the epoch.

    Raises:
        JournalInUseError: a process writes the journal.
    """
    async with hold_lock(path) as lock:
        pruned = await trio.to_thread.run_sync(_prune, path, before, lock.durable_seq)
        lock.note_closed()
        return pruned


def preview_prune(path: Path, *, before: float) -> Pruned:
    """Return what `prune_sqlite_journal` would delete; a process may write the journal."""
    with open_journal_read_only(path) as connection:
        if not has_table(connection, "sessions"):
            # A file of the first version does not list idle sessions.
            (active,) = connection.execute(
                "SELECT count(DISTINCT session) FROM entries WHERE session != ''"
            ).fetchone()
            return Pruned(runs=0, entries=0, active=active)
        runs, entries = connection.execute(
            "SELECT count(DISTINCT session), count(*) FROM entries"  # noqa: S608
            f" WHERE session IN ({EXPIRED_SESSIONS})",
            (before,),
        ).fetchone()
        return Pruned(runs=runs, entries=entries, active=_count_active(connection))


def _prune(path: Path, before: float, durable_seq: int) -> Pruned:
    with closing(connect(path, durable_seq)) as connection, translate_errors(path):
        require_known_facts(path, connection)
        require_complete(path, connection)
        size = _size(path)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            pruned = _delete(connection, before)
        if pruned.runs:
            connection.execute("VACUUM")
        # Move the log into the file, and truncate it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return attrs.evolve(pruned, freed=max(0, size - _size(path)))


def _delete(connection: sqlite3.Connection, before: float) -> Pruned:
    connection.execute(f"CREATE TEMP TABLE expired AS {EXPIRED_SESSIONS}", (before,))
    last = last_seq(connection)
    used: list[object] = []
    for (amounts,) in connection.execute(
        "SELECT used FROM sessions JOIN expired USING (session) WHERE used != ''"
    ):
        used += json.loads(amounts)
    entries = connection.execute(
        "DELETE FROM entries WHERE session IN (SELECT session FROM expired)"
    ).rowcount
    runs = connection.execute(
        "DELETE FROM sessions WHERE session IN (SELECT session FROM expired)"
    ).rowcount
    connection.execute(
        "DELETE FROM last_entries WHERE session IN (SELECT session FROM expired)"
    )
    if runs:
        connection.execute(
            "INSERT INTO pruned VALUES (?1, ?2, ?3, row_checksum(?1, ?2, ?3))",
            (entries, last, json.dumps(used)),
        )
        _delete_payloads(connection)
    return Pruned(runs=runs, entries=entries, active=_count_active(connection))


def _delete_payloads(connection: sqlite3.Connection) -> None:
    """Delete the long strings that no fact refers to any more."""
    connection.execute("CREATE TEMP TABLE referenced (digest TEXT PRIMARY KEY) STRICT")
    for (body,) in connection.execute(
        "SELECT CAST(body AS BLOB) FROM entries WHERE instr(body, ?)", (MARK,)
    ):
        connection.executemany(
            "INSERT OR IGNORE INTO referenced VALUES (?)",
            [(digest,) for digest in references(body)],
        )
    connection.execute(
        "DELETE FROM payloads WHERE digest NOT IN (SELECT digest FROM referenced)"
    )


def _count_active(connection: sqlite3.Connection) -> int:
    (active,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE used IS NULL"
    ).fetchone()
    return int(active)


def _size(path: Path) -> int:
    """Return the size of a journal on the disk, with the log beside it."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
