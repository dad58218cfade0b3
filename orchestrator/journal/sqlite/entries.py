"""Entries as rows of a SQLite file, and how they are found there.

Only what is asked for is read: a journal may hold a million facts of runs at rest.
"""

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from delegation import Encoded, SessionId, UnreadableFactError, decode
from delegation.events import Entry
from orchestrator.errors import JournalError
from orchestrator.journal.journal import JournalContents
from orchestrator.journal.sqlite.long_strings import (
    extract_long_strings,
    restore_long_strings,
)
from orchestrator.journal.sqlite.schema import (
    has_table,
    last_seq,
    require_complete,
    require_journal_file,
    require_known_facts,
    require_known_schema,
    translate_errors,
    version_of,
)

IdleChanges: TypeAlias = Mapping[SessionId, str | None]
Row: TypeAlias = tuple[int, float, str, str, int, str]

COLUMNS: Final = "seq, at, session, kind, version, body"
# Those of no session say that whatever ran runs no more: after the last fact of a session, one of
# them is as good as all.
SELECT_ONE_SESSION: Final = f"""
SELECT {COLUMNS} FROM entries WHERE session = ?1
UNION ALL
SELECT {COLUMNS} FROM entries WHERE session = '' AND seq BETWEEN
    (SELECT min(seq) FROM entries WHERE session = ?1) AND
    coalesce(
        (SELECT min(seq) FROM entries WHERE session = '' AND seq >
            (SELECT max(seq) FROM entries WHERE session = ?1)),
        (SELECT max(seq) FROM entries WHERE session = ?1)
    )
ORDER BY seq
"""  # noqa: S608 (the names of columns are ours)
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
    """Write entries, the long strings in them, and who is at rest by them."""
    rows: list[Row] = []
    payloads: dict[str, str] = {}
    rest: dict[SessionId, tuple[int, str | None]] = {}
    for entry, fact, changed in batch:
        body = extract_long_strings(fact.body.decode(), payloads)
        rows.append((entry.seq, entry.at, entry.session, fact.kind, fact.version, body))
        for session, used in changed.items():
            first, _ = rest.get(session, (entry.seq, None))
            rest[session] = (first, used)
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
    if payloads:
        connection.executemany(
            "INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads.items()
        )
    connection.executemany(
        "INSERT INTO sessions VALUES (?, ?, ?)"
        " ON CONFLICT (session) DO UPDATE SET used = excluded.used",
        [(session, *state) for session, state in rest.items()],
    )


@contextmanager
def open_journal_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Look at a journal that somebody else may be writing, as it is in one moment.

    Raises:
        JournalError: there is none, it is not ours, or something of it is missing or unknown.
    """
    with open_file_read_only(path) as connection, translate_errors(path):
        require_journal_file(path, connection)
        require_known_schema(path, connection)
        if not version_of(connection):
            raise JournalError(path, "it is empty: nothing was ever written")
        require_known_facts(path, connection)
        require_complete(path, connection)
        yield connection


@contextmanager
def open_file_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Look at a file, whatever it is, without ever creating or changing it."""
    if not path.exists():
        raise JournalError(path, "there is no such file")
    # Percent and question marks mean something in the address, so it is built by pathlib.
    address = f"{path.absolute().as_uri()}?mode=ro"
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists() and not os.access(path.parent, os.W_OK):
        # Readers and writers meet in files beside it: where there can be none, nobody writes.
        address += "&immutable=1"
    with translate_errors(path):
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
    with closing(connection):
        with translate_errors(path):
            connection.execute("BEGIN")
        yield connection


def read_contents(connection: sqlite3.Connection) -> JournalContents:
    """Return what has to be known to go on: all of those awake, and of the others how much
    they have used.
    """
    sessions = connection.execute("SELECT session, used FROM sessions ORDER BY first")
    pruned = connection.execute("SELECT used FROM pruned")
    return JournalContents(
        sessions=dict(sessions.fetchall()),
        pruned=[used for (used,) in pruned],
        entries=list(_decoded(connection, connection.execute(SELECT_ACTIVE_SESSIONS))),
        last_seq=last_seq(connection),
    )


def read_all(connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM entries ORDER BY seq")  # noqa: S608
    return list(_decoded(connection, rows))


def read_sessions(
    connection: sqlite3.Connection, sessions: Sequence[SessionId]
) -> list[Entry]:
    """Return the entries of these sessions, and those of no session among them."""
    found: dict[int, Entry] = {}
    for session in sessions:
        for entry in _decoded(
            connection, connection.execute(SELECT_ONE_SESSION, (session,))
        ):
            found[entry.seq] = entry
    return [found[seq] for seq in sorted(found)]


def read_after(
    connection: sqlite3.Connection, session: SessionId, seq: int
) -> list[Entry]:
    """Return the entries of one session and of none that come after one of this number."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM entries"  # noqa: S608
        " WHERE seq > ?2 AND session IN (?1, '') ORDER BY seq",
        (session, seq),
    )
    return list(_decoded(connection, rows))


def read_naming(
    connection: sqlite3.Connection, session: SessionId, id_: str
) -> list[Entry]:
    """Return the entries of one session in which an id stands: few of many are decoded."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM entries"  # noqa: S608
        " WHERE session = ? AND instr(body, ?) ORDER BY seq",
        (session, f'"{id_}"'),
    )
    return list(_decoded(connection, rows))


def read_kind_naming(
    connection: sqlite3.Connection, kind: str, id_: str
) -> list[Entry]:
    """Return the entries of one kind in which an id stands, whosesoever they are."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM entries"  # noqa: S608
        " WHERE kind = ? AND instr(body, ?) ORDER BY seq",
        (kind, f'"{id_}"'),
    )
    return list(_decoded(connection, rows))


def sessions_with_task(connection: sqlite3.Connection, prefix: str) -> list[SessionId]:
    """Return the sessions in which a task was asked for whose id begins like this."""
    rows = connection.execute(
        "SELECT DISTINCT session FROM entries"
        " WHERE kind = 'TaskRequested' AND instr(body, ?) ORDER BY seq",
        (f'"id":"{prefix}',),
    )
    return [SessionId(session) for (session,) in rows]


def rows_of(connection: sqlite3.Connection, session: SessionId) -> list[Row]:
    """Return the entries of one session, and those of no session among them, as they are
    stored.
    """
    return connection.execute(SELECT_ONE_SESSION, (session,)).fetchall()


def list_sessions(
    connection: sqlite3.Connection, *, prefix: str = "", newest: int | None = None
) -> list[SessionId]:
    """Return the sessions whose id begins like this, oldest first.

    Args:
        connection: the journal.
        prefix: how they begin.
        newest: how many at most; None is all.
    """
    if has_table(connection, "sessions"):
        found = "SELECT session, first FROM sessions"
    else:
        found = (
            "SELECT session, min(seq) AS first FROM entries WHERE session != ''"
            " GROUP BY session"
        )
    rows = connection.execute(
        f"SELECT session FROM ({found})"  # noqa: S608 (one of the two above)
        " WHERE substr(session, 1, ?1) = ?2 ORDER BY first DESC LIMIT ?3",
        (len(prefix), prefix, -1 if newest is None else newest),
    )
    return [SessionId(session) for (session,) in rows][::-1]


def count_sessions(connection: sqlite3.Connection) -> int:
    table = (
        "sessions"
        if version_of(connection) >= 2
        else "(SELECT DISTINCT session FROM entries WHERE session != '')"
    )
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
    return int(count)


def from_row(connection: sqlite3.Connection, row: Row) -> Entry:
    """Return an entry as it was written down."""
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


def _decoded(connection: sqlite3.Connection, rows: Iterable[Row]) -> Iterator[Entry]:
    return (from_row(connection, row) for row in rows)
