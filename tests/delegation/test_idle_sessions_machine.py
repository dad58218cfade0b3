"""Idle sessions are evicted, and are the same when they are loaded again."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import AssistantMessage, Budget, Usage
from orchestrator.delegation import (
    SHARED_BUDGET_PREFIX,
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    UnreadableFactError,
    encode_shared_use,
    evict_session,
    register_idle_session,
    restore_session,
    root_of,
)
from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.events import (
    DoorClosed,
    Entry,
    Event,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnStarted,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]
Snapshot: TypeAlias = Callable[[Ledger], object]

NONE, _, PUSH = DeliveryCapability
S, OTHER = SessionId("s"), SessionId("other")
A = TaskId("a")
DONE = Outcome(Ending.SUCCEEDED, "42")
SHARED_BUDGET = Grant(f"{SHARED_BUDGET_PREFIX}1", Budget(calls=9, name="shared"))
USAGE = Usage(calls=1, input_tokens=5, micro_usd=7)


def life(requested: Asked, session: SessionId, task: TaskId) -> list[Event]:
    """Return a short life of a session with a budget of its own and one that it shares."""
    return [
        SessionOpened(session, "editor", Budget(tokens=99), (SHARED_BUDGET,)),
        TurnStarted(session, 1, NONE, ()),
        requested(task, session, session=session, budget=Budget(calls=3)),
        TaskStarted(task),
        ModelAnswered(task, AssistantMessage("hm", usage=USAGE)),
        TaskSettled(task, DONE),
        TurnEnded(session, 1, DONE),
    ]


def fold(facts: list[Event], *, start: int = 1) -> Ledger:
    ledger = Ledger()
    for seq, fact in enumerate(facts, start):
        ledger.fold(Entry(seq, float(seq), ledger.session_of(fact), fact))
    return ledger


def test_a_restored_session_equals_the_evicted_one(requested: Asked, snapshot: Snapshot) -> None:
    own = life(requested, S, A)
    others = life(requested, OTHER, TaskId("b"))
    ledger = fold(own + others)
    before = snapshot(ledger)
    assert ledger.sessions[S].is_idle
    assert not ledger.is_evicted(S)

    evict_session(ledger, S)
    assert ledger.is_evicted(S)
    assert list(ledger.all_sessions) == [S, OTHER]
    assert set(ledger.tasks) == {root_of(OTHER), TaskId("b")}
    shared = ledger.accounts[SHARED_BUDGET.id]
    assert shared.used == Amounts(calls=2, tokens=10, micro_usd=14, tasks=2)

    restore_session(ledger, S, fold(own))
    assert not ledger.is_evicted(S)
    assert in_any_order(snapshot(ledger)) == in_any_order(before)
    assert ledger.tasks[A].accounts[0] is shared


def in_any_order(known: object) -> object:
    """Return what a ledger knows; what was recalled is the last of its kind."""
    assert isinstance(known, list)
    return [
        (name, sorted(value, key=repr) if isinstance(value, list) else value)
        for name, value in known
    ]


def test_a_new_process_registers_the_shared_use_of_idle_sessions(requested: Asked) -> None:
    """Of budgets that others share, and of nothing else: it has not read their facts."""
    used = encode_shared_use(fold(life(requested, S, A)).sessions[S])
    ledger = fold(life(requested, OTHER, TaskId("b")), start=8)
    assert ledger.accounts[SHARED_BUDGET.id].started_at == 8.0

    register_idle_session(ledger, S, used)
    shared = ledger.accounts[SHARED_BUDGET.id]
    assert shared.used == Amounts(calls=2, tokens=10, micro_usd=14, tasks=2)
    assert shared.started_at == 1.0, "its time began with the first that it was set for"
    assert ledger.is_evicted(S)


def test_registering_an_idle_session_opens_the_shared_account(requested: Asked) -> None:
    """The account is there before anybody else has booked on it."""
    used = encode_shared_use(fold(life(requested, S, A)).sessions[S])
    ledger = Ledger()
    register_idle_session(ledger, S, used)
    register_idle_session(ledger, OTHER, "")

    assert list(ledger.all_sessions) == [S, OTHER]
    (shared,) = ledger.accounts.values()
    assert (shared.budget, shared.path, shared.depth) == (SHARED_BUDGET.budget, "/editor", 0)
    assert (shared.used.calls, shared.used.tasks) == (1, 1)


def test_a_session_without_a_shared_budget_encodes_no_use(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    """Of most sessions nothing has to be remembered."""
    begin(NONE)
    tell(TurnEnded(S, 1, DONE))

    assert encode_shared_use(ledger.sessions[S]) == ""


def test_a_damaged_shared_use_is_refused_with_its_session() -> None:
    with pytest.raises(UnreadableFactError, match="the usage of session s: "):
        register_idle_session(Ledger(), S, "[{]")


def test_a_session_is_idle_without_work_mail_replies_and_doors(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A turn, a task, mail, a reply or an open door: each keeps it in mind."""
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED))
    session = ledger.sessions[S]
    story: list[tuple[Event, bool]] = [
        (TurnEnded(S, 1, DONE), False),
        (TaskSettled(A, DONE), False),
        (TurnStarted(S, 2, PUSH, (7,)), False),
        (TurnEnded(S, 2, DONE), False),
        (DoorClosed(S), False),
        (ReplyDelivered(S, 1), False),
        (ReplyDelivered(S, 2), True),
    ]
    for fact, at_rest in story:
        tell(fact)
        assert session.is_idle is at_rest, fact
