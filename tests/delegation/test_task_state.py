"""A task's state is one value: which state follows which, and what the tree shows of it."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Outcome,
    Rules,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.events import (
    DoorOpened,
    JournalOpened,
    QuietChanged,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
)
from orchestrator.delegation.ledger.task_state import TRANSITIONS, Ended, Idle, state_name

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S = SessionId("s")
ROOT = root_of(S)
A, B = TaskId("a"), TaskId("b")
DONE = Outcome(Ending.SUCCEEDED, "42")


def history(ledger: Ledger, task: TaskId) -> list[str]:
    return [state_name(state) for state in ledger.tasks[task].history]


def test_a_task_goes_from_the_queue_to_its_end(
    ledger: Ledger, tell: Tell, begin: Tell, requested: Asked
) -> None:
    begin(PUSH)

    tell(requested(A), TaskStarted(A), QuietChanged(A, True), TaskSettled(A, DONE))

    assert history(ledger, A) == ["queued", "ready", "running", "succeeded"]


@pytest.mark.parametrize("rules", [Rules(live_tasks=1)])
def test_an_interrupted_task_gets_a_slot_or_queues_for_one(
    ledger: Ledger, tell: Tell, begin: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), requested(B), TaskStarted(A), JournalOpened("1.0"))
    tell(DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))

    tree = ledger.sessions[S].tree
    assert history(ledger, A) == ["queued", "ready", "running", "interrupted", "ready"]
    assert tree[A].status == "interrupted"
    assert history(ledger, B) == ["queued", "interrupted", "queued"]
    assert tree[B].status == "queued"


def test_a_root_is_idle_between_its_turns(ledger: Ledger, tell: Tell, begin: Tell) -> None:
    begin(PUSH)
    tell(JournalOpened("1.0"), DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))
    assert history(ledger, ROOT) == ["idle", "running", "interrupted", "running"]

    tell(TurnEnded(S, 1, DONE))
    assert history(ledger, ROOT) == ["idle"]
    assert ledger.tasks[ROOT].outcome is None


def test_an_impossible_fact_reports_the_history_of_its_task(
    tell: Tell, begin: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A))

    with pytest.raises(ImpossibleEventError) as again:
        tell(TaskStarted(A))
    assert again.value.because == "a task that is running does not become running"
    assert again.value.history == ("queued", "ready", "running")
    assert "the states of its task: queued, ready, running" in str(again.value)

    tell(TaskSettled(A, DONE))
    with pytest.raises(ImpossibleEventError) as twice:
        tell(TaskSettled(A, DONE))
    assert twice.value.history == ("queued", "ready", "running", "succeeded")


def test_a_status_that_came_and_went_changes_no_tally(
    ledger: Ledger, tell: Tell, begin: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, label="look"), TaskStarted(A))
    tree = ledger.sessions[S].tree
    before = tree.counts()

    tell(QuietChanged(A, True), QuietChanged(A, False))

    assert tree.counts() == before == {"running": 2}


def test_a_task_record_shows_the_options_of_its_request(
    ledger: Ledger, tell: Tell, begin: Tell, requested: Asked
) -> None:
    begin(PUSH)
    schema = {"type": "object"}
    tell(requested(A, label="look", copy=True, output_schema=schema))

    task, root = ledger.tasks[A], ledger.tasks[ROOT]
    assert (task.is_root, task.is_copy, task.label) == (False, True, "look")
    assert task.requested_schema == schema
    assert (root.is_root, root.is_copy, root.label) == (True, False, "")
    assert root.requested_schema is None


def test_an_ended_task_stays_ended_and_only_a_turn_leaves_idle() -> None:
    assert not TRANSITIONS[Ended]
    assert all(Idle not in TRANSITIONS[kind] for kind in (Idle, Ended))
    assert all(kind not in following for kind, following in TRANSITIONS.items())
