"""Queries that commands ask of a journal which this or another process may be writing.

Only the runs that a command shows are read, however many there are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from delegation import Ledger, SessionId, SessionRecord
from delegation.events import Entry, JournalOpened
from orchestrator.cli.errors import CommandError
from orchestrator.errors import JournalError
from orchestrator.journal.backends import store_at
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.reader import JournalReader

SECONDS: Final = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
ReadT = TypeVar("ReadT")


@attrs.frozen
class Runs:
    """Some of the runs of a journal, oldest first, and how many there are."""

    shown: Sequence[SessionRecord]
    count: int
    damaged: Mapping[SessionId, JournalError]
    """Those of them that cannot be read."""


def read_runs(journal: Path, *, newest: int | None = None) -> Runs:
    """Return the newest runs of a journal, or all."""
    damaged: dict[SessionId, JournalError] = {}

    def read(reader: JournalReader) -> tuple[list[Entry], int]:
        found: dict[int, Entry] = {}
        damaged.clear()
        for session in reader.sessions(newest=newest):
            try:
                found |= {entry.seq: entry for entry in reader.entries(session)}
            except JournalError as exc:
                damaged[session] = exc
        return [found[seq] for seq in sorted(found)], reader.count()

    (entries, count), writer = read_journal(journal, read)
    ledger = fold_run(entries, journal, has_writer=writer is not None)
    return Runs(list(ledger.sessions.values()), count, damaged)


def require_deletable(journal: Path, run: SessionId) -> None:
    """Refuse to delete a run that is not idle; one that is damaged may be deleted."""

    def read(reader: JournalReader) -> Sequence[Entry] | None:
        if run not in reader.sessions(prefix=run):
            raise CommandError(f"there is no run {run!r}; see: orchestrator runs")
        try:
            return reader.entries(run)
        except JournalError:
            return None

    entries, writer = read_journal(journal, read)
    if entries is None:
        return
    ledger = fold_run(entries, journal, has_writer=writer is not None)
    if not ledger.sessions[run].is_idle:
        raise CommandError(f"run {run!r} is not idle, and stays")


def read_entries(
    journal: Path, prefix: str | None
) -> tuple[SessionId, Sequence[Entry]]:
    """Return the run whose id begins with a prefix, or the newest one: its id and entries."""
    session, entries, _ = read_facts(journal, prefix)
    return session, entries


def read_facts(
    journal: Path, prefix: str | None
) -> tuple[SessionId, Sequence[Entry], bool]:
    """Return the same, and whether the journal has a writer; without one, nothing runs."""
    (session, entries), writer = read_journal(
        journal, lambda reader: read_run(reader, prefix, journal)
    )
    return session, entries, writer is not None


def read_run(
    reader: JournalReader, prefix: str | None, journal: Path
) -> tuple[SessionId, Sequence[Entry]]:
    """Return the id and the entries of a run, with a reader that is open."""
    session = _find(reader, prefix, journal)
    return session, reader.entries(session)


def run_of_task(journal: Path, task: str) -> SessionId | None:
    """Return the newest run that has a task whose id begins like this, if there is one."""

    def find(reader: JournalReader) -> Sequence[SessionId]:
        return reader.sessions(prefix=task) or reader.sessions_with_task(task)

    found, _ = read_journal(journal, find)
    return found[-1] if found else None


def read_journal(
    journal: Path, read: Callable[[JournalReader], ReadT]
) -> tuple[ReadT, int | None]:
    """Read something, and return it with the process that wrote the journal at that moment."""
    require_journal(journal)
    store = store_at(journal)
    while True:
        writer = store.writer()
        with store.open_reader() as reader:
            result = read(reader)
        # A writer that came or left in between may have changed what runs.
        if store.writer() == writer:
            return result, writer


def parse_age(age: str, option: str = "--prune") -> int:
    """Return the seconds of an age such as 12h, 30d or 2w."""
    found = re.fullmatch(r"([0-9]{1,6})([hdw])", age.strip())
    if found is None:
        raise CommandError(
            f"{option} is {age!r}; say how old: 12h, 30d or 2w (hours, days, weeks)"
        )
    return int(found[1]) * SECONDS[found[2]]


def require_journal(journal: Path) -> None:
    if not store_at(journal).exists():
        raise CommandError(f"there are no runs yet: there is no journal {journal}")


def _find(reader: JournalReader, prefix: str | None, journal: Path) -> SessionId:
    if prefix is None:
        newest = reader.sessions(newest=1)
        if not newest:
            raise CommandError(f"there are no runs in {journal}")
        return newest[0]
    found = reader.sessions(prefix=prefix)
    if not found:
        raise CommandError(f"there is no run {prefix!r}; see: orchestrator runs")
    if prefix in found:
        return SessionId(prefix)
    if len(found) > 1:
        raise CommandError(f"{len(found)} runs begin with {prefix!r}; say more of it")
    return found[0]


def fold_run(entries: Sequence[Entry], journal: Path, *, has_writer: bool) -> Ledger:
    """Return the ledger after the entries of some runs."""
    ledger = fold_entries(entries, journal)
    if entries and not has_writer:
        # Its writer is gone, so nothing runs that the journal leaves running.
        interrupted = JournalOpened("read only")
        ledger.fold(
            Entry(ledger.last_seq + 1, entries[-1].at, SessionId(""), interrupted)
        )
    return ledger
