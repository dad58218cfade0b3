"""What the journal says of runs: of this process, of others, of yesterday.

Only the runs that are asked for are read, however many there are.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from delegation import Ledger, SessionId, SessionRecord
from delegation.events import Entry, JournalOpened
from orchestrator.cli.errors import CommandError
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.sqlite.entries import (
    count_sessions,
    list_sessions,
    open_journal_read_only,
    read_sessions,
    sessions_with_task,
)
from orchestrator.journal.sqlite.lock import writer_of

SECONDS: Final = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
ReadT = TypeVar("ReadT")


@attrs.frozen
class Runs:
    """Some of the runs of a journal, oldest first, and how many there are."""

    shown: Sequence[SessionRecord]
    count: int


def read_runs(journal: Path, *, newest: int | None = None) -> Runs:
    """Return the newest runs of a journal that another process may be writing."""

    def read(connection: sqlite3.Connection) -> tuple[list[Entry], int]:
        chosen = list_sessions(connection, newest=newest)
        return read_sessions(connection, chosen), count_sessions(connection)

    (entries, count), is_written = _read(journal, read)
    ledger = fold_run(entries, journal, has_writer=is_written)
    return Runs(list(ledger.sessions.values()), count)


def read_run(journal: Path, prefix: str | None) -> SessionRecord:
    """Return the run whose id begins like this, or the newest one."""
    entries, is_written = _read(
        journal,
        lambda connection: read_sessions(
            connection, [_find(connection, prefix, journal)]
        ),
    )
    ledger = fold_run(entries, journal, has_writer=is_written)
    (session,) = ledger.sessions.values()
    return session


def read_entries(journal: Path, prefix: str | None) -> tuple[SessionId, list[Entry]]:
    """Return the id of the run that begins like this, or of the newest one, and its entries."""
    session, entries, _ = read_facts(journal, prefix)
    return session, entries


def read_facts(
    journal: Path, prefix: str | None
) -> tuple[SessionId, list[Entry], bool]:
    """Return the same, and whether somebody writes the journal: else nothing of it runs."""

    def read(connection: sqlite3.Connection) -> tuple[SessionId, list[Entry]]:
        session = _find(connection, prefix, journal)
        return session, read_sessions(connection, [session])

    (session, entries), is_written = _read(journal, read)
    return session, entries, is_written


def run_of_task(journal: Path, task: str) -> SessionId | None:
    """Return the run in which a task is whose id begins like this, if there is one."""

    def find(connection: sqlite3.Connection) -> list[SessionId]:
        runs = list_sessions(connection, prefix=task)
        return runs or sessions_with_task(connection, task)

    found, _ = _read(journal, find)
    return found[-1] if found else None


def parse_age(age: str) -> int:
    """Return the seconds of an age such as 12h, 30d or 2w."""
    found = re.fullmatch(r"([0-9]{1,6})([hdw])", age.strip())
    if found is None:
        raise CommandError(
            f"--prune is {age!r}; say how old: 12h, 30d or 2w (hours, days, weeks)"
        )
    return int(found[1]) * SECONDS[found[2]]


def require_journal(journal: Path) -> None:
    if not journal.exists():
        raise CommandError(f"there are no runs yet: there is no journal {journal}")


def _find(
    connection: sqlite3.Connection, prefix: str | None, journal: Path
) -> SessionId:
    if prefix is None:
        newest = list_sessions(connection, newest=1)
        if not newest:
            raise CommandError(f"there are no runs in {journal}")
        return newest[0]
    found = list_sessions(connection, prefix=prefix)
    if not found:
        raise CommandError(f"there is no run {prefix!r}; see: orchestrator runs")
    if prefix in found:
        return SessionId(prefix)
    if len(found) > 1:
        raise CommandError(f"{len(found)} runs begin with {prefix!r}; say more of it")
    return found[0]


def _read(
    journal: Path, read: Callable[[sqlite3.Connection], ReadT]
) -> tuple[ReadT, bool]:
    """Read something, and tell whether the journal was being written at that very time."""
    require_journal(journal)
    while True:
        writer = writer_of(journal)
        with open_journal_read_only(journal) as connection:
            result = read(connection)
        # Whoever came or went in between may have changed what runs.
        if writer_of(journal) == writer:
            return result, writer is not None


def fold_run(entries: Sequence[Entry], journal: Path, *, has_writer: bool) -> Ledger:
    ledger = fold_entries(entries, journal)
    if entries and not has_writer:
        # Whoever wrote it is gone, so nothing that the journal leaves running runs.
        taken_over = JournalOpened("read only")
        ledger.fold(
            Entry(ledger.last_seq + 1, entries[-1].at, SessionId(""), taken_over)
        )
    return ledger
