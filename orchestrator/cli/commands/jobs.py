"""`orchestrator jobs`: see, run, pause, resume and remove what begins by the clock."""

import time
from pathlib import Path
from typing import Any

import trio
from cyclopts import App
from rich.table import Table
from rich.text import Text

from delegation import SessionId, one_line
from delegation.events import JobOccurred
from delegation.events.jobs import JobRecord
from delegation.schedule import moment_text, next_text
from orchestrator.cli.errors import CommandError
from orchestrator.cli.job_queries import (
    JobsJournalOption,
    find,
    jobs_journal,
    read_jobs,
)
from orchestrator.cli.journal_queries import read_journal
from orchestrator.cli.terminal.console import Terminal
from orchestrator.control.client import connect_control
from orchestrator.control.server import ControlJob
from orchestrator.journal.backends import journals_at
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.reader import JournalReader
from orchestrator.journal.store import JournalStore
from orchestrator.runtime import open_orchestrator
from orchestrator.schedule import JobAction, Scheduler
from orchestrator.schedule.job import full_name

jobs = App(
    name="jobs",
    help="See, run, pause, resume and remove the jobs of `orchestrator schedule`.",
)


@jobs.command(name="list")
def list_jobs(*, journal: JobsJournalOption = None) -> None:
    """List the jobs: when each begins next, and how its last run ended."""
    path = jobs_journal(journal)
    found = read_jobs(path)
    table = _table("job", "schedule", "next", "last run", "agent", "goal")
    store = journals_at(path, host="").store("")
    now = time.time()
    for job in found:
        last = "" if not job.runs else _status(store, path, job.runs[-1])
        cells = (
            full_name(job),
            job.spec.schedule,
            next_text(job, now),
            last,
            job.spec.agent,
            one_line(job.spec.goal),
        )
        table.add_row(*map(Text, cells))
    _print(table)


@jobs.command
def history(job: str, /, *, journal: JobsJournalOption = None) -> None:
    """Show what became of the times of a job: its runs, and why none began.

    Args:
        job: The name of the job.
    """
    path = jobs_journal(journal)
    record = find(read_jobs(path), job)
    store = journals_at(path, host="").store("")
    entries, _ = read_journal(store, lambda reader: reader.entries(record.session))
    table = _table("due", "run", "outcome", "missed before")
    for entry in entries:
        fact = entry.event
        if isinstance(fact, JobOccurred) and fact.job == record.spec.id:
            table.add_row(*map(Text, _occurrence(store, path, record, fact)))
    _print(table)


@jobs.command
def run(job: str, /, *, journal: JobsJournalOption = None) -> None:
    """Begin a run of a job now. Its next time stays as it is.

    Args:
        job: The name of the job.
    """
    print(_act(job, "run", journal)["run"])


@jobs.command
def pause(job: str, /, *, journal: JobsJournalOption = None) -> None:
    """Begin no runs of a job until it is resumed; what runs goes on.

    Args:
        job: The name of the job.
    """
    _act(job, "pause", journal)


@jobs.command
def resume(job: str, /, *, journal: JobsJournalOption = None) -> None:
    """Begin the runs of a job again. What was due meanwhile is not caught up.

    Args:
        job: The name of the job.
    """
    _act(job, "resume", journal)


@jobs.command
def remove(job: str, /, *, journal: JobsJournalOption = None) -> None:
    """Remove a job that an agent has set; one of a file is removed there.

    Args:
        job: The name of the job.
    """
    record = find(read_jobs(jobs_journal(journal)), job)
    if full_name(record) == record.spec.id:
        raise CommandError(
            f"job {job!r} is of a file, and would come back: remove it there, or pause it"
        )
    _act(job, "remove", journal)


def _act(job: str, action: JobAction, journal: str | None) -> dict[str, Any]:
    path = jobs_journal(journal)
    # A name that is not there is said before anything is opened.
    find(read_jobs(path), job)

    async def act() -> dict[str, Any]:
        async with connect_control(path) as writer:
            if writer is not None:
                return await writer.request(ControlJob(job, action))
        if action == "run":
            raise CommandError(
                f"no process begins the jobs of {path}; start it with: orchestrator schedule FILE"
            )
        async with open_orchestrator(path) as orchestrator:
            scheduler = Scheduler(orchestrator.services, {})
            scheduler.act(job, action)
            await orchestrator.services.book.wait_durable()
        return {}

    return trio.run(act)


def _occurrence(
    store: JournalStore, path: Path, job: JobRecord, fact: JobOccurred
) -> tuple[str, ...]:
    due = moment_text(fact.at, job.spec.zone)
    if fact.skipped:
        return due, "", f"skipped: {fact.skipped}", str(fact.missed or "")
    by_hand = " (by hand)" if fact.by_hand else ""
    outcome = _status(store, path, fact.run)
    return f"{due}{by_hand}", fact.run, outcome, str(fact.missed or "")


def _status(store: JournalStore, path: Path, run: SessionId) -> str:
    def read(reader: JournalReader) -> str:
        entries = reader.entries(run)
        if not entries:
            return "pruned"
        session = fold_entries(entries, path).sessions[run]
        status: str = session.tree[session.root.id]["status"]
        return f"{status}, not delivered" if session.undelivered else status

    found, _ = read_journal(store, read)
    return found


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    return table


def _print(table: Table) -> None:
    console = Terminal()
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)
