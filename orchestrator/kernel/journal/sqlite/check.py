"""Checks of a journal file, which change nothing.

Each check stands alone: a damaged file fails some of them, and the others still report.
"""

import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from orchestrator.delegation import SessionId, UnreadableFactError
from orchestrator.delegation.events import Entry
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.checks import (
    EXAMPLES,
    Damage,
    Totals,
    check_audit,
    check_snapshots,
    compare_ends,
    compare_entry,
    compare_session,
    report,
    report_strings,
    report_totals,
)
from orchestrator.kernel.journal.checksums import row_checksum
from orchestrator.kernel.journal.journal import MISFITS, fold_entries
from orchestrator.kernel.journal.long_strings import digest, references
from orchestrator.kernel.journal.sqlite import lock
from orchestrator.kernel.journal.sqlite.audit import read_audit
from orchestrator.kernel.journal.sqlite.entries import COLUMNS, file_allowance, from_row
from orchestrator.kernel.journal.sqlite.reader import (
    SQLiteReader,
    open_file_read_only,
    refuse_lost_entries,
)
from orchestrator.kernel.journal.sqlite.schema import (
    describe_failure,
    missing_entries,
    require_known_facts,
    unlisted_entry,
    version_of,
)
from orchestrator.kernel.journal.sqlite.snapshots import stored_snapshots
from orchestrator.kernel.journal.sqlite.trust import reading_deadline, require_own_tables
from orchestrator.kernel.journal.store import Finding, Level
from orchestrator.kernel.journal.stored_entries import RESTORE, require_whole
from orchestrator.kernel.private_files import foreign_owner, irregularity

WRITABLE: Final = (b"\1\1", b"\2\2")
"""The formats in the header of a file that SQLite writes: without a log, and with one."""
LISTS: Final = {
    "sessions": "session, first, used",
    "summaries": "session, seq, body",
    "pruned": "entries, last, used",
    "pruned_sessions": "session",
}
"""The columns of the tables beside the entries that have checksums."""

Check: TypeAlias = Callable[[Path, sqlite3.Connection], Iterator[Finding]]


def check_journal(path: Path) -> Iterator[Finding]:
    """Yield the findings of all checks at one moment; raise `JournalError` without a file."""
    yield from _files(path)
    try:
        lock.require_one_name(path)
    except JournalError as exc:
        yield Finding(Level.WRONG, exc.problem)
        return
    with open_file_read_only(path) as connection, reading_deadline(path, connection):
        try:
            require_own_tables(path, connection)
            version = version_of(connection)
        except JournalError as exc:
            yield Finding(Level.WRONG, exc.problem)
            return
        except (sqlite3.Error, UnicodeDecodeError) as exc:
            yield Finding(Level.WRONG, f"it cannot be read: {describe_failure(exc)}")
            return
        if not version and not lock.last_writer_of(path).durable_seq:
            yield Finding(Level.NOTE, "it is empty: nothing was ever written")
            return
        yield Finding(Level.FINE, f"its tables are of version {version}")
        checks = (
            _integrity,
            _facts,
            _holes,
            _checksums,
            _lists,
            _payloads,
            _table,
            _sessions,
            _snapshots,
            _audit,
        )
        for check in checks:
            try:
                yield from check(path, connection)
            except JournalError as exc:
                yield Finding(Level.WRONG, exc.problem)
            except UnreadableFactError as exc:
                yield Finding(Level.WRONG, str(exc))
            except (sqlite3.Error, *MISFITS) as exc:
                what = check.__name__.strip("_")
                yield Finding(Level.WRONG, f"its {what} cannot be read: {describe_failure(exc)}")


def _files(path: Path) -> Iterator[Finding]:
    files = [
        path,
        path.with_name(f"{path.name}-wal"),
        path.with_name(f"{path.name}-shm"),
        lock.lock_path(path),
    ]
    there = {file.name: file.stat() for file in files if file.exists()}
    size = sum(there[file.name].st_size for file in files[:2] if file.name in there)
    yield Finding(Level.FINE, f"it takes {size / 1_000_000:,.1f} MB")
    strange = [
        f"{name}: {problem}"
        for name, found in there.items()
        if (problem := irregularity(found) or foreign_owner(found))
    ]
    for problem in strange:
        yield Finding(Level.WRONG, problem)
    loose = [
        f"{name} ({stat.filemode(found.st_mode)})"
        for name, found in there.items()
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    if loose:
        text = f"others than its owner may use {', '.join(loose)}: chmod 600"
        yield Finding(Level.WRONG, text)
    elif not strange:
        yield Finding(Level.FINE, "only its owner may read it")
    yield _writer(path)


def _writer(path: Path) -> Finding:
    try:
        writer = lock.writer_of(path)
    except JournalError as exc:
        return Finding(Level.WRONG, exc.problem)
    if writer is not None:
        return Finding(Level.FINE, f"process {writer or '(unknown)'} writes it now")
    if last := lock.last_writer_of(path).process:
        text = f"no process writes it now; process {last}, the last one, ended without closing it"
        return Finding(Level.NOTE, text)
    return Finding(Level.FINE, "no process writes it now")


def _integrity(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    with path.open("rb") as file:
        header = file.read(20)
    # Of another format SQLite reads a file without a word, and refuses to write it.
    if header[18:] not in WRITABLE:
        yield Finding(Level.WRONG, f"its header is damaged; {RESTORE}")
    problems = [
        line
        for (text,) in connection.execute(f"PRAGMA integrity_check({EXAMPLES})")
        for line in str(text).splitlines()
        if line != "ok" and not line.startswith("***")
    ]
    yield from report("SQLite finds", problems, "SQLite finds it whole")


def _facts(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    require_known_facts(path, connection)
    yield Finding(Level.FINE, "it holds no facts that are newer than this orchestrator")


def _holes(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    if lock.writer_of(path) is None:
        refuse_lost_entries(path, connection, lock.last_writer_of(path))
    (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    if unlisted := unlisted_entry(connection):
        text = f"entry {unlisted} is not listed as the last of its run"
        yield Finding(Level.WRONG, text)
    if missing := missing_entries(connection):
        yield Finding(Level.WRONG, f"{missing} of its entries are missing")
    else:
        yield Finding(Level.FINE, f"none of its {count:,} entries is missing")


def _checksums(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare every entry with its checksum, and look for the one before it."""
    sessions: dict[str, Damage] = {}
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM entries ORDER BY seq"  # noqa: S608
    )
    problem = ""
    try:
        for row in rows:
            compare_entry(row, sessions.setdefault(row[2], Damage()))
    except sqlite3.Error as exc:
        problem = f"not all entries can be read: {describe_failure(exc)}"
    last_entries = connection.execute(
        "SELECT session, seq FROM last_entries"
        # Those of marked sessions are deleted already.
        " UNION ALL SELECT session, NULL FROM pruned_sessions"
    )
    listed = dict(last_entries.fetchall())
    damaged = compare_ends(sessions, listed)
    for session, found in damaged.items():
        yield Finding(Level.WRONG, found.text(session))
    if problem:
        yield Finding(Level.WRONG, problem)
    elif not damaged:
        yield Finding(Level.FINE, "its entries are as they were written")


def _lists(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the rows of the other tables with their checksums."""
    problems = [
        f"a row of {table} does not match its checksum: {row[0]!r}; {RESTORE}"
        for table, names in LISTS.items()
        for *row, checksum in connection.execute(
            f"SELECT {names}, checksum FROM {table}"  # noqa: S608 (ours)
        )
        if row_checksum(*row) != checksum
    ]
    yield from report("of its lists,", problems, "its lists are as they were written")


def _payloads(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    referenced = {
        name
        for (body,) in connection.execute(
            "SELECT CAST(body AS BLOB) FROM entries WHERE instr(body, char(26))"
        )
        for name in references(body)
    }
    stored = dict[str, bool]()
    for name, string in connection.execute("SELECT digest, CAST(string AS BLOB) FROM payloads"):
        stored[name] = string is not None and digest(string) == name
    yield from report_strings(referenced, stored)


def _table(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the list of sessions with the sessions of the entries."""
    pruned = connection.execute("SELECT session FROM pruned_sessions").fetchall()
    if pruned:
        text = f"the next pruning deletes what is left of {len(pruned)} pruned runs"
        yield Finding(Level.NOTE, text)
    found = connection.execute(
        "SELECT DISTINCT session FROM entries WHERE session != ''"
        " AND session NOT IN (SELECT session FROM sessions)"
    ).fetchall()
    unlisted = [it for it in found if it not in pruned]
    problems = [f"run {session!r} is not listed" for (session,) in unlisted]
    misplaced = connection.execute(
        "SELECT session FROM sessions WHERE first IS NOT"
        " (SELECT min(seq) FROM entries WHERE entries.session = sessions.session)"
    )
    problems += [f"run {session!r} does not begin where the list says" for (session,) in misplaced]
    yield from report("in its list of runs,", problems, "its list of runs is complete")


def _sessions(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Fold each session, and compare the result with the list."""
    listed: dict[str, str | None] = dict(connection.execute("SELECT session, used FROM sessions"))
    totals = Totals()
    for session in SQLiteReader(path, connection).sessions():
        totals.runs += 1
        try:
            entries = _entries(path, connection, session, totals)
            if entries is None:
                continue
            record = fold_entries(entries, path).sessions[session]
        except JournalError as exc:
            totals.problems.append(f"run {session}: {exc.problem}")
        except sqlite3.Error as exc:
            totals.problems.append(f"run {session!r} cannot be read: {describe_failure(exc)}")
        except KeyError:
            totals.problems.append(f"run {session} was never opened")
        else:
            compare_session(record, listed, totals)
    yield from report_totals(totals)


def _audit(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Follow the chain of the audit from its beginning to its head."""
    yield check_audit(read_audit(connection))


def _snapshots(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    entries = SQLiteReader(path, connection).entries
    yield from check_snapshots(stored_snapshots(connection), entries, path)


def _entries(
    path: Path, connection: sqlite3.Connection, session: SessionId, totals: Totals
) -> list[Entry] | None:
    """Return the entries of a session, or None if some cannot be read."""
    entries: list[Entry] = []
    allowance = file_allowance(connection)
    count = len(totals.problems)
    for row in SQLiteReader(path, connection).rows(session):
        try:
            require_whole(row)
        except UnreadableFactError:
            return None  # which the comparison with the checksums reports
        try:
            entries.append(from_row(connection, row, allowance))
        except UnreadableFactError as exc:
            totals.problems.append(str(exc))
    return entries if len(totals.problems) == count else None
