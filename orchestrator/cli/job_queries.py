"""What the commands about jobs read of their journal."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from delegation import SessionId
from delegation.events.jobs import JobRecord
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_journal
from orchestrator.errors import UnknownIdError
from orchestrator.journal.backends import journals_at
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.reader import JournalReader
from orchestrator.runtime import default_folder
from orchestrator.schedule.scheduler import find_job

FILE: Final = "schedule.db"

JobsJournalOption = Annotated[
    str | None,
    Parameter(
        help=f"The file in which jobs and their runs are recorded. By default {FILE} in the user's"
        " state directory, or in ORCHESTRATOR_HOME."
    ),
]


def jobs_journal(option: str | None) -> Path:
    """Return the file of `--journal`, or the user's own."""
    path = default_folder(os.environ) / FILE if option is None else Path(option)
    # A folder that is not there yet is known by its last character, as for other commands.
    if path.is_dir() or str(option).startswith("postgres") or str(option).endswith("/"):
        raise CommandError(
            f"--journal is {option}: jobs are recorded in one file, such as {FILE}"
        )
    return path


def read_jobs(path: Path) -> list[JobRecord]:
    """Return the jobs of a journal, in the order in which their sessions began."""
    if not path.exists():
        raise CommandError(
            f"there are no jobs yet: there is no journal {path}; begin with: orchestrator schedule"
            " FILE"
        )
    store = journals_at(path, host="").store("")
    found, _ = read_journal(store, lambda reader: list(_jobs(reader, path)))
    return found


def _jobs(reader: JournalReader, path: Path) -> Iterator[JobRecord]:
    for session in reader.active_sessions():
        yield from _records(reader, session, path)


def _records(
    reader: JournalReader, session: SessionId, path: Path
) -> Iterator[JobRecord]:
    ledger = fold_entries(reader.entries(session), path)
    yield from ledger.sessions[session].jobs.values()


def find(jobs: list[JobRecord], name: str) -> JobRecord:
    """Return the job of a name."""
    try:
        return find_job(jobs, name)
    except UnknownIdError as exc:
        raise CommandError(f"{exc}; see: orchestrator jobs list") from exc
