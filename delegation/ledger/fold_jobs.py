"""The fold of jobs: set, paused, removed, and what became of their times."""

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import Entry, JobOccurred, JobPaused, JobRemoved, JobSet
from orchestrator.delegation.events.jobs import REMEMBERED_RUNS, JobRecord
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.transitions import require

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def job_set(ledger: "Ledger", event: JobSet, _: Entry) -> None:
    require(event.session in ledger.sessions, event, "there is no such session")
    session = ledger.sessions[event.session]
    require(not session.closed, event, "it was closed for good")
    earlier, at = session.jobs.get(event.job.id), event.at
    if earlier is None:
        job = JobRecord(event.job, session.id, set_at=at, since=at)
    else:
        job = replace(earlier, spec=event.job, set_at=at, since=at)
    session.jobs[event.job.id] = job
    refresh_scheduled(ledger, session)


def job_paused(ledger: "Ledger", event: JobPaused, _: Entry) -> None:
    session, job = _known_job(ledger, event)
    require(job.paused is not event.paused, event, "it is so already")
    session.jobs[event.job] = replace(job, paused=event.paused, since=event.at)


def job_removed(ledger: "Ledger", event: JobRemoved, _: Entry) -> None:
    session, _job = _known_job(ledger, event)
    del session.jobs[event.job]
    refresh_scheduled(ledger, session)


def job_occurred(ledger: "Ledger", event: JobOccurred, _: Entry) -> None:
    session, job = _known_job(ledger, event)
    is_later = event.by_hand or event.at > job.last_at
    require(is_later, event, f"{job.last_at} was the last time")
    if not event.skipped:
        job = replace(job, runs=(*job.runs, event.run)[-REMEMBERED_RUNS:])
    if not event.by_hand:
        job = replace(job, last_at=event.at)
    if job.spec.is_once and not event.by_hand:
        del session.jobs[event.job]
        refresh_scheduled(ledger, session)
    else:
        session.jobs[event.job] = job


def refresh_scheduled(ledger: "Ledger", session: SessionRecord) -> None:
    """Bring the index of sessions with jobs up to date."""
    if session.jobs:
        ledger.scheduled[session.id] = session
    else:
        ledger.scheduled.pop(session.id, None)


def _known_job(
    ledger: "Ledger", event: JobPaused | JobRemoved | JobOccurred
) -> tuple[SessionRecord, JobRecord]:
    session = ledger.sessions.get(event.session)
    if session is None or event.job not in session.jobs:
        raise ImpossibleEventError(event, "there is no such job")
    return session, session.jobs[event.job]


FOLDS: Final[tuple[FoldRow, ...]] = (
    fold_row(JobSet, job_set),
    fold_row(JobPaused, job_paused),
    fold_row(JobRemoved, job_removed),
    fold_row(JobOccurred, job_occurred),
)
