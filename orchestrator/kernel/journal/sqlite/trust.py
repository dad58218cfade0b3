"""Makes a stranger's file safe to query.

SQL inside a file (views, triggers, defaults, checks, generated columns, indexes on expressions)
runs when a table is read or written. So its schema must be exactly ours before any query. The rest
is data, and may be endless data: a page that is its own descendant. A deadline ends that.
"""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread  # noqa: TID251 (it watches the thread that reads)
from typing import Final

from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.sqlite import schema
from orchestrator.kernel.journal.stored_entries import RESTORE

READ_SECONDS: Final = 60
"""How long a small file may take to be read."""
BYTES_A_SECOND: Final = 1_000_000
"""How fast a large one is read at least, and its facts folded."""
RETRY_SECONDS: Final = 0.1


def distrust(connection: sqlite3.Connection) -> None:
    """Let a connection run no SQL of the file that reaches beyond it, and believe no page."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def require_own_tables(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file that is no journal, a newer one, or one that SQL was added to."""
    schema.require_journal_file(path, connection)
    schema.require_known_schema(path, connection)
    require_own_schema(path, connection)


def require_own_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Raise `JournalError` unless a file has just our tables, indexes, views and triggers."""
    expected = _own_schema() if schema.version_of(connection) else {}
    found = dict(_objects(connection))
    strange = [name for name, sql in found.items() if expected.get(name) != sql]
    if strange:
        raise JournalError(
            path,
            f"it has {', '.join(map(_named, strange[:3]))}, which no orchestrator has made;"
            f" {RESTORE}",
        )
    if missing := expected.keys() - found:
        raise JournalError(path, f"it lacks {', '.join(map(_named, sorted(missing)))}; {RESTORE}")


@cache
def _own_schema() -> dict[tuple[str, str], str]:
    """Return the kind and name of each part of our schema, and its SQL."""
    connection = sqlite3.connect(":memory:")
    try:
        schema.create_tables(connection)
        return dict(_objects(connection))
    finally:
        connection.close()


def _objects(connection: sqlite3.Connection) -> Iterator[tuple[tuple[str, str], str]]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    for kind, name, table, sql in rows.fetchall():
        if str(name).startswith("sqlite_stat") and kind == "table":
            continue  # of ANALYZE: only SQLite makes tables of such names
        yield (str(kind), str(name)), f"{table}: {' '.join(str(sql).split())}"


def _named(name: tuple[str, str]) -> str:
    return f"the {name[0]} {name[1]!r}"


@contextmanager
def reading_deadline(
    path: Path, connection: sqlite3.Connection, seconds: float | None = None
) -> Generator[None]:
    """Interrupt queries that take longer than `seconds`, or than any file of this size can take."""
    if seconds is None:
        seconds = READ_SECONDS + path.stat().st_size / BYTES_A_SECOND
    is_read = Event()

    def watch() -> None:
        is_read.wait(seconds)
        # Again and again: one that interrupts between two queries interrupts none.
        while not is_read.wait(RETRY_SECONDS):
            connection.interrupt()

    watching = Thread(target=watch, name="journal deadline", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_read.set()
        watching.join()
