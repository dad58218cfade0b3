"""`orchestrator jobs`: list, run, change, pause, resume and remove the jobs of a journal."""

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import trio
from cyclopts import App, Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.job_queries import FoundJob, JobsJournalOption, find, read_jobs
from orchestrator.cli.journal_queries import read_journal
from orchestrator.cli.terminal.console import Terminal, print_table
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import one_line
from orchestrator.delegation.events import JobOccurred
from orchestrator.delegation.schedule import moment_text, next_text
from orchestrator.ports.control import ControlJob, EditJob, connect_control
from orchestrator.products.schedule import JobAction, JobEdit, Scheduler
from orchestrator.products.schedule.job import full_name, is_declared

JobArgument = Annotated[str, Parameter(help="The name of the job.")]

jobs = App(
    name="jobs", help="List, run, change, pause, resume and remove the jobs that the clock starts."
)


@jobs.command(name="list")
def list_jobs(*, journal: JobsJournalOption = None) -> None:
    """List the jobs, each with its next start and the outcome of its last run."""
    headings = ("job", "schedule", "next", "last run", "agent", "goal")
    now = time.time()
    print_table(Terminal(), headings, [_cells(it, now) for it in read_jobs(journal)])


def _cells(found: FoundJob, now: float) -> Sequence[str]:
    job, spec = found.record, found.record.spec
    last = found.status_of(job.runs[-1]) if job.runs else ""
    times = (spec.schedule, next_text(job, now), last)
    return (full_name(job), *times, spec.agent, one_line(spec.goal))


@jobs.command
def history(job: JobArgument, /, *, journal: JobsJournalOption = None) -> None:
    """Show the start times of a job: the run of each, or why no run started."""
    found = find(read_jobs(journal), job)
    record = found.record
    entries, _ = read_journal(found.store, lambda it: it.entries(record.session))
    facts = [it.event for it in entries if isinstance(it.event, JobOccurred)]
    rows = [_occurrence(found, it) for it in facts if it.job == record.spec.id]
    print_table(Terminal(), ("due", "run", "outcome", "missed before"), rows)


@jobs.command
def run(job: JobArgument, /, *, journal: JobsJournalOption = None) -> None:
    """Start a run of a job now. Its next start time does not change."""
    print(_act(job, "run", journal)["run"])


@jobs.command
def pause(job: JobArgument, /, *, journal: JobsJournalOption = None) -> None:
    """Start no runs of a job until it is resumed; running ones go on."""
    _act(job, "pause", journal)


@jobs.command
def resume(job: JobArgument, /, *, journal: JobsJournalOption = None) -> None:
    """Start the runs of a job again. Runs that it missed are not caught up."""
    _act(job, "resume", journal)


@jobs.command
def edit(
    job: JobArgument,
    /,
    *,
    schedule: str | None = None,
    goal: str | None = None,
    zone: str | None = None,
    deliver: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    catch_up: str | None = None,
    journal: JobsJournalOption = None,
) -> None:
    """Change a job. Its times count from now on; a running one goes on unchanged.

    At the next start, a job of a file is read from the file again: change it there, too.

    Args:
        schedule: The times: 0 8 * * MON, every 2h, in 30m, 2026-12-24T18:00.
        goal: The goal of its agent.
        zone: The time zone of the schedule, such as Europe/Berlin.
        deliver: The target of its answers, instead of all earlier targets; repeat it for several.
        catch_up: How late a run may start, such as 2h.
    """
    change = JobEdit(
        schedule=schedule, goal=goal, zone=zone, deliver=deliver or None, catch_up=catch_up
    )
    if change == JobEdit():
        raise CommandError(
            "say what to change: --schedule, --goal, --zone, --deliver or --catch-up"
        )
    found = _find(job, journal)
    _request(found, change)
    if is_declared(found.record):
        hint = "the next start does what its file says: change it there, too"
        print(f"job {job} is changed; {hint}", file=sys.stderr)


@jobs.command
def remove(job: JobArgument, /, *, journal: JobsJournalOption = None) -> None:
    """Remove a job that an agent has set; remove a job of a file from the file."""
    found = _find(job, journal)
    if is_declared(found.record):
        raise CommandError(
            f"job {job!r} is of a file, and would come back: remove it there, or pause it"
        )
    _request(found, "remove")


def _find(job: str, journal: str | None) -> FoundJob:
    return find(read_jobs(journal), job)


def _act(job: str, action: JobAction, journal: str | None) -> dict[str, Any]:
    # A name that is not there is said before anything is opened.
    return _request(_find(job, journal), action)


def _request(found: FoundJob, change: JobAction | JobEdit) -> dict[str, Any]:
    """Change a job in the process that starts it; or here, if there is no such process."""
    path, name = found.store.file, full_name(found.record)
    if path is None:
        raise CommandError(f"{found.title} is a database: its servers do that, at /v1/jobs/{name}")

    async def request() -> dict[str, Any]:
        async with connect_control(path) as writer:
            if writer is not None:
                asked = (
                    EditJob(name, change)
                    if isinstance(change, JobEdit)
                    else ControlJob(name, change)
                )
                return await writer.request(asked)
        if change == "run":
            raise CommandError(
                f"no process begins the jobs of {path}; start one with: orchestrator schedule FILE,"
                " or serve, or gateway"
            )
        async with open_orchestrator(path) as orchestrator:
            scheduler = Scheduler(orchestrator.sessions, {}, knows_targets=False)
            if isinstance(change, JobEdit):
                scheduler.edit(name, change)
            else:
                scheduler.act(name, change)
            await orchestrator.facts.wait_durable()
        return {}

    return trio.run(request)


def _occurrence(found: FoundJob, fact: JobOccurred) -> tuple[str, ...]:
    due = moment_text(fact.at, found.record.spec.zone)
    if fact.skipped:
        return due, "", f"skipped: {fact.skipped}", str(fact.missed or "")
    by_hand = " (by hand)" if fact.by_hand else ""
    outcome = found.status_of(fact.run)
    return f"{due}{by_hand}", fact.run, outcome, str(fact.missed or "")
