"""Incidents of model calls are kept beside the transcript, in order."""

from orchestrator.agents import AssistantMessage, Usage
from orchestrator.delegation import Ending, Ledger, Outcome
from orchestrator.delegation.events import (
    DoorOpened,
    KindChanged,
    ModelAnswered,
    ModelFailed,
    ModelFailure,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
)
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.ledger.session_record import PastTurn
from orchestrator.delegation.session_kind import SessionKind
from tests.delegation.test_ledger import PUSH, RESTART, ROOT, A, Asked, S, Tell

ONE = Usage(calls=1)
AGAIN = ModelFailed(ROOT, "503: overloaded", ONE, ModelFailure.ATTEMPT)
INSTEAD = ModelFailed(ROOT, "402: no money", ONE, ModelFailure.ATTEMPT, then="other")


def test_calls_that_failed_and_were_made_again_are_before_the_answer(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(AGAIN, INSTEAD, ModelAnswered(ROOT, AssistantMessage("42"), left_out=7))

    asked = len(ledger.tasks[ROOT].transcript) - 1
    assert ledger.tasks[ROOT].incidents == [
        Incident(asked, "503: overloaded"),
        Incident(asked, "402: no money", "other"),
        Incident(asked, left_out=7),
    ]


def test_a_final_failure_and_a_summary_are_no_incidents(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(ModelFailed(ROOT, "it was summarized", ONE, ModelFailure.SUMMARY))
    tell(ModelFailed(ROOT, "401: wrong key", ONE))

    assert ledger.tasks[ROOT].incidents == []


def test_a_turn_that_starts_afresh_forgets_its_incidents(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(AGAIN, ModelAnswered(ROOT, AssistantMessage("42")))
    tell(RESTART, DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH, afresh=True))

    assert ledger.tasks[ROOT].incidents == []


def test_an_ended_task_keeps_no_incidents(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A))
    tell(ModelFailed(A, "503: overloaded", ONE, ModelFailure.ATTEMPT))
    assert len(ledger.tasks[A].incidents) == 1

    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED, "42")))

    assert ledger.tasks[A].incidents == []


def test_a_conversation_keeps_the_failures_of_its_turns_without_their_output(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(KindChanged(S, SessionKind.CONVERSATION))
    tell(TurnEnded(S, 1, Outcome(Ending.FAILED, "so far", "402: no money")))

    length = len(ledger.tasks[ROOT].transcript)
    failure = Outcome(Ending.FAILED, error="402: no money")
    assert ledger.sessions[S].past_turns == [PastTurn(length, failure)]


def test_a_conversation_keeps_the_places_of_turns_that_succeed(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(KindChanged(S, SessionKind.CHAT))
    tell(ModelAnswered(ROOT, AssistantMessage("42")))
    tell(TurnEnded(S, 1, Outcome(Ending.SUCCEEDED, "42")))

    assert ledger.sessions[S].past_turns == [PastTurn(len(ledger.tasks[ROOT].transcript))]
