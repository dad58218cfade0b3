"""How an answer that is broken off is folded: an incomplete message, until it is asked again."""

import pytest

from orchestrator.agents import AssistantMessage, MessageId, Usage
from orchestrator.delegation import DeliveryCapability, Ending, Ledger, Outcome, root_of
from orchestrator.delegation.events import (
    DoorOpened,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ModelFailure,
    TaskStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from tests.delegation.test_ledger import NONE, PUSH, RESTART, ROOT, A, Asked, S, Tell

USED = Usage(calls=1, input_tokens=7, output_tokens=3, micro_usd=5, estimated=1)
STOPPED = Outcome(Ending.CANCELLED, "Roses are", "it was stopped")


def broken_off(task: str, text: str = "Roses are") -> ModelFailed:
    return ModelFailed(root_of(S) if task == ROOT else A, "", USED, ModelFailure.BROKEN_OFF, text)


def texts(ledger: Ledger, task: str) -> list[tuple[str, bool]]:
    return [
        (message.text, message.incomplete)
        for message in ledger.tasks[A if task == A else ROOT].transcript
        if isinstance(message, AssistantMessage)
    ]


def test_a_broken_off_answer_is_a_message_named_by_its_fact(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(broken_off(ROOT))

    last = ledger.tasks[ROOT].transcript[-1]
    assert texts(ledger, ROOT) == [("Roses are", True)]
    assert last.id == MessageId(f"m_{ledger.last_seq}")
    assert ledger.sessions[S].tree.total == USED
    assert ledger.sessions[S].tree.tally().usage.is_lower_bound


def test_a_broken_off_answer_without_text_adds_no_message(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(broken_off(ROOT, ""))

    assert texts(ledger, ROOT) == []
    assert ledger.sessions[S].tree.total == USED


def test_a_session_keeps_it_for_its_next_turn(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    begin(PUSH)
    tell(broken_off(ROOT), TurnEnded(S, 1, STOPPED), MessageReceived(S, "go on"))
    tell(TurnStarted(S, 2, PUSH, (ledger.last_seq,)))
    tell(RESTART, DoorOpened(S, PUSH), TurnResumed(S, 2, PUSH))

    assert texts(ledger, ROOT) == [("Roses are", True)], "another turn's stays"


def test_a_silent_message_resumes_after_a_broken_off_answer(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(broken_off(ROOT), TurnEnded(S, 1, STOPPED))
    tell(MessageReceived(S, "", silent=True))
    tell(TurnStarted(S, 2, PUSH, (ledger.last_seq,)))
    tell(RESTART, DoorOpened(S, PUSH), TurnResumed(S, 2, PUSH))

    assert texts(ledger, ROOT) == [("Roses are", True)]


def test_a_resumed_turn_forgets_its_broken_off_answer_and_keeps_earlier_ones(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(ModelAnswered(ROOT, AssistantMessage("First")), broken_off(ROOT))
    assert ledger.sessions[S].is_interrupted_in_answer
    tell(JournalOpened("1.0"), DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))
    assert not ledger.sessions[S].is_interrupted_in_answer
    tell(ModelAnswered(ROOT, AssistantMessage("Roses are red")))

    assert texts(ledger, ROOT) == [("First", False), ("Roses are red", False)]


def test_a_task_that_is_resumed_forgets_it_too(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), broken_off(A))
    assert texts(ledger, A) == [("Roses are", True)]

    tell(RESTART, DoorOpened(S, PUSH), TaskStarted(A))

    assert texts(ledger, A) == []
    assert ledger.sessions[S].tree[A].usage == USED, "it was paid for"


@pytest.mark.parametrize("door", [PUSH, NONE])
@pytest.mark.parametrize("can", [True, False])
def test_a_turn_promises_delivery_if_its_door_and_its_senders_support_it(
    ledger: Ledger, begin: Tell, tell: Tell, door: DeliveryCapability, can: bool
) -> None:
    begin(PUSH)
    tell(TurnEnded(S, 1, STOPPED))
    tell(MessageReceived(S, "one"), MessageReceived(S, "two", async_delivery=can))
    tell(TurnStarted(S, 2, door, (ledger.last_seq - 1, ledger.last_seq)))

    turn = ledger.sessions[S].turn
    assert turn is not None
    assert turn.promises is (door if can else NONE)
