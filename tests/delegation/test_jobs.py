"""The fold of jobs, and of replies that are delivered in parts."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Outcome,
    SessionId,
    evict_session,
)
from orchestrator.delegation.events import (
    DoorClosed,
    DoorOpened,
    JobOccurred,
    JobPaused,
    JobRemoved,
    JobSet,
    JournalOpened,
    MessageReceived,
    ReplyDelivered,
    ReplyPartDelivered,
    SessionClosed,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.restore import adopt_session, restore_snapshot

Tell = Callable[..., None]
S = SessionId("s")
BRIEF = JobSpec(id=JobId("brief"), schedule="0 8 * * *", zone="UTC", agent="editor", goal="Write.")
ONCE = replace(BRIEF, id=JobId("once"), schedule="at 2026-12-24T18:00:00+00:00")
DONE = Outcome(Ending.SUCCEEDED, "42")
PUSH = DeliveryCapability.PUSH


def run(number: int) -> SessionId:
    return SessionId(f"o_{number}")


def occurred(at: float, *, job: JobSpec = BRIEF, skipped: str = "") -> JobOccurred:
    return JobOccurred(S, job.id, at, run(int(at)), skipped=skipped)


def test_a_session_with_a_job_is_not_at_rest(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0))
    session = ledger.sessions[S]

    assert session.jobs == {BRIEF.id: JobRecord(BRIEF, S, set_at=2.0, since=2.0)}
    assert not session.is_at_rest
    assert ledger.scheduled == {S: session}
    tell(JobRemoved(S, BRIEF.id))
    assert session.is_at_rest
    assert ledger.scheduled == {}
    evict_session(ledger, S)


def test_a_job_that_is_set_again_keeps_its_history(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0), JobPaused(S, BRIEF.id, True, 3.0))
    tell(occurred(100.0))
    edited = replace(BRIEF, schedule="0 9 * * *")
    tell(JobSet(S, edited, 5.0))

    assert ledger.sessions[S].jobs == {
        BRIEF.id: JobRecord(
            edited, S, set_at=5.0, since=5.0, paused=True, last_at=100.0, runs=(run(100),)
        )
    }


def test_a_job_goes_on_from_the_end_of_its_pause(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0), JobPaused(S, BRIEF.id, True, 3.0))
    assert ledger.sessions[S].jobs[BRIEF.id].paused
    with pytest.raises(ImpossibleEventError, match="it is so already"):
        tell(JobPaused(S, BRIEF.id, True, 3.0))
    tell(JobPaused(S, BRIEF.id, False, 4.0))

    job = ledger.sessions[S].jobs[BRIEF.id]
    assert (job.paused, job.set_at, job.since) == (False, 2.0, 4.0)


def test_a_time_occurs_once_and_the_last_three_runs_are_remembered(
    ledger: Ledger, tell: Tell
) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0))
    tell(*map(occurred, (10.0, 20.0, 30.0, 40.0)))
    tell(occurred(50.0, skipped="the run before it is under way"))
    job = ledger.sessions[S].jobs[BRIEF.id]

    assert job.runs == (run(20), run(30), run(40))
    assert job.last_at == 50.0
    for at in (40.0, 50.0):
        with pytest.raises(ImpossibleEventError, match=r"50.0 was the last time"):
            tell(occurred(at))
    assert ledger.sessions[S].jobs[BRIEF.id] == job, "a refused fact changes nothing"


def test_a_run_by_hand_stands_for_no_time(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0), JobSet(S, ONCE, 2.0))
    tell(occurred(50.0))
    tell(JobOccurred(S, BRIEF.id, 20.0, run(7), by_hand=True))
    tell(JobOccurred(S, ONCE.id, 20.0, run(8), by_hand=True))
    jobs = ledger.sessions[S].jobs

    assert jobs[BRIEF.id].last_at == 50.0
    assert jobs[BRIEF.id].runs == (run(50), run(7))
    assert jobs[ONCE.id].runs == (run(8),)


@pytest.mark.parametrize("skipped", ["", "too late"])
def test_a_job_that_is_due_once_ends_with_its_time(
    ledger: Ledger, tell: Tell, skipped: str
) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, ONCE, 2.0))
    tell(occurred(10.0, job=ONCE, skipped=skipped))

    assert ledger.sessions[S].jobs == {}
    assert ledger.scheduled == {}


def test_a_session_that_is_closed_has_no_jobs(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0), SessionClosed(S))

    assert ledger.sessions[S].jobs == {}
    assert ledger.scheduled == {}
    with pytest.raises(ImpossibleEventError, match="closed for good"):
        tell(JobSet(S, BRIEF, 2.0))


def test_jobs_outlive_a_restart_and_a_snapshot(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), JobSet(S, BRIEF, 2.0), occurred(10.0))
    tell(JournalOpened("1.0"))
    jobs = ledger.sessions[S].jobs
    assert [*ledger.scheduled] == [S]

    snapshot = take_snapshot(ledger, ledger.sessions[S])
    restored = restore_snapshot(snapshot)
    assert restored.sessions[S].jobs == jobs
    assert [*restored.scheduled] == [S]
    adopting = Ledger()
    adopt_session(adopting, S, restored)
    assert [*adopting.scheduled] == [S]


def test_the_parts_of_a_reply_are_remembered_until_all_of_it_is_delivered(
    ledger: Ledger, tell: Tell
) -> None:
    tell(SessionOpened(S, "editor"), DoorOpened(S, PUSH), MessageReceived(S, "Hi."))
    tell(TurnStarted(S, 1, PUSH, (3,)), TurnEnded(S, 1, DONE))
    tell(ReplyPartDelivered(S, 1, "1", "m17"), ReplyPartDelivered(S, 1, "2"))

    assert ledger.sessions[S].undelivered[1].parts == {"1": "m17", "2": ""}
    with pytest.raises(ImpossibleEventError, match="no such part"):
        tell(ReplyPartDelivered(S, 1, "2"))
    tell(ReplyDelivered(S, 1), DoorClosed(S))
    with pytest.raises(ImpossibleEventError, match="no such part"):
        tell(ReplyPartDelivered(S, 1, "3"))
