"""Idle sessions: evicted without loss, restored as they were, their usage always counted."""

from collections.abc import Callable, Sequence

import pytest

from orchestrator.agents import AssistantMessage, Budget, Usage
from orchestrator.delegation import (
    SHARED_BUDGET_PREFIX,
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Outcome,
    OverBudgetError,
    Reserved,
    SessionId,
    TaskId,
    UnreadableFactError,
    decode_used_amounts,
    encode_shared_use,
    evict_session,
    fits_budget,
    register_idle_session,
    restore_session,
    root_of,
)
from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.events import (
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    MessageReceived,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)

A, B = SessionId("a"), SessionId("b")
TOGETHER = Grant(f"{SHARED_BUDGET_PREFIX}1", Budget(tokens=1000, name="both"))
ALONE = Budget(tokens=500)
OVER = Outcome(Ending.SUCCEEDED, output="done")


def life_of(
    session: SessionId,
    *grants: Grant,
    budget: Budget | None = None,
    tokens: int = 7,
    first: int = 1,
) -> list[Event]:
    """Return the facts of a run with one model call; the first has this number."""
    answer = AssistantMessage("done", usage=Usage(input_tokens=tokens))
    return [
        SessionOpened(session, "editor", budget, grants),
        MessageReceived(session, "go"),
        TurnStarted(session, 1, DeliveryCapability.NONE, (first + 1,)),
        ModelAnswered(root_of(session), answer),
        TurnEnded(session, 1, OVER),
    ]


def told(events: Sequence[Event]) -> Ledger:
    ledger = Ledger()
    for seq, event in enumerate(events, start=1):
        ledger.fold(Entry(seq, float(seq), ledger.session_of(event), event))
    return ledger


def test_the_newest_limits_of_a_common_account_count() -> None:
    old, new = (Grant.common("team", Budget(calls=calls)) for calls in (1, 2))

    ledger = told([*life_of(A, old), *life_of(B, new, first=6)])

    (account,) = ledger.accounts.values()
    assert account.is_common
    assert account.budget.calls == 2
    assert account.used.calls == 2
    assert told([*life_of(A, old), *life_of(B, old, first=6)]).accounts[old.id].budget.calls == 1


def test_the_use_of_other_journals_counts_on_a_common_account() -> None:
    grant = Grant.common("team", Budget(calls=3))
    (account,) = told(life_of(A, grant)).accounts.values()

    assert fits_budget(account, Reserved(), Usage(), Amounts(calls=1))
    with pytest.raises(OverBudgetError, match="3 model calls made"):
        fits_budget(account, Reserved(), Usage(), Amounts(calls=2))
    assert not fits_budget(account, Reserved(Amounts(calls=1)), Usage(), Amounts(calls=1))


def test_a_session_without_a_shared_budget_reports_no_shared_use() -> None:
    ledger = told(life_of(A, budget=ALONE))

    assert ledger.accounts["a"].used.tokens == 7
    assert encode_shared_use(ledger.sessions[A]) == ""


def test_the_shared_use_of_an_idle_session_is_registered() -> None:
    first = told(life_of(A, TOGETHER))
    used = encode_shared_use(first.sessions[A])
    later = Ledger()
    register_idle_session(later, A, used)
    register_idle_session(later, B, used)

    account = later.accounts[TOGETHER.id]
    assert (account.used.calls, account.used.tokens, account.used.tasks) == (2, 14, 0)
    assert (account.budget, account.path) == (TOGETHER.budget, "/editor")
    assert account.started_at == 1.0
    assert decode_used_amounts(used) == {TOGETHER.id: first.accounts[TOGETHER.id].used}
    assert list(later.all_sessions) == [A, B]
    assert later.is_evicted(A)


def test_the_stored_use_is_one_object_for_each_budget() -> None:
    stored = encode_shared_use(told(life_of(A, TOGETHER)).sessions[A])

    assert stored == (
        '[{"grant":{"id":"b_1","budget":{"name":"both","calls":null,"depth":null,'
        '"seconds":null,"tasks":null,"tokens":1000,"usd":null}},"path":"/editor","depth":0,'
        '"at":1.0,"used":{"calls":1,"tokens":7,"micro_usd":0,"tasks":0}}]'
    )


def test_the_seconds_of_a_shared_budget_begin_with_its_first_session() -> None:
    early, late = told(life_of(A, TOGETHER)), told(life_of(A, TOGETHER))
    late.sessions[A].own_accounts[TOGETHER.id].started_at = 50.0
    later = Ledger()
    for ledger in (late, early, late):
        register_idle_session(later, A, encode_shared_use(ledger.sessions[A]))

    assert later.accounts[TOGETHER.id].started_at == 1.0


def test_an_idle_session_without_shared_use_is_registered_too() -> None:
    ledger = Ledger()
    register_idle_session(ledger, A, "")

    assert ledger.is_evicted(A)
    assert not ledger.accounts


def test_an_unreadable_shared_use_is_refused() -> None:
    with pytest.raises(UnreadableFactError, match="the usage of session a"):
        register_idle_session(Ledger(), A, '[{"grant": 1}]')


def test_an_evicted_session_leaves_only_its_shared_use() -> None:
    ledger = told([*life_of(A, TOGETHER, budget=ALONE), *life_of(B, TOGETHER, first=6)])
    evict_session(ledger, A)

    assert set(ledger.tasks) == {"b"}
    assert set(ledger.sessions) == {B}
    assert list(ledger.all_sessions) == [A, B]
    assert set(ledger.accounts) == {TOGETHER.id}
    assert ledger.accounts[TOGETHER.id].used.tokens == 14


def test_a_session_that_is_awake_is_not_forgotten() -> None:
    ledger = told(life_of(A)[:-1])

    with pytest.raises(AssertionError, match="only a session at rest is evicted"):
        evict_session(ledger, A)


@pytest.mark.parametrize("budget", [None, ALONE])
def test_a_recalled_session_is_as_it_was_and_books_on_the_same_accounts(
    budget: Budget | None,
) -> None:
    events = life_of(A, TOGETHER, budget=budget)
    ledger = told([*events, *life_of(B, TOGETHER, first=6)])
    whole = told(events)
    evict_session(ledger, A)
    restore_session(ledger, A, told(events))

    assert ledger.sessions[A].tree.to_text() == whole.sessions[A].tree.to_text()
    assert ledger.tasks[root_of(A)].transcript == whole.tasks[root_of(A)].transcript
    assert ledger.accounts[TOGETHER.id].used.tokens == 14
    assert ledger.tasks[root_of(A)].accounts == ledger.sessions[A].accounts
    assert ledger.tasks[root_of(A)].accounts[0] is ledger.accounts[TOGETHER.id]
    assert encode_shared_use(ledger.sessions[A]) == encode_shared_use(whole.sessions[A])
    assert ("a" in ledger.accounts) is (budget is not None)


def test_a_restored_session_continues_and_its_use_is_counted_once(
    ledger: Ledger, tell: Callable[..., None]
) -> None:
    events = life_of(A, TOGETHER, budget=ALONE)
    tell(*events)
    evict_session(ledger, A)
    restore_session(ledger, A, told(events))
    push = DeliveryCapability.PUSH
    tell(DoorOpened(A, push), MessageReceived(A, "again"))
    tell(
        TurnStarted(A, 2, push, (7,)),
        ModelAnswered(TaskId("a"), AssistantMessage("x", usage=Usage(input_tokens=3))),
        TurnEnded(A, 2, OVER),
        ReplyDelivered(A, 2),
    )
    assert not ledger.sessions[A].is_idle
    tell(DoorClosed(A))

    assert ledger.sessions[A].is_idle
    assert ledger.accounts[TOGETHER.id].used.tokens == 10
    assert ledger.accounts["a"].used.tokens == 10
    later = Ledger()
    register_idle_session(later, A, encode_shared_use(ledger.sessions[A]))
    assert later.accounts[TOGETHER.id].used.tokens == 10
