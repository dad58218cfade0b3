"""The texts that tasks and sessions read: first messages and notices, which need no history."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import AssistantMessage, Usage, UserMessage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    TaskNotice,
    usd,
)
from orchestrator.delegation.events import ModelAnswered, TaskRequested, TaskSettled, TaskStarted

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

S = SessionId("s")
A = TaskId("a")


@pytest.mark.parametrize(
    ("context", "brief"),
    [("", "find it"), ("it is red", "Context:\nit is red\n\nYour task:\nfind it")],
)
def test_a_task_reads_its_goal_and_its_context(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, *, context: str, brief: str
) -> None:
    begin(DeliveryCapability.PUSH)
    tell(requested(A, context=context))

    (message,) = ledger.tasks[A].transcript
    assert message == UserMessage(brief)
    assert isinstance(message, UserMessage)
    assert message.text[message.shared :] == "find it"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        pytest.param(
            Outcome(Ending.SUCCEEDED, "it is\nin the drawer"),
            "Outcome: succeeded after 3.0 s; 15 tokens, $0.0007.\nOutput:\nit is\nin the drawer",
            id="what it found",
        ),
        pytest.param(
            Outcome(Ending.FAILED, error="the light is out"),
            "Outcome: failed after 3.0 s; 15 tokens, $0.0007.\nError: the light is out",
            id="why it failed",
        ),
        pytest.param(
            Outcome(Ending.TIMED_OUT, "not in the drawer", "too late"),
            "Outcome: timed_out after 3.0 s; 15 tokens, $0.0007.\n"
            "Error: too late\nOutput:\nnot in the drawer",
            id="what it had so far",
        ),
        pytest.param(
            Outcome(Ending.SUCCEEDED, "in the drawer", note="It continued with changed code."),
            "Outcome: succeeded after 3.0 s; 15 tokens, $0.0007.\n"
            "Note: It continued with changed code.\nOutput:\nin the drawer",
            id="how it came about",
        ),
        pytest.param(
            Outcome(Ending.LOST), "Outcome: lost after 3.0 s; 15 tokens, $0.0007.", id="nothing"
        ),
    ],
)
def test_a_completion_names_the_goal_the_time_and_the_outcome(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, *, outcome: Outcome, said: str
) -> None:
    """The session may have talked of other things for hours."""
    begin(DeliveryCapability.PUSH)
    usage = Usage(calls=1, input_tokens=10, output_tokens=5, micro_usd=700)
    tell(requested(A, mode=Mode.DETACHED), TaskStarted(A))
    tell(ModelAnswered(A, AssistantMessage(usage=usage)), TaskSettled(A, outcome))

    mail = ledger.sessions[S].mail[8]
    assert isinstance(mail, TaskNotice)
    assert mail.text() == (
        "A task that you delegated in the background has ended:"
        " /editor/researcher[1] (a).\n"
        "Asked: 1970-01-01 00:00:05 UTC, in turn 1.\n"
        f"Goal: find it\n{said}"
    )


@pytest.mark.parametrize(
    ("usage", "money"),
    [
        (Usage(), "$0"),
        (Usage(calls=1, micro_usd=7), "<$0.0001"),
        (Usage(calls=2, unpriced=1, micro_usd=7), "≥ $0"),
        (Usage(micro_usd=1_234_567), "$1.2346"),
        (Usage(unpriced=1), "price unknown"),
        (Usage(micro_usd=20_000, unpriced=1), "≥ $0.0200"),
        (Usage(micro_usd=10**15), ">$1,000,000,000"),
    ],
)
def test_an_unknown_cost_is_not_shown_as_free(usage: Usage, money: str) -> None:
    """A sum with an unknown part is a lower bound, and says so."""
    assert usd(usage) == money
