"""Helpers for tests of journal files."""

import sqlite3
from contextlib import closing
from pathlib import Path

from orchestrator.kernel.journal.checksums import entry_checksum, row_checksum

DAY = 24 * 3600


def change(path: Path, *statements: str) -> None:
    """Change a journal behind its back: its checksums tell."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def rewrite(path: Path, *statements: str) -> None:
    """Change a journal as if it had been written so: its checksums are right."""
    change(path, *statements)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("row_checksum", -1, row_checksum)
        last: dict[str, int] = {}
        rows = connection.execute(
            "SELECT seq, at, session, kind, version, CAST(body AS BLOB) FROM entries ORDER BY seq"
        )
        for seq, at, session, kind, version, body in rows.fetchall():
            previous = last.get(session, 0)
            last[session] = seq
            connection.execute(
                "UPDATE entries SET previous = ?, checksum = ? WHERE seq = ?",
                (previous, entry_checksum(seq, at, session, kind, version, body, previous), seq),
            )
        connection.execute("DELETE FROM last_entries")
        connection.executemany("INSERT INTO last_entries VALUES (?, ?)", last.items())
        connection.execute("UPDATE sessions SET checksum = row_checksum(session, first, used)")
        connection.execute("UPDATE pruned SET checksum = row_checksum(entries, last, used)")
