"""A standing budget pays for the turns of a session until a message brings another one."""

from collections.abc import Callable

from orchestrator.agents import Budget
from orchestrator.delegation import DeliveryCapability, Ending, Grant, Ledger, Outcome, SessionId
from orchestrator.delegation.events import (
    DoorOpened,
    MessageReceived,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)

S = SessionId("s")
POLL = DeliveryCapability.POLL
MONDAY = Grant.standing("key:ann:monday", Budget(tokens=5))
TUESDAY = Grant.standing("key:ann:tuesday", Budget(tokens=5))
BOB = Grant.standing("key:bob:tuesday", Budget(tokens=5))
AROUND = Grant("b_around", Budget(calls=5))
MESSAGE = Grant("b_message", Budget(calls=5))


def test_a_message_replaces_a_standing_budget_and_a_turn_keeps_it(
    ledger: Ledger, tell: Callable[..., None]
) -> None:
    def turn(number: int, *messages: tuple[Grant, ...]) -> tuple[list[str], list[str]]:
        tell(*(MessageReceived(S, "go", grants=grants) for grants in messages))
        session = ledger.sessions[S]
        tell(TurnStarted(S, number, POLL, tuple(session.mail)))
        during = [it.id for it in session.root.accounts]
        tell(TurnEnded(S, number, Outcome(Ending.SUCCEEDED)))
        return during, [it.id for it in session.root.accounts]

    tell(SessionOpened(S, "editor", None, (AROUND, MONDAY)), DoorOpened(S, POLL))
    around = [AROUND.id, MONDAY.id]
    assert turn(1, ()) == (around, around)
    assert turn(2, (MESSAGE,)) == ([*around, MESSAGE.id], around)
    around = [AROUND.id, TUESDAY.id]
    assert turn(3, (TUESDAY, MESSAGE)) == ([*around, MESSAGE.id], around)
    assert turn(4, ()) == (around, around)
    # Two that are read in one turn both pay.
    around = [AROUND.id, TUESDAY.id, BOB.id]
    assert turn(5, (TUESDAY,), (BOB,)) == (around, around)
    assert AROUND.is_shared
    assert MONDAY.is_shared
    assert not AROUND.is_standing
