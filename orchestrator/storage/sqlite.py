"""A journal in one SQLite file, which only its owner may read."""

import fcntl
import os
import sqlite3
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final, TextIO, TypeAlias

import trio

from agents import raising_one_error
from delegation import Encoded, SessionId, UnreadableFactError, decode
from delegation.events import Entry
from orchestrator.errors import JournalError, JournalInUseError
from orchestrator.storage.group_commit import GroupCommit
from orchestrator.storage.journal import Kept

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    seq     INTEGER PRIMARY KEY,
    at      REAL    NOT NULL,
    session TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    body    TEXT    NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS entries_of_a_session ON entries (session, seq);
CREATE TABLE IF NOT EXISTS sessions (
    session TEXT    PRIMARY KEY,
    first   INTEGER NOT NULL,
    used    TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS pruned (entries INTEGER NOT NULL) STRICT;
"""
# What is not at rest has used NULL. A journal of the first version knows nothing of rest: all of it
# is taken for awake, and whatever is not goes to rest when it is opened.
AWAKEN: Final = """
INSERT OR IGNORE INTO sessions
SELECT session, min(seq), NULL FROM entries WHERE session != '' GROUP BY session
"""
Row: TypeAlias = tuple[int, float, str, str, int, str]

# Marks a file as ours: another application's database is not to be written into.
APPLICATION_ID: Final = 0x44_45_4C_47
FLUSH_SECONDS: Final = 10
"""How long closing may take to write what is left."""


class SQLiteJournal:
    """An open journal. `open_sqlite_journal` makes it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self.group = GroupCommit(self._commit)
        self.wait_durable = self.group.wait_durable

    def append(
        self, entry: Entry, encoded: Encoded, rest: Mapping[SessionId, str | None]
    ) -> None:
        self.group.append(entry.seq, (_as_row(entry, encoded), rest))

    async def read(self) -> Kept:
        return await trio.to_thread.run_sync(_read_kept, self._path, self._connection)

    async def read_session(self, session: SessionId) -> Sequence[Entry]:
        # On a connection of its own: the other one may be in the middle of a commit.
        return await trio.to_thread.run_sync(_read_session, self._path, session)

    def _commit(
        self, batch: Sequence[tuple[Row, Mapping[SessionId, str | None]]]
    ) -> None:
        rest: dict[SessionId, tuple[int, str | None]] = {}
        for row, changed in batch:
            for session, used in changed.items():
                first, _ = rest.get(session, (row[0], None))
                rest[session] = (first, used)
        with _explained(self._path), self._connection:
            self._connection.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
                [row for row, _ in batch],
            )
            self._connection.executemany(
                "INSERT INTO sessions VALUES (?, ?, ?)"
                " ON CONFLICT (session) DO UPDATE SET used = excluded.used",
                [(session, *state) for session, state in rest.items()],
            )


@asynccontextmanager
async def open_sqlite_journal(path: Path) -> AsyncGenerator[SQLiteJournal]:
    """Open a journal for writing, and create it where there is none.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened, or is no journal.
    """
    with _lock(path):
        connection = await trio.to_thread.run_sync(_connect, path)
        with closing(connection), raising_one_error():
            journal = SQLiteJournal(path, connection)
            group = journal.group
            async with trio.open_nursery() as nursery:
                # Whoever is cancelled from outside still has to write how it ended.
                writing = trio.CancelScope(shield=True)
                nursery.start_soon(group.commit_forever, writing)
                try:
                    yield journal
                finally:
                    with trio.move_on_after(FLUSH_SECONDS, shield=True):
                        await group.wait_all_durable()
                    group.fail(JournalError(path, "it is closed"))
                    writing.cancel(reason="the journal is closed")


async def read_sqlite_journal(path: Path) -> Sequence[Entry]:
    """Return the entries of a journal that somebody else may be writing."""
    return await trio.to_thread.run_sync(_read_only, path)


def writer_of(path: Path) -> int | None:
    """Return the process that writes a journal now, if any does."""
    try:
        pid = int(_lock_path(path).read_text())
    except (FileNotFoundError, ValueError):
        return None  # never written, or closed in good order
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # somebody else's, but there
    return pid


def _lock_path(path: Path) -> Path:
    path = path.absolute()
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _lock(path: Path) -> Generator[None]:
    """Be the one that writes. The system lets go of the lock when the process dies."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise JournalInUseError(
                path,
                f"process {file.read() or '(unknown)'} is writing it; wait for that one,"
                " or use another journal",
            ) from exc
        _write_over(file, str(os.getpid()))
        try:
            yield
        finally:
            _write_over(file, "")


def _write_over(file: TextIO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _connect(path: Path) -> sqlite3.Connection:
    with _explained(path), ExitStack() as undo:
        # Created here, and not by SQLite, so that nobody else can read it from the start.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, check_same_thread=False)
        undo.callback(connection.close)
        _require_ours(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        is_old = not connection.execute(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'sessions'"
        ).fetchone()[0]
        connection.executescript(SCHEMA)
        if is_old:
            with connection:
                connection.execute(AWAKEN)
        undo.pop_all()
        return connection


def _require_ours(path: Path, connection: sqlite3.Connection) -> None:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and owner != APPLICATION_ID:
        raise JournalError(path, "it is a database of another application")


def _read_only(path: Path) -> Sequence[Entry]:
    if not path.exists():
        raise JournalError(path, "there is no such file")
    with _explained(path):
        # Percent and question marks mean something in the address, so it is built by pathlib.
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    with closing(connection):
        with _explained(path):
            _require_ours(path, connection)
            _require_whole(path, connection)
        return _read(path, connection)


def _require_whole(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a journal of which something is gone that nobody has pruned."""
    count, last = connection.execute(
        "SELECT count(*), max(seq) FROM entries"
    ).fetchone()
    pruned = 0
    if connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'pruned'"
    ).fetchone()[0]:
        (pruned,) = connection.execute(
            "SELECT coalesce(sum(entries), 0) FROM pruned"
        ).fetchone()
    if missing := (last or 0) - count - pruned:
        raise JournalError(path, f"{missing} of its entries are missing")


def _read_kept(path: Path, connection: sqlite3.Connection) -> Kept:
    with _explained(path):
        _require_whole(path, connection)
        sessions = connection.execute(
            "SELECT session, used FROM sessions ORDER BY first"
        ).fetchall()
        rows = connection.execute(
            "SELECT seq, at, session, kind, version, body FROM entries WHERE session = ''"
            " OR session IN (SELECT session FROM sessions WHERE used IS NULL) ORDER BY seq"
        )
        entries = [_from_row(row) for row in rows]
        (last,) = connection.execute("SELECT max(seq) FROM entries").fetchone()
        return Kept(entries=entries, last_seq=last or 0, sessions=dict(sessions))


def _read_session(path: Path, session: SessionId) -> Sequence[Entry]:
    with _explained(path), closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT seq, at, session, kind, version, body FROM entries"
            " WHERE session IN ('', ?1)"
            " AND seq >= (SELECT first FROM sessions WHERE session = ?1) ORDER BY seq",
            (session,),
        )
        return [_from_row(row) for row in rows]


def _read(path: Path, connection: sqlite3.Connection) -> Sequence[Entry]:
    with _explained(path):
        rows = connection.execute(
            "SELECT seq, at, session, kind, version, body FROM entries ORDER BY seq"
        )
        return [_from_row(row) for row in rows]


def _as_row(entry: Entry, fact: Encoded) -> Row:
    body = fact.body.decode()
    return entry.seq, entry.at, entry.session, fact.kind, fact.version, body


def _from_row(row: Row) -> Entry:
    seq, at, session, kind, version, body = row
    try:
        event = decode(Encoded(kind, version, body.encode()))
    except UnreadableFactError as exc:
        raise UnreadableFactError(f"entry {seq} is {exc}") from exc
    return Entry(seq, at, SessionId(session), event)


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """Translate what the disk and the database say."""
    try:
        yield
    except (sqlite3.Error, OSError, UnreadableFactError) as exc:
        raise JournalError(path, str(exc)) from exc
