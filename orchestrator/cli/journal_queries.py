"""Queries of commands about journals: only the runs that a command shows are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from orchestrator.cli.errors import CommandError
from orchestrator.delegation import Ledger, SessionId
from orchestrator.delegation.events import Entry, SessionOpened
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import (
    JournalReader,
    Journals,
    JournalStore,
    ListedSession,
    SessionList,
    SessionSummary,
    Writer,
    fold_run,
    summarize,
)

SECONDS: Final = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
ReadT = TypeVar("ReadT")


@attrs.frozen
class Runs:
    """Some of the runs of all journals, oldest first, and the number of all runs."""

    shown: Sequence[SessionSummary]
    count: int
    damaged: Mapping[SessionId, JournalError]
    """The runs that cannot be read."""
    unreadable: Sequence[JournalError]
    """The journals that cannot be read: there may be more runs in them."""


def read_runs(journals: Journals, *, newest: int | None = None) -> Runs:
    """Return the newest runs of all journals, or all."""
    require_journal(journals)
    listed = journals.sessions(newest=newest)
    wanted: dict[str, list[SessionId]] = {}
    for it in listed.sessions:
        wanted.setdefault(it.journal, []).append(it.id)
    summaries: dict[SessionId, SessionSummary] = {}
    damaged: dict[SessionId, JournalError] = {}
    unreadable = dict(listed.unreadable)
    for name, sessions in wanted.items():
        try:
            summaries |= _read_summaries(journals, name, sessions, damaged)
        except JournalError as exc:
            unreadable[name] = exc
    found = [summaries[it.id] for it in listed.sessions if it.id in summaries]
    shown = [it for it in found if it.kind is not SessionKind.JOB]
    return Runs(shown, listed.count - (len(found) - len(shown)), damaged, [*unreadable.values()])


def _read_summaries(
    journals: Journals,
    name: str,
    sessions: Sequence[SessionId],
    damaged: dict[SessionId, JournalError],
) -> Mapping[SessionId, SessionSummary]:
    """Return sessions of one journal; the errors of unreadable ones go into `damaged`."""
    store = journals.store(name)
    stored: dict[SessionId, SessionSummary] = {}

    def read(reader: JournalReader) -> list[Entry]:
        has_writer = store.writer() is not None
        # Numbers of entries mean something in one journal only.
        found: dict[int, Entry] = {}
        stored.clear()
        for session in sessions:
            damaged.pop(session, None)
            try:
                summary = reader.summary(session, has_writer=has_writer)
                if summary is not None:
                    stored[session] = summary
                else:
                    found |= {entry.seq: entry for entry in reader.entries(session)}
            except JournalError as exc:
                damaged[session] = exc
        return [found[seq] for seq in sorted(found)]

    entries, writer = read_journal(store, read)
    ledger = fold_run(entries, title_of(journals, name), has_writer=writer is not None)
    folded = {id_: summarize(record, ledger) for id_, record in ledger.sessions.items()}
    return folded | stored


@attrs.frozen(kw_only=True)
class FoundRun:
    """The state of a run in its journal at one moment."""

    id: SessionId
    kind: SessionKind
    journal: str
    """The name of its journal."""
    title: str
    """The name of the journal for people."""
    store: JournalStore
    entries: Sequence[Entry]
    writer: Writer | None
    """The process that writes that journal; without one, no task runs."""

    @property
    def agent(self) -> str:
        """The name of its agent."""
        return next(it.event.agent for it in self.entries if isinstance(it.event, SessionOpened))

    @property
    def has_writer(self) -> bool:
        return self.writer is not None

    def fold(self) -> Ledger:
        """Return the ledger after the entries of the run."""
        return fold_run(self.entries, self.title, has_writer=self.has_writer)


def read_run(journals: Journals, prefix: str | None) -> FoundRun:
    """Return the run whose id begins with a prefix, or the newest one."""
    require_journal(journals)
    if prefix is None:
        return _read_newest(journals)
    listed = _find(journals, prefix)
    return read_listed(journals, listed.journal, listed.id)


def _read_newest(journals: Journals) -> FoundRun:
    """Return the newest run, ignoring the sessions that jobs of programs keep."""
    for most in (1, None):
        newest = journals.sessions(newest=most)
        for it in reversed(newest.sessions):
            found = read_listed(journals, it.journal, it.id)
            if found.kind is not SessionKind.JOB:
                return found
        _raise_unreadable(newest)
    raise CommandError(f"there are no runs in {journals.address}")


def read_listed(journals: Journals, journal: str, run: SessionId) -> FoundRun:
    """Return a run whose journal is known."""
    store, title = journals.store(journal), title_of(journals, journal)
    entries, writer = read_journal(store, lambda reader: reader.entries(run))
    kind = _kind_of(run, entries, title)
    return FoundRun(
        id=run, kind=kind, journal=journal, title=title, store=store, entries=entries, writer=writer
    )


def _kind_of(session: SessionId, entries: Sequence[Entry], title: str) -> SessionKind:
    """Return the kind of a session, or raise if no fact opens it."""
    for entry in entries:
        if isinstance(entry.event, SessionOpened) and entry.event.session == session:
            return entry.event.kind
    raise JournalError(title, f"run {session!r} has entries, and was never opened")


def require_deletable(journals: Journals, journal: str, run: SessionId) -> None:
    """Refuse to delete a run that is not idle; a damaged run may be deleted."""
    try:
        found = read_listed(journals, journal, run)
    except JournalError:
        return
    if not found.fold().sessions[run].is_idle:
        raise CommandError(f"run {run!r} is not idle, and stays")


def run_of_task(journals: Journals, task: str) -> SessionId | None:
    """Return the newest run that has a task whose id starts with a prefix, if there is one."""
    require_journal(journals)
    found = journals.sessions(prefix=task)
    if not found.sessions:
        found = journals.sessions_with_task(task)
    if not found.sessions:
        _raise_unreadable(found)
    return found.sessions[-1].id if found.sessions else None


def read_journal(
    store: JournalStore, read: Callable[[JournalReader], ReadT]
) -> tuple[ReadT, Writer | None]:
    """Read a value, and return it with the process that wrote the journal at that moment."""
    while True:
        writer = store.writer()
        with store.open_reader() as reader:
            result = read(reader)
        # A writer that came or left in between may have changed the running tasks.
        if store.writer() == writer:
            return result, writer


def title_of(journals: Journals, name: str) -> str:
    """Return the name of a journal for people: its file, or its name in a database."""
    file = journals.store(name).file
    return f"{name} in {journals.address}" if file is None else str(file)


def parse_age(age: str, option: str = "--prune") -> int:
    """Return the seconds of an age such as 12h, 30d or 2w."""
    found = re.fullmatch(r"([0-9]{1,6})([hdw])", age.strip())
    if found is None:
        raise CommandError(f"{option} is {age!r}; say how old: 12h, 30d or 2w (hours, days, weeks)")
    return int(found[1]) * SECONDS[found[2]]


def require_journal(journals: Journals) -> None:
    if not journals.names():
        raise CommandError(f"there are no runs yet: there is no journal {journals.address}")


def _find(journals: Journals, prefix: str) -> ListedSession:
    found = journals.sessions(prefix=prefix)
    if not found.sessions:
        _raise_unreadable(found)
        raise CommandError(f"there is no run {prefix!r}; see: orchestrator runs")
    for it in found.sessions:
        if it.id == prefix:
            return it
    if len(found.sessions) > 1:
        raise CommandError(f"{len(found.sessions)} runs start with {prefix!r}; give more of the id")
    return found.sessions[0]


def _raise_unreadable(found: SessionList) -> None:
    """Raise the error of an unreadable journal, if any: a missing run may be in it."""
    for error in found.unreadable.values():
        raise error
