"""The tables of a journal in SQLite.

A file of an unknown version is refused, never guessed at.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.delegation import UnreadableFactError, encode
from orchestrator.delegation.events import JournalOpened
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.checksums import NO_HASH, row_checksum
from orchestrator.kernel.journal.stored_entries import RESTORE

# Marks a file as ours: another application's database is not to be written into.
APPLICATION_ID: Final = 0x44_45_4C_47
INCREMENTAL: Final = 2
"""The mode of SQLite that lets a file shrink in steps."""
VERSION: Final = 1
"""The version of the tables. Raise it with any change of them, or of the version of facts."""
FACTS_VERSION: Final = encode(JournalOpened("")).version
"""The version of the facts that this orchestrator writes and reads."""
NEWER: Final = "it was written by a newer orchestrator; use that one, or a new journal"
AS_STORED: Final = partial(str, encoding="utf-8", errors="surrogateescape")
"""Makes text also of bytes that the disk changed: their checksum reports the damage."""

TABLES: Final = (
    """
    CREATE TABLE entries (
        seq      INTEGER PRIMARY KEY,
        at       REAL    NOT NULL,
        session  TEXT    NOT NULL,
        kind     TEXT    NOT NULL,
        version  INTEGER NOT NULL,
        body     TEXT    NOT NULL,
        previous INTEGER NOT NULL,  -- the entry before it in its session; 0 of the first
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX entries_of_a_session ON entries (session, seq)",
    # It is empty, and costs nothing: opening a journal finds unknown facts at once.
    f"CREATE INDEX unknown_facts ON entries (version) WHERE version != {FACTS_VERSION}",
    # The last entry of each session, and of none (''): the entries before it are found missing by
    # the numbers that each has of the one before.
    """
    CREATE TABLE last_entries (
        session TEXT    PRIMARY KEY,
        seq     INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE payloads (digest TEXT PRIMARY KEY, string TEXT NOT NULL) STRICT",
    # What each idle session has used; NULL for an active one.
    """
    CREATE TABLE sessions (
        session  TEXT    PRIMARY KEY,
        first    INTEGER NOT NULL,
        used     TEXT,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # No number is used twice, and what was used of a shared budget stays used.
    """
    CREATE TABLE pruned (
        entries  INTEGER NOT NULL,
        last     INTEGER NOT NULL,
        used     TEXT    NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # The sessions whose entries are being deleted.
    """
    CREATE TABLE pruned_sessions (
        session  TEXT    PRIMARY KEY,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE snapshots (
        session  TEXT    PRIMARY KEY,
        seq      INTEGER NOT NULL,
        layout   TEXT    NOT NULL,
        state    BLOB    NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # Lists read it instead of the entries of a long session.
    """
    CREATE TABLE summaries (
        session  TEXT    PRIMARY KEY,
        seq      INTEGER NOT NULL,
        body     TEXT    NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # However a session is deleted, its snapshot and its summary go with it.
    """
    CREATE TRIGGER delete_snapshot AFTER DELETE ON sessions BEGIN
        DELETE FROM snapshots WHERE session = old.session;
        DELETE FROM summaries WHERE session = old.session;
    END
    """,
    """
    CREATE TABLE audit (
        seq     INTEGER PRIMARY KEY,
        at      REAL    NOT NULL,
        actor   TEXT    NOT NULL,
        owner   TEXT    NOT NULL,
        action  TEXT    NOT NULL,
        target  TEXT    NOT NULL,
        outcome TEXT    NOT NULL,
        peer    TEXT    NOT NULL,
        count   INTEGER NOT NULL,
        hash    TEXT    NOT NULL
    ) STRICT
    """,
    # Its one row says where the audit begins and ends.
    """
    CREATE TABLE audit_head (
        id          INTEGER PRIMARY KEY CHECK (id = 1),
        seq         INTEGER NOT NULL,
        hash        TEXT    NOT NULL,
        pruned_seq  INTEGER NOT NULL,
        pruned_hash TEXT    NOT NULL
    ) STRICT
    """,
)


def install_schema(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file, all or nothing."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if version_of(connection):
            return
        create_tables(connection)
        # The last row, and the last one that was pruned.
        connection.execute("INSERT INTO audit_head VALUES (1, ?, ?, ?, ?)", (0, NO_HASH) * 2)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def create_tables(connection: sqlite3.Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the tables of a file, or 0 for an empty one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def require_journal_file(path: Path, connection: sqlite3.Connection) -> None:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and owner != APPLICATION_ID:
        raise JournalError(
            path,
            "it is a database of another application;"
            " name another file with --journal, or move this one away",
        )


def require_known_schema(path: Path, connection: sqlite3.Connection) -> None:
    version = version_of(connection)
    if version in {0, VERSION}:
        return
    if version > VERSION:
        raise JournalError(path, f"its tables are of version {version}: {NEWER}")
    raise JournalError(path, f"its tables are of version {version}; {RESTORE}")


def require_known_facts(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a journal with facts of an unknown version, also in idle sessions."""
    unknown = connection.execute(
        # The same literal as in the index, or SQLite does not use the index.
        f"SELECT seq, kind, version FROM entries WHERE version != {FACTS_VERSION} LIMIT 1"  # noqa: S608
    ).fetchone()
    if unknown is not None:
        seq, kind, version = unknown
        raise JournalError(path, f"entry {seq} is {kind!r} in version {version}: {NEWER}")


def require_complete(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a journal with missing entries that were not pruned."""
    if missing := missing_entries(connection):
        raise JournalError(path, f"{missing} of its entries are missing")
    unlisted = unlisted_sessions(connection)
    if unlisted > 0:
        raise JournalError(path, f"{unlisted} of its runs are not listed")
    if unlisted < 0:
        raise JournalError(path, f"the last entries of {-unlisted} of its runs are not listed")
    if unlisted := unlisted_entry(connection):
        raise JournalError(path, f"entry {unlisted} is not listed as the last of its run")


def unlisted_sessions(connection: sqlite3.Connection) -> int:
    """Return how many sessions the list of them lacks; below 0: the list of last entries does."""
    # The rows themselves are counted, not those of an index.
    listed = _number(connection, "SELECT count(*) FROM sessions NOT INDEXED")
    query = "SELECT count(*) FROM last_entries WHERE session != ''"
    return _number(connection, query) - listed


def missing_entries(connection: sqlite3.Connection) -> int:
    count = _number(connection, "SELECT count(*) FROM entries")
    pruned = _number(connection, "SELECT sum(entries) FROM pruned")
    return last_seq(connection) - count - pruned


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last entry, also if that was pruned."""
    return max(
        _number(connection, "SELECT max(seq) FROM entries"),
        _number(connection, "SELECT max(last) FROM pruned"),
        _number(connection, "SELECT max(seq) FROM last_entries"),
    )


def _number(connection: sqlite3.Connection, query: str) -> int:
    """Return a number, also of damaged rows, which may have anything in its place."""
    (found,) = connection.execute(query).fetchone()
    if not isinstance(found, int | None):
        raise UnreadableFactError(f"a number in it is damaged: {found!r}")
    return found or 0


def unlisted_entry(connection: sqlite3.Connection) -> int:
    """Return the last entry of all if it is not listed as the last of its session; else 0."""
    if _number(connection, "SELECT count(*) FROM pruned_sessions"):
        return 0  # it may be one of those that are being deleted
    last = _number(connection, "SELECT max(seq) FROM entries")
    listed = _number(connection, "SELECT max(seq) FROM last_entries")
    return 0 if last == listed else last or listed


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Raise errors of the disk and the database as `JournalError`."""
    try:
        yield
    except sqlite3.IntegrityError as exc:
        raise JournalError(
            path, f"another process has written it, too ({exc}); stop that one"
        ) from exc
    except (sqlite3.Error, OSError, OverflowError, UnicodeError, UnreadableFactError) as exc:
        raise JournalError(path, describe_failure(exc)) from exc


def describe_failure(exc: Exception) -> str:
    """Return the problem of a file, and the remedy if it is damaged."""
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    # SQLite quotes the damage in its sentence, which then is no text.
    if code == sqlite3.SQLITE_INTERRUPT:
        return f"it is damaged: no file of its size takes so long to read; {RESTORE}"
    if code == sqlite3.SQLITE_CORRUPT or isinstance(exc, UnicodeError | OverflowError):
        return f"it is damaged ({exc}): `orchestrator doctor` says where; restore a copy of it"
    return str(exc)
