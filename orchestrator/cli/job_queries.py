"""The queries of the commands about jobs: the jobs of one journal, or of all in a folder."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import Parameter

from orchestrator.backends import journals_at
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_journal, title_of
from orchestrator.cli.options import journals_of
from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobRecord
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.files import state_folder
from orchestrator.ports.journals import JournalReader, Journals, JournalStore, fold_entries
from orchestrator.products.schedule.job import full_name
from orchestrator.products.schedule.scheduler import find_job

FILE: Final = "schedule.db"

ScheduleJournalOption = Annotated[
    str | None,
    Parameter(
        help=f"The file that records jobs and their runs. By default {FILE} in the user's"
        " state directory, or in ORCHESTRATOR_HOME."
    ),
]
JobsJournalOption = Annotated[
    str | None,
    Parameter(
        help="The journal of the process that starts the jobs: a file, or a folder. By default"
        f" {FILE} and all journals in the user's state directory, or in ORCHESTRATOR_HOME."
    ),
]


@attrs.frozen
class FoundJob:
    """A job, and the journal that has it."""

    record: JobRecord
    store: JournalStore
    title: str
    """The name of the journal for people."""

    def status_of(self, run: SessionId) -> str:
        """Return the status of a run of the job."""

        def read(reader: JournalReader) -> str:
            entries = reader.entries(run)
            if not entries:
                return "pruned"
            session = fold_entries(entries, self.title).sessions[run]
            status = session.tree[session.root.id].status
            return f"{status}, not delivered" if session.undelivered else status

        found, _ = read_journal(self.store, read)
        return found


def schedule_journal(option: str | None) -> Path:
    """Return the file of `--journal`, or the user's own."""
    path = state_folder(os.environ) / FILE if option is None else Path(option)
    # A folder that is not there yet is known by its last character, as for other commands.
    if path.is_dir() or str(option).startswith("postgres") or str(option).endswith("/"):
        raise CommandError(f"--journal is {option}: jobs are recorded in one file, such as {FILE}")
    return path


def read_jobs(option: str | None) -> list[FoundJob]:
    """Return the jobs of `--journal`, ordered by the start of their sessions."""
    found: list[FoundJob] = []
    places = list(_places(option))
    for journals, name in places:
        title = title_of(journals, name)
        store = journals.store(name)
        jobs, _ = read_journal(store, partial(_jobs, title))
        found += [FoundJob(job, store, title) for job in jobs]
    if not places:
        where = f"there is no journal {option}" if option else "no process began any"
        raise CommandError(
            f"there are no jobs yet: {where}; begin with: orchestrator schedule FILE"
        )
    return found


def _places(option: str | None) -> Iterator[tuple[Journals, str]]:
    """Yield the journals that may have jobs."""
    journals = journals_of(option)
    yield from ((journals, name) for name in journals.names())
    if option is None and (file := state_folder(os.environ) / FILE).exists():
        own = journals_at(file, host="")
        yield from ((own, name) for name in own.names())


def _jobs(title: str, reader: JournalReader) -> list[JobRecord]:
    found: list[JobRecord] = []
    for session in reader.active_sessions():
        ledger = fold_entries(reader.entries(session), title)
        found += ledger.sessions[session].jobs.values()
    return found


def find(jobs: Sequence[FoundJob], name: str) -> FoundJob:
    """Return the job with a name."""
    same = [it for it in jobs if full_name(it.record) == name]
    if len(same) > 1:
        places = ", ".join(it.title for it in same)
        raise CommandError(f"job {name!r} is in {places}: say which with --journal")
    try:
        record = find_job([it.record for it in jobs], name)
    except UnknownIdError as exc:
        raise CommandError(f"{exc}; see: orchestrator jobs list") from exc
    return next(it for it in jobs if it.record is record)
