"""A restart interrupts and resumes tasks, and a cancel ends them."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from orchestrator.agents import Budget, CallId, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.events import (
    ApprovalAsked,
    CancelRequested,
    DoorClosed,
    DoorOpened,
    JournalOpened,
    ModelCalled,
    ProcessStarted,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.events.approvals import ApprovalId
from orchestrator.delegation.events.processes import ProcessId

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

NONE, POLL, PUSH = DeliveryCapability
S = SessionId("s")
ROOT = root_of(S)
OTHER = SessionId("other")
A, B, C, D = map(TaskId, "abcd")
DONE = Outcome(Ending.SUCCEEDED, "42")
RESTART = JournalOpened("1.0")


def test_a_restart_interrupts_all_that_has_not_ended(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The process that ran it is gone, and with it every door."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, parent=A))
    tell(requested(C), TaskSettled(C, DONE), requested(D, mode=Mode.DETACHED), RESTART)
    session = ledger.sessions[S]

    assert session.tree.counts() == {"interrupted": 4, "succeeded": 1}
    assert session.tree[C].status == "succeeded"
    assert session.door is None
    assert session.turn is not None
    assert session.is_interrupted
    assert not ledger.startable
    assert not ledger.wakeable


def test_a_door_brings_the_detached_tasks_of_its_session_back(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """With the session come the agents that can do them; joined ones wait for who asked."""
    begin(PUSH)
    begin(PUSH, session=OTHER)
    tell(requested(A), TaskStarted(A))
    tell(requested(B, mode=Mode.DETACHED), TaskStarted(B))
    tell(requested(C, mode=Mode.DETACHED), requested(D, mode=Mode.DETACHED))
    tell(requested("theirs", OTHER, mode=Mode.DETACHED, session=OTHER))
    tell(TaskSettled(D, DONE), RESTART, DoorOpened(S, PUSH))

    assert list(ledger.startable) == [B, C]


def test_a_reopened_door_restarts_no_running_task(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), RESTART, DoorOpened(S, PUSH), TaskStarted(A))
    tell(DoorClosed(S), DoorOpened(S, PUSH))

    assert not ledger.startable


def test_a_task_that_starts_again_has_started_once(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Its time counts from the first start, and it is no longer interrupted."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), RESTART, TaskStarted(A))

    assert ledger.sessions[S].tree[A].started == 6.0
    assert ledger.sessions[S].tree[A].status == "running"
    assert not ledger.has_no_runner(A)


def test_a_resumed_turn_is_the_same_turn_behind_another_door(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    """The capability comes from the current door; read mail stays read."""
    begin(POLL)
    before = ledger.sessions[S].turn
    assert before is not None

    tell(RESTART, TurnResumed(S, 1, PUSH))
    assert ledger.sessions[S].turn == replace(before, capability=PUSH)


def test_a_turn_awaits_its_resume_if_its_caller_waited_in_it(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    """A session that can be told later is opened again some day; this one is idle."""
    begin(NONE)
    begin(PUSH, session=OTHER)
    tell(SessionOpened(SessionId("quiet"), "editor"))
    assert not any(it.awaits_resume for it in ledger.sessions.values())

    tell(RESTART)
    assert [it.id for it in ledger.sessions.values() if it.awaits_resume] == [S]
    assert ledger.sessions[S].is_idle
    assert not ledger.sessions[OTHER].is_idle

    tell(TurnResumed(S, 1, NONE))
    assert not ledger.sessions[S].awaits_resume
    assert not ledger.sessions[S].is_idle


@pytest.mark.parametrize("detached", [False, True])
def test_processes_and_detached_tasks_keep_an_interrupted_run_in_memory(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, detached: bool
) -> None:
    """A command has to be ended, and the notice of a detached task may come."""
    begin(NONE)
    if detached:
        tell(requested(A, mode=Mode.DETACHED))
    else:
        tell(ProcessStarted(root_of(S), ProcessId("p_1"), "sleep 9", notify=False))
    tell(RESTART)

    assert ledger.sessions[S].awaits_resume
    assert not ledger.sessions[S].is_idle


def test_a_run_that_awaits_its_resume_asks_no_person(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(NONE)
    begin(PUSH, session=OTHER)
    for number, task in enumerate([S, OTHER]):
        id_, call = ApprovalId(f"a_{number}"), CallId(f"c_{number}")
        tell(ApprovalAsked(root_of(task), id_, call, "pay", "1 $", 99.0))
    tell(RESTART)
    assert list(ledger.open_questions) == ["a_1"]

    tell(TurnResumed(S, 1, NONE))
    assert list(ledger.open_questions) == ["a_0", "a_1"]


def test_the_deadline_of_a_budget_excludes_the_interruption(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    tell(SessionOpened(S, "editor", Budget(seconds=60)))
    tell(TurnStarted(S, 1, NONE, ()))
    tell(requested(A, budget=Budget(seconds=9)), TaskStarted(A), RESTART)
    before = [account.deadline for account in ledger.tasks[A].accounts]
    tell(TurnResumed(S, 1, NONE, paused=1_000.0))

    after = [account.deadline for account in ledger.tasks[A].accounts]
    assert after == [deadline + 1_000.0 for deadline in before if deadline is not None]


def test_a_cancel_holds_for_all_below(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), TaskStarted(B))
    tell(requested(C, parent=B), requested(D), CancelRequested(A), RESTART)

    assert [id_ for id_ in (ROOT, A, B, C, D) if ledger.is_cancelled(id_)] == [A, B, C]


def test_a_cancelled_session_goes_on_with_its_next_turn(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(CancelRequested(ROOT))
    assert ledger.is_cancelled(ROOT)

    tell(TurnEnded(S, 1, Outcome(Ending.CANCELLED)))
    assert not ledger.is_cancelled(ROOT)


@pytest.mark.parametrize("capability", DeliveryCapability)
def test_a_teardown_settles_the_tasks_that_cannot_be_resumed(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, capability: DeliveryCapability
) -> None:
    begin(capability)
    tell(requested(A), TaskStarted(A), requested(B, parent=A))
    tell(requested(C, mode=Mode.DETACHED), TaskStarted(C), requested(D, parent=C))
    tasks = (ROOT, A, B, C, D)

    for_good = {id_ for id_ in tasks if ledger.settles_on_teardown(id_)}
    assert for_good == ({ROOT, A, B} if capability is NONE else set())

    tell(CancelRequested(C))
    assert {id_ for id_ in tasks if ledger.settles_on_teardown(id_)} == for_good | {C, D}


def test_a_teardown_settles_no_session_between_turns(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(NONE)
    tell(TurnEnded(S, 1, DONE))

    assert not ledger.settles_on_teardown(ROOT)


def test_a_queued_or_interrupted_task_has_no_runner(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A cancel must settle it itself."""
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED))
    assert ledger.has_no_runner(A)

    tell(TaskStarted(A), requested(B, parent=A), TaskStarted(B))
    assert not ledger.has_no_runner(A)

    tell(RESTART)
    assert ledger.has_no_runner(A)
    assert ledger.has_no_runner(B)

    tell(DoorOpened(S, PUSH), TaskStarted(A))
    assert not ledger.has_no_runner(A)
    assert ledger.has_no_runner(B)


def test_a_session_with_an_interrupted_turn_has_no_runner(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    """Otherwise a cancel would wait for an end that no runner posts."""
    begin(PUSH)
    assert not ledger.has_no_runner(ROOT)

    tell(RESTART)
    assert ledger.has_no_runner(ROOT)

    tell(TurnResumed(S, 1, PUSH))
    assert not ledger.has_no_runner(ROOT)


def test_below_a_task_the_deepest_come_first(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """They are settled in this order, and none may settle before those below it."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), requested(C, parent=A))
    tell(requested(D), TaskSettled(D, DONE), requested("own", mode=Mode.DETACHED))
    below = [record.id for record in ledger.unsettled_below(ROOT)]
    assert below == [C, B, A]

    tell(*(TaskSettled(task, DONE) for task in below), TurnEnded(S, 1, DONE))
    assert list(ledger.sessions[S].unsettled_detached) == ["own"]


@pytest.mark.parametrize("has_called", [True, False])
def test_a_budget_that_runs_share_does_not_pause_twice(
    ledger: Ledger, tell: Tell, has_called: bool
) -> None:
    """It was paused for the longest of their pauses."""
    grant = Grant("b_shared", Budget(seconds=60, calls=9))
    for session in (S, OTHER):
        tell(SessionOpened(session, "editor", grants=(grant,)))
        tell(TurnStarted(session, 1, NONE, ()))
        if has_called:
            tell(ModelCalled(root_of(session), Usage(calls=1)))
    (before,) = {account.deadline for account in ledger.accounts.values()}
    tell(RESTART)
    for session, paused in ((S, 1_000.0), (OTHER, 1_001.0)):
        tell(TurnResumed(session, 1, NONE, paused=paused))

    (after,) = {account.deadline for account in ledger.accounts.values()}
    assert before is not None
    # A run that has called no model has used nothing of it.
    assert after == before + (1_001.0 if has_called else 0)
