"""Below a paused task no new task starts, until it is unpaused; what had begun goes on."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    Refuse,
    Rules,
    SessionId,
    TaskId,
    decide,
    root_of,
)
from orchestrator.delegation.events import (
    DoorOpened,
    JournalOpened,
    StartsPaused,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnResumed,
)
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.restore import restore_snapshot

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S = SessionId("s")
ROOT = root_of(S)
A, B, C, D = map(TaskId, "abcd")
DONE = Outcome(Ending.SUCCEEDED, "42")
RESTART = JournalOpened("1.0")


def test_tasks_that_are_asked_for_while_it_is_paused_start_in_their_order_afterwards(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Joined and detached ones alike, and those further below."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), StartsPaused(ROOT, True))
    tell(requested(B, parent=A), requested(C), requested(D, mode=Mode.DETACHED))
    counts = dict(ledger.sessions[S].tree.counts())

    assert counts == {"running": 2, "queued": 3}
    assert not ledger.joinable
    assert not ledger.startable
    tell(StartsPaused(ROOT, False))
    assert list(ledger.joinable) == [B, C]
    assert list(ledger.startable) == [D]


def test_beside_the_paused_task_all_start(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A part of a tree can be held back alone."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), StartsPaused(A, True))
    tell(requested(B), requested(C, parent=A))

    assert list(ledger.joinable) == [B]


@pytest.mark.parametrize("rules", [Rules(live_tasks=1)])
def test_a_task_waits_until_no_ancestor_is_paused(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Two people may have paused two parts of one tree."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A), StartsPaused(ROOT, True), StartsPaused(A, True))
    tell(requested(B, parent=A), StartsPaused(ROOT, False))
    assert not ledger.joinable
    tell(StartsPaused(A, False))
    assert list(ledger.joinable) == [B], "in the slot of its parent"


def test_a_pause_ends_with_its_task(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), StartsPaused(A, True), TaskSettled(A, DONE))

    assert not ledger.sessions[S].slots.paused


@pytest.mark.parametrize("rules", [Rules(live_children=1)])
def test_after_a_restart_started_tasks_continue_and_paused_ones_wait(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Also if one that had not begun was asked for before it."""
    begin(PUSH)
    # While C waits for A, B comes first.
    tell(requested(A), TaskStarted(A), requested(C, needs=(A,)), requested(B))
    tell(TaskSettled(A, DONE), TaskStarted(B), requested(D), StartsPaused(ROOT, True))
    tell(RESTART, DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))

    assert list(ledger.joinable) == [B]
    tell(TaskStarted(B), TaskSettled(B, DONE))
    assert not ledger.joinable
    tell(StartsPaused(ROOT, False))
    assert list(ledger.joinable) == [C]


def test_the_pause_is_part_of_a_snapshot(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), StartsPaused(A, True), requested(B, parent=A))
    again = restore_snapshot(take_snapshot(ledger, ledger.sessions[S]))

    assert list(again.sessions[S].slots.paused) == [A]


@pytest.mark.parametrize("rules", [Rules(queue=1)])
def test_too_many_queued_tasks_are_refused_with_the_reason(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It can go on without them; waiting for a slot would not help."""
    begin(PUSH)
    tell(StartsPaused(ROOT, True), requested(A))

    decision = decide([requested(B).request], ledger)

    assert isinstance(decision, Refuse)
    assert "a person has paused" in decision.reason


@pytest.mark.parametrize("paused", [True, False])
def test_pausing_twice_is_an_impossible_fact(
    ledger: Ledger, begin: Tell, tell: Tell, paused: bool
) -> None:
    begin(PUSH)
    if paused:
        tell(StartsPaused(ROOT, True))

    with pytest.raises(ImpossibleEventError, match="it is so already"):
        tell(StartsPaused(ROOT, paused))
