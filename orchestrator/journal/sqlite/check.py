"""Checks of a journal file, which change nothing.

Each check stands alone: a damaged file fails some of them, and the others still report.
"""

import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from delegation import (
    SessionId,
    SessionRecord,
    UnreadableFactError,
    decode_used_amounts,
    encode_shared_use,
)
from delegation.events import Entry
from delegation.snapshot import (
    Snapshot,
    SnapshotCapture,
    is_own_layout,
    is_same_state,
    restore_snapshot,
)
from orchestrator.errors import JournalError
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.sqlite.checksums import row_checksum
from orchestrator.journal.sqlite.entries import (
    RESTORE,
    WHAT_TO_DO,
    Row,
    columns,
    from_row,
    require_whole,
)
from orchestrator.journal.sqlite.lock import (
    last_writer_of,
    lock_path,
    require_one_name,
    writer_of,
)
from orchestrator.journal.sqlite.long_strings import digest, references
from orchestrator.journal.sqlite.reader import (
    SQLiteReader,
    open_file_read_only,
    refuse_lost_entries,
)
from orchestrator.journal.sqlite.schema import (
    FACTS_VERSION,
    VERSION,
    describe_failure,
    has_checksums,
    has_table,
    missing_entries,
    require_journal_file,
    require_known_facts,
    require_known_schema,
    unlisted_entry,
    version_of,
)
from orchestrator.journal.sqlite.snapshots import is_whole, stored_snapshots
from orchestrator.journal.store import Finding, Level

WRITABLE: Final = (b"\1\1", b"\2\2")
"""The formats in the header of a file that SQLite writes: without a log, and with one."""
EXAMPLES: Final = 3
"""How many problems of one kind are listed one by one."""


LISTS: Final = {
    "sessions": "session, first, used",
    "pruned": "entries, last, used",
    "pruned_sessions": "session",
}
"""The columns of the tables beside the entries that have checksums."""

Check: TypeAlias = Callable[[Path, sqlite3.Connection], Iterator[Finding]]


def check_journal(path: Path) -> Iterator[Finding]:
    """Yield the findings of all checks, as the journal is at one moment.

    Raises:
        JournalError: there is no such file.
    """
    yield from _files(path)
    try:
        require_one_name(path)
    except JournalError as exc:
        yield Finding(Level.WRONG, exc.problem)
        return
    with open_file_read_only(path) as connection:
        try:
            require_journal_file(path, connection)
            require_known_schema(path, connection)
            version = version_of(connection)
        except JournalError as exc:
            yield Finding(Level.WRONG, exc.problem)
            return
        except (sqlite3.Error, UnicodeDecodeError) as exc:
            yield Finding(Level.WRONG, f"it cannot be read: {describe_failure(exc)}")
            return
        if not version and not last_writer_of(path).durable_seq:
            yield Finding(Level.NOTE, "it is empty: nothing was ever written")
            return
        yield _about_version(version)
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
        )
        for check in checks:
            try:
                yield from check(path, connection)
            except JournalError as exc:
                yield Finding(Level.WRONG, exc.problem)
            except UnreadableFactError as exc:
                yield Finding(Level.WRONG, str(exc))
            except (sqlite3.Error, ValueError) as exc:
                what = check.__name__.strip("_")
                yield Finding(
                    Level.WRONG, f"its {what} cannot be read: {describe_failure(exc)}"
                )


def _files(path: Path) -> Iterator[Finding]:
    files = [
        path,
        path.with_name(f"{path.name}-wal"),
        path.with_name(f"{path.name}-shm"),
        lock_path(path),
    ]
    there = {file.name: file.stat() for file in files if file.exists()}
    size = sum(there[file.name].st_size for file in files[:2] if file.name in there)
    yield Finding(Level.FINE, f"it takes {size / 1_000_000:,.1f} MB")
    loose = [
        f"{name} ({stat.filemode(found.st_mode)})"
        for name, found in there.items()
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    if loose:
        text = f"others than its owner may use {', '.join(loose)}: chmod 600"
        yield Finding(Level.WRONG, text)
    else:
        yield Finding(Level.FINE, "only its owner may read it")
    yield _writer(path)


def _writer(path: Path) -> Finding:
    try:
        writer = writer_of(path)
    except JournalError as exc:
        return Finding(Level.WRONG, exc.problem)
    if writer is not None:
        return Finding(Level.FINE, f"process {writer or '(unknown)'} writes it now")
    if last := last_writer_of(path).process:
        text = f"no process writes it now; process {last}, the last one, ended without closing it"
        return Finding(Level.NOTE, text)
    return Finding(Level.FINE, "no process writes it now")


def _about_version(version: int) -> Finding:
    if version < VERSION:
        text = f"its tables are of version {version}; opening it makes them {VERSION}"
        return Finding(Level.NOTE, text)
    return Finding(Level.FINE, f"its tables are of version {version}")


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
    yield from _report("SQLite finds", problems, "SQLite finds it whole")


def _facts(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    require_known_facts(path, connection)
    yield Finding(Level.FINE, "it holds no facts that are newer than this orchestrator")
    older = connection.execute(
        "SELECT version, count(*) FROM entries WHERE version < ? GROUP BY version",
        (FACTS_VERSION,),
    )
    for version, count in older:
        text = f"{count:,} of its facts are of version {version}, which can be read"
        yield Finding(Level.FINE, text)


def _holes(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    if writer_of(path) is None:
        refuse_lost_entries(path, connection, last_writer_of(path))
    (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    if unlisted := unlisted_entry(connection):
        text = f"entry {unlisted} is not listed as the last of its run"
        yield Finding(Level.WRONG, text)
    if missing := missing_entries(connection):
        yield Finding(Level.WRONG, f"{missing} of its entries are missing")
    else:
        yield Finding(Level.FINE, f"none of its {count:,} entries is missing")


@attrs.define
class _Damage:
    """The entries of one session, or of none, that are damaged or missing."""

    entries: list[int] = attrs.Factory(list[int])
    last: int = 0
    """The last entry that was seen."""
    is_checked: bool = False
    """That one has a checksum: so have all later ones."""

    def text(self, session: str) -> str:
        shown = ", ".join(map(str, self.entries[:EXAMPLES]))
        if (more := len(self.entries) - EXAMPLES) > 0:
            shown += f" and {more} more"
        if not session:
            return f"entries of no run are damaged or missing: {shown}; {RESTORE}"
        return f"run {session!r}: entries are damaged or missing: {shown}; {WHAT_TO_DO}"


def _checksums(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare every entry with its checksum, and look for the one before it."""
    if not has_checksums(connection):
        yield Finding(Level.NOTE, "its entries have no checksums")
        return
    sessions: dict[str, _Damage] = {}
    unchecked = 0
    rows = connection.execute(
        f"SELECT {columns(connection)} FROM entries ORDER BY seq"  # noqa: S608
    )
    problem = ""
    try:
        for row in rows:
            unchecked += _compare_entry(row, sessions.setdefault(row[2], _Damage()))
    except sqlite3.Error as exc:
        problem = f"not all entries can be read: {describe_failure(exc)}"
    for session, last in connection.execute("SELECT session, seq FROM last_entries"):
        damage = sessions.setdefault(session, _Damage())
        if damage.last != last:
            damage.entries.append(last)
    damaged = {it: found for it, found in sessions.items() if found.entries}
    for session, found in damaged.items():
        yield Finding(Level.WRONG, found.text(session))
    if problem:
        yield Finding(Level.WRONG, problem)
    elif not damaged:
        yield Finding(Level.FINE, "its entries are as they were written")
    if unchecked:
        text = f"{unchecked:,} of its entries are from before there were checksums"
        yield Finding(Level.FINE, text)


def _compare_entry(row: Row, damage: _Damage) -> bool:
    """Note an entry, and return whether it is from before there were checksums."""
    seq, previous = row[0], row[6]
    try:
        require_whole(row)
    except UnreadableFactError:
        damage.entries.append(seq)
    else:
        if previous is None and damage.is_checked:
            damage.entries.append(seq)
        elif previous is not None and previous != damage.last:
            damage.entries.append(previous)
        damage.is_checked |= previous is not None
    damage.last = seq
    return previous is None


def _lists(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the rows of the other tables with their checksums."""
    if not has_table(connection, "last_entries"):
        return
    problems = [
        f"one of {table} is not what was written: {row[0]!r}; {RESTORE}"
        for table, names in LISTS.items()
        for *row, checksum in connection.execute(
            f"SELECT {names}, checksum FROM {table}"  # noqa: S608 (ours)
        )
        if row_checksum(*row) != checksum
    ]
    yield from _report("of its lists,", problems, "its lists are as they were written")


def _payloads(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    if not has_table(connection, "payloads"):
        return
    referenced = {
        name
        for (body,) in connection.execute(
            "SELECT CAST(body AS BLOB) FROM entries WHERE instr(body, char(26))"
        )
        for name in references(body)
    }
    stored = dict[str, bool]()
    for name, string in connection.execute(
        "SELECT digest, CAST(string AS BLOB) FROM payloads"
    ):
        stored[name] = string is not None and digest(string) == name
    problems = [
        f"string {name} is missing" for name in sorted(referenced - stored.keys())
    ]
    problems += [
        f"string {name} is not what was written"
        for name, is_whole in stored.items()
        if not is_whole
    ]
    fine = f"all of its {len(stored):,} long strings are there"
    yield from _report("of its long strings,", problems, fine)
    if spare := len(stored.keys() - referenced):
        yield Finding(Level.NOTE, f"{spare} of its long strings are used by no fact")


def _table(_: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the list of sessions with the sessions of the entries."""
    if not has_table(connection, "sessions"):
        return
    pruned: list[tuple[str]] = []
    if has_table(connection, "pruned_sessions"):
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
    problems += [
        f"run {session!r} does not begin where the list says"
        for (session,) in misplaced
    ]
    yield from _report("in its list of runs,", problems, "its list of runs is complete")


@attrs.define
class _Totals:
    """The sum of all sessions."""

    runs: int = 0
    active: int = 0
    undelivered: int = 0
    listed_active: int = 0
    """Idle sessions that are listed as active: they cost time, and nothing else."""
    problems: list[str] = attrs.Factory(list[str])


def _sessions(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Fold each session, and compare the result with the list."""
    listed: dict[str, str | None] | None = None
    if has_table(connection, "sessions"):
        listed = dict(connection.execute("SELECT session, used FROM sessions"))
    totals = _Totals()
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
            totals.problems.append(
                f"run {session!r} cannot be read: {describe_failure(exc)}"
            )
        except KeyError:
            totals.problems.append(f"run {session} was never opened")
        else:
            _compare(record, listed, totals)
    fine = f"all of its {totals.runs:,} runs can be rebuilt from their entries"
    yield from _report("of its runs,", totals.problems, fine)
    if totals.listed_active:
        text = f"{totals.listed_active} idle runs are listed as active; opening it corrects that"
        yield Finding(Level.NOTE, text)
    text = f"{totals.active} of its runs are not idle; {totals.undelivered} replies are not taken"
    yield Finding(Level.FINE, text)


def _snapshots(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Fold the entries of each snapshot again, and compare."""
    problems: list[str] = []
    count = others = 0
    for snapshot, checksum in stored_snapshots(connection):
        count += 1
        if not is_whole(snapshot, checksum):
            problems.append(f"that of run {snapshot.session} is not what was written")
        elif not is_own_layout(snapshot):
            others += 1
        elif not _is_fold_of_entries(path, connection, snapshot):
            problems.append(
                f"that of run {snapshot.session} is not what its entries come to"
            )
    fine = f"all of its {count - others:,} snapshots are what their entries come to"
    yield from _report("of its snapshots,", problems, fine)
    if others:
        text = (
            f"{others} of its snapshots were made by another version, and are not used"
        )
        yield Finding(Level.NOTE, text)


def _is_fold_of_entries(
    path: Path, connection: sqlite3.Connection, snapshot: Snapshot
) -> bool:
    try:
        rules = restore_snapshot(snapshot).rules
        entries = SQLiteReader(path, connection).entries(snapshot.session)
        folded = [entry for entry in entries if entry.seq <= snapshot.seq]
        ledger = fold_entries(folded, path, rules)
    except (UnreadableFactError, JournalError):
        return False
    ledger.last_seq = snapshot.seq
    session = ledger.sessions.get(snapshot.session)
    if session is None:
        return False
    return is_same_state(snapshot, SnapshotCapture(ledger, session).encode())


def _entries(
    path: Path, connection: sqlite3.Connection, session: SessionId, totals: _Totals
) -> list[Entry] | None:
    """Return the entries of a session, or None if some cannot be read."""
    entries: list[Entry] = []
    count = len(totals.problems)
    for row in SQLiteReader(path, connection).rows(session):
        try:
            require_whole(row)
        except UnreadableFactError:
            return None  # which the comparison with the checksums reports
        try:
            entries.append(from_row(connection, row))
        except UnreadableFactError as exc:
            totals.problems.append(str(exc))
    return entries if len(totals.problems) == count else None


def _compare(
    record: SessionRecord, listed: dict[str, str | None] | None, totals: _Totals
) -> None:
    totals.active += not record.is_idle
    totals.undelivered += len(record.undelivered)
    if listed is None:
        return
    used = listed.get(record.id)
    if used is None:
        totals.listed_active += record.is_idle
    elif not record.is_idle:
        totals.problems.append(f"run {record.id} is listed as idle, and is not")
    elif decode_used_amounts(used) != decode_used_amounts(encode_shared_use(record)):
        totals.problems.append(
            f"run {record.id} has not used what the list says of the budgets it shares"
        )


def _report(what: str, problems: list[str], fine: str) -> Iterator[Finding]:
    if not problems:
        yield Finding(Level.FINE, fine)
    for problem in problems[:EXAMPLES]:
        yield Finding(Level.WRONG, f"{what} {problem}")
    if (more := len(problems) - EXAMPLES) > 0:
        yield Finding(Level.WRONG, f"{what} {more} more are wrong")
