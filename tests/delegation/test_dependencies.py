"""Tasks with dependencies, and tasks that wait for a slot: when they start, and when never."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import UserMessage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Rules,
    SessionId,
    TaskId,
    unmet_dependency,
)
from orchestrator.delegation.events import (
    DoorClosed,
    DoorOpened,
    Event,
    JournalOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnResumed,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S = SessionId("s")
A, B, C, D = map(TaskId, "abcd")
DONE = Outcome(Ending.SUCCEEDED, "42")
FAILED = Outcome(Ending.FAILED, error="no more paper")
RESTART = JournalOpened("1.0")


def test_a_task_starts_after_its_dependencies_and_reads_their_results(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It is told their outputs, by the labels or paths that they are called by."""
    begin(PUSH)
    tell(requested(A, label="facts"), requested(B))
    tell(requested(C, needs=(A, B), context="of 1984"))
    assert set(ledger.tasks[C].pending_dependencies) == {A, B}
    assert not ledger.tasks[C].has_slot

    tell(TaskStarted(A), TaskSettled(A, DONE))
    assert ledger.tasks[C].transcript == []
    tell(TaskStarted(B), TaskSettled(B, Outcome(Ending.SUCCEEDED, "43")))
    assert list(ledger.joinable) == [C]
    assert ledger.tasks[C].transcript == [
        UserMessage(
            "Context:\nof 1984\n\nYour task:\nfind it\n\n"
            "Result of facts, which this needs:\n42\n\n"
            "Result of /editor/researcher[2], which this needs:\n43"
        )
    ]


def test_a_dependency_may_have_succeeded_before(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A call that a crash interrupted asks for the rest of its tasks later."""
    begin(PUSH)
    tell(requested(A), TaskSettled(A, DONE), requested(B, needs=(A,)))

    assert list(ledger.joinable) == [B]
    assert "which this needs:\n42" in ledger.tasks[B].transcript[0].text


def test_a_dependency_named_twice_counts_once(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A model may repeat itself; the task is told once, and takes one place."""
    begin(PUSH)
    tell(requested(A), requested(B, needs=(A, A)), TaskStarted(A), TaskSettled(A, DONE))

    assert len(ledger.tasks[B].transcript) == 1
    assert ledger.sessions[S].slots.in_use == 1
    assert ledger.sessions[S].root.children.slots_used == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_dependency_makes_the_task_unstartable(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, *, when: str
) -> None:
    begin(PUSH)
    facts: list[Event] = [requested(A, label="facts"), TaskSettled(A, FAILED)]
    facts.insert(2 if when == "before" else 1, requested(B, needs=(A,)))
    tell(*facts)

    assert list(ledger.unstartable) == [B]
    assert not ledger.joinable
    assert unmet_dependency(ledger.unstartable[B]) == (
        "it needs 'facts' (/editor/researcher[1]), which ended as failed: no more paper"
    )
    tell(TaskSettled(B, Outcome(Ending.REFUSED)))
    assert not ledger.unstartable


def test_hope_is_lost_down_the_chain(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Each is refused by the one before it, one after the other."""
    begin(PUSH)
    tell(requested(A), requested(B, needs=(A,)), requested(C, needs=(B, A)))
    tell(TaskSettled(A, Outcome(Ending.CANCELLED)))
    assert set(ledger.unstartable) == {B, C}
    assert unmet_dependency(ledger.unstartable[B]) == (
        "it needs /editor/researcher[1], which ended as cancelled"
    )

    tell(TaskSettled(B, Outcome(Ending.REFUSED, error=unmet_dependency(ledger.unstartable[B]))))
    tell(TaskSettled(C, Outcome(Ending.REFUSED)))
    assert not ledger.unstartable
    assert ledger.sessions[S].tree.counts() == {"running": 1, "cancelled": 1, "refused": 2}


def test_an_ended_task_does_not_get_the_result_of_its_dependency(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It was cancelled while it waited."""
    begin(PUSH)
    tell(requested(A), requested(B, needs=(A,)), requested(C, needs=(A,)))
    tell(TaskSettled(B, Outcome(Ending.CANCELLED)), TaskSettled(A, DONE))

    assert list(ledger.joinable) == [C]
    assert ledger.tasks[B].transcript == []


def test_an_unmet_dependency_stays_unmet_after_a_crash(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, needs=(A,)))
    tell(RESTART, TurnResumed(S, 1, PUSH))
    assert list(ledger.joinable) == [A]

    tell(TaskStarted(A), TaskSettled(A, DONE))
    assert list(ledger.joinable) == [B]


@pytest.mark.parametrize("rules", [Rules(detached=1)])
def test_a_queued_task_waits_once_after_several_door_openings(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """After a restart each waits again, when its session is back, and not for every door."""
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), requested(B, mode=Mode.DETACHED))
    tell(RESTART, DoorOpened(S, PUSH))
    room = ledger.sessions[S].slots
    assert (list(ledger.startable), room.queued) == ([A], 1)

    tell(DoorClosed(S), DoorOpened(S, PUSH))
    assert room.queued == 1
    tell(TaskStarted(A), TaskSettled(A, DONE))
    assert (list(ledger.startable), room.queued) == ([B], 0)


@pytest.mark.parametrize("rules", [Rules(live_tasks=1)])
def test_tasks_started_under_other_rules_keep_their_slots(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Rules apply to later starts, and do not change the past."""
    begin(PUSH)
    tell(*(requested(task, mode=Mode.DETACHED) for task in (A, B, C)))
    tell(TaskStarted(A), TaskStarted(B))
    room = ledger.sessions[S].slots
    assert (room.in_use, room.queued) == (2, 1)

    tell(TaskSettled(A, DONE))
    assert not ledger.startable
    tell(TaskSettled(B, DONE))
    assert list(ledger.startable) == [C]
