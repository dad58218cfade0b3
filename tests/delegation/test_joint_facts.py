"""Facts that stand for two: a task starts with its request, or ends with its last answer."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import AssistantMessage, Budget, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
)
from orchestrator.delegation.events import (
    Entry,
    JournalOpened,
    ModelAnswered,
    ModelCalled,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    in_parts,
    parts_of,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]
Snapshot: TypeAlias = Callable[[Ledger], object]

PUSH = DeliveryCapability.PUSH
A, B = map(TaskId, "ab")
DONE = Outcome(Ending.SUCCEEDED, "42")
USED = Usage(input_tokens=7, output_tokens=3, calls=1)
SAYS = ModelAnswered(A, AssistantMessage("42", usage=USED))


def test_a_started_request_and_an_answered_end_have_two_parts(requested: Asked) -> None:
    asked, ended = requested(A, started=True), TaskSettled(A, DONE, SAYS)

    assert parts_of(asked) == (requested(A), TaskStarted(A))
    assert parts_of(ended) == (SAYS, TaskSettled(A, DONE))


def test_other_facts_are_their_only_part(requested: Asked) -> None:
    for fact in (requested(A), TaskSettled(A, DONE), SAYS):
        assert parts_of(fact) == (fact,)


def test_entries_in_parts_keep_the_number_of_their_fact() -> None:
    entries = [
        Entry(3, 1.0, SessionId("s"), SAYS),
        Entry(4, 2.0, SessionId("s"), TaskSettled(A, DONE, SAYS)),
    ]

    parts = [*in_parts(entries)]

    assert parts[0] is entries[0]
    assert [(it.seq, it.at, it.event) for it in parts[1:]] == [
        (4, 2.0, SAYS),
        (4, 2.0, TaskSettled(A, DONE)),
    ]


@pytest.mark.parametrize("mode", [Mode.JOINED, Mode.DETACHED])
def test_a_task_that_starts_with_its_request_is_as_one_that_starts_after_it(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, mode: Mode
) -> None:
    begin(PUSH)
    tell(requested(A, mode=mode), TaskStarted(A), requested(B, mode=mode, started=True))

    first, second = ledger.tasks[A], ledger.tasks[B]

    assert (second.is_running, second.has_slot, second.history) == (True, True, first.history)
    assert len(second.transcript) == len(first.transcript) == 1
    node = ledger.sessions[first.session].tree[B]
    assert (node.status, node.started) == ("running", node.requested)
    assert not ledger.joinable
    assert not ledger.startable
    assert ledger.sessions[first.session].slots.in_use == 2


def test_a_task_that_started_with_its_request_is_interrupted_by_a_crash(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, started=True), JournalOpened("1.0"))

    assert ledger.tasks[A].is_interrupted
    assert ledger.tasks[A].has_begun


def test_the_last_answer_of_a_task_is_booked_with_its_end(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    grant = Grant("purse", Budget(tokens=100))
    charged = Usage(input_tokens=9, output_tokens=9, calls=1)
    for task in (A, B):
        answer = ModelAnswered(task, SAYS.message, charged=charged)
        tell(requested(task, grants=(grant,), started=True), ModelCalled(task, charged))
        if task is A:
            tell(answer, TaskSettled(task, DONE))
        else:
            tell(TaskSettled(task, DONE, answer))

    tree = ledger.sessions[ledger.tasks[A].session].tree
    assert ledger.tasks[B].outcome == DONE
    assert tree[A].usage == tree[B].usage == USED
    assert ledger.accounts["purse"].used.tokens == 2 * charged.tokens


def test_a_copied_last_answer_costs_nothing(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    copied = ModelAnswered(A, SAYS.message, copied=True)
    tell(requested(A, started=True), TaskSettled(A, DONE, copied))

    assert ledger.sessions[ledger.tasks[A].session].tree[A].usage == Usage()
