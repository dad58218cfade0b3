"""The tables of a journal in SQLite, and the migration of files of earlier versions.

A file of a later version is refused, never guessed at.
"""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.delegation import UnreadableFactError, encode
from orchestrator.delegation.events import JournalOpened
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.audit import AuditHead
from orchestrator.kernel.journal.checksums import row_checksum
from orchestrator.kernel.journal.stored_entries import RESTORE

# Marks a file as ours: another application's database is not to be written into.
APPLICATION_ID: Final = 0x44_45_4C_47
FACTS_VERSION: Final = encode(JournalOpened("")).version
"""The version of the facts that this orchestrator writes."""
NEWER_FACTS: Final = "newer_than_"
"""The index of facts that are newer than a version, which its name ends with."""
NEWER: Final = "it was written by a newer orchestrator; use that one, or a new journal"
AS_STORED: Final = partial(str, encoding="utf-8", errors="surrogateescape")
"""Makes text of what the disk changed, too: its checksum says that it is damaged."""


def _create_entries(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE entries (
            seq     INTEGER PRIMARY KEY,
            at      REAL    NOT NULL,
            session TEXT    NOT NULL,
            kind    TEXT    NOT NULL,
            version INTEGER NOT NULL,
            body    TEXT    NOT NULL
        ) STRICT
        """
    )
    connection.execute("CREATE INDEX entries_of_a_session ON entries (session, seq)")


def _list_sessions(connection: sqlite3.Connection) -> None:
    """List the sessions with what each idle one has used; NULL for an active one.

    All are listed as active: opening the journal finds the idle ones.
    """
    connection.execute(
        """
        CREATE TABLE sessions (
            session TEXT    PRIMARY KEY,
            first   INTEGER NOT NULL,
            used    TEXT
        ) STRICT
        """
    )
    connection.execute(
        "INSERT INTO sessions SELECT session, min(seq), NULL FROM entries"
        " WHERE session != '' GROUP BY session"
    )
    connection.execute("CREATE TABLE pruned (entries INTEGER NOT NULL) STRICT")


def _store_long_strings_once(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE payloads (digest TEXT PRIMARY KEY, string TEXT NOT NULL) STRICT"
    )
    # No number is used twice, and what was used of a shared budget stays used.
    connection.execute("ALTER TABLE pruned ADD COLUMN last INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE pruned ADD COLUMN used TEXT NOT NULL DEFAULT '[]'")


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Add checksums, and let sessions be pruned in steps.

    The entries from before have no checksums, and stay as they are.
    The last entry of each session, and of none (''), is listed: the entries before it are found
    missing by the numbers that each has of the one before.
    """
    connection.execute("ALTER TABLE entries ADD COLUMN previous INTEGER")
    connection.execute("ALTER TABLE entries ADD COLUMN checksum INTEGER")
    connection.execute(
        """
        CREATE TABLE last_entries (
            session TEXT    PRIMARY KEY,
            seq     INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID
        """
    )
    connection.execute(
        "INSERT INTO last_entries SELECT session, max(seq) FROM entries GROUP BY session"
    )
    connection.execute("ALTER TABLE sessions ADD COLUMN checksum INTEGER")
    connection.execute("UPDATE sessions SET checksum = row_checksum(session, first, used)")
    connection.execute("ALTER TABLE pruned ADD COLUMN checksum INTEGER")
    connection.execute("UPDATE pruned SET checksum = row_checksum(entries, last, used)")
    # The sessions whose entries are being deleted.
    connection.execute(
        """
        CREATE TABLE pruned_sessions (
            session  TEXT    PRIMARY KEY,
            checksum INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID
        """
    )
    _create_snapshots(connection)


def _create_snapshots(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE snapshots (
            session  TEXT    PRIMARY KEY,
            seq      INTEGER NOT NULL,
            layout   TEXT    NOT NULL,
            state    BLOB    NOT NULL,
            checksum INTEGER NOT NULL
        ) STRICT
        """
    )
    # However a session is deleted, its snapshot goes with it.
    connection.execute(
        """
        CREATE TRIGGER delete_snapshot AFTER DELETE ON sessions BEGIN
            DELETE FROM snapshots WHERE session = old.session;
        END
        """
    )


def _create_audit(connection: sqlite3.Connection) -> None:
    """Create the audit, and the one row that says where it begins and ends."""
    connection.execute(
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
        """
    )
    connection.execute(
        """
        CREATE TABLE audit_head (
            id          INTEGER PRIMARY KEY CHECK (id = 1),
            seq         INTEGER NOT NULL,
            hash        TEXT    NOT NULL,
            pruned_seq  INTEGER NOT NULL,
            pruned_hash TEXT    NOT NULL
        ) STRICT
        """
    )
    none = AuditHead()
    connection.execute("INSERT INTO audit_head VALUES (1, ?, ?, ?, ?)", (none.seq, none.hash) * 2)


MIGRATIONS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (
    _create_entries,
    _list_sessions,
    _store_long_strings_once,
    _add_checksums,
    _create_audit,
)
"""The steps from each version to the next; a new file takes all of them."""
VERSION: Final = len(MIGRATIONS)


def migrate(path: Path, connection: sqlite3.Connection) -> None:
    """Migrate a file to this version, all or nothing."""
    require_known_schema(path, connection)
    create_functions(connection)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for migration in MIGRATIONS[version_of(connection) :]:
            migration(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _index_newer_facts(connection)


def create_functions(connection: sqlite3.Connection) -> None:
    """Create the functions that the statements of migrations and writers use."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)


def _index_newer_facts(connection: sqlite3.Connection) -> None:
    """Index the facts that are newer than ours, so that opening a journal finds them at once.

    The index is empty, and costs nothing, until a newer orchestrator writes one.
    """
    index = f"{NEWER_FACTS}{FACTS_VERSION}"
    others = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name GLOB ? AND name != ?", (f"{NEWER_FACTS}*", index)
    ).fetchall()
    for (other,) in others:
        connection.execute(f'DROP INDEX "{other}"')
    connection.execute(
        f"CREATE INDEX IF NOT EXISTS {index} ON entries (version) WHERE version > {FACTS_VERSION}"
    )


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of a file; that of an empty one is 0."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version:
        return int(version)
    # The first two versions did not set it.
    if has_table(connection, "sessions"):
        return 2
    return 1 if has_table(connection, "entries") else 0


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Return whether the entries of a file may have checksums, whatever its version says."""
    columns = connection.execute("SELECT name FROM pragma_table_info('entries')")
    return ("checksum",) in columns.fetchall()


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)
    )
    return bool(found.fetchone()[0])


def require_journal_file(path: Path, connection: sqlite3.Connection) -> None:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and owner != APPLICATION_ID:
        raise JournalError(
            path,
            "it is a database of another application, or of an orchestrator before 0.1;"
            " name another file with --journal, or move this one away",
        )


def require_known_schema(path: Path, connection: sqlite3.Connection) -> None:
    version = version_of(connection)
    if version > VERSION:
        raise JournalError(path, f"its tables are of version {version}: {NEWER}")


def require_known_facts(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a journal with facts of a newer version, also in idle sessions."""
    newer = connection.execute(
        # The same literal as in the index, or SQLite does not use the index.
        f"SELECT seq, kind, version FROM entries WHERE version > {FACTS_VERSION} LIMIT 1"  # noqa: S608
    ).fetchone()
    if newer is not None:
        seq, kind, version = newer
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
    if not has_table(connection, "last_entries"):
        return 0
    # The rows themselves are counted, not those of an index.
    listed = _number(connection, "SELECT count(*) FROM sessions NOT INDEXED")
    query = "SELECT count(*) FROM last_entries WHERE session != ''"
    return _number(connection, query) - listed


def missing_entries(connection: sqlite3.Connection) -> int:
    count = _number(connection, "SELECT count(*) FROM entries")
    pruned = 0
    if has_table(connection, "pruned"):
        pruned = _number(connection, "SELECT sum(entries) FROM pruned")
    return last_seq(connection) - count - pruned


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last entry, also if that was pruned."""
    last = [_number(connection, "SELECT max(seq) FROM entries")]
    if version_of(connection) >= 3:
        last.append(_number(connection, "SELECT max(last) FROM pruned"))
    if has_table(connection, "last_entries"):
        last.append(_number(connection, "SELECT max(seq) FROM last_entries"))
    return max(last)


def _number(connection: sqlite3.Connection, query: str) -> int:
    """Return a number, also of damaged rows, which may have anything in its place."""
    (found,) = connection.execute(query).fetchone()
    if not isinstance(found, int | None):
        raise UnreadableFactError(f"a number in it is damaged: {found!r}")
    return found or 0


def unlisted_entry(connection: sqlite3.Connection) -> int:
    """Return the last entry of all if it is not listed as the last of its session; else 0."""
    if not has_table(connection, "last_entries"):
        return 0
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
    """Return what is wrong with a file, and what to do if it is damaged."""
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    # SQLite quotes the damage in its sentence, which then is no text.
    if code == sqlite3.SQLITE_INTERRUPT:
        return f"it is damaged: no file of its size takes so long to read; {RESTORE}"
    if code == sqlite3.SQLITE_CORRUPT or isinstance(exc, UnicodeError | OverflowError):
        return f"it is damaged ({exc}): `orchestrator doctor` says where; restore a copy of it"
    return str(exc)
