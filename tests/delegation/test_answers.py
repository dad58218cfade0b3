"""What `delegate_task` answers: JSON that a model can act on."""

import json
from collections.abc import Callable
from typing import TypeAlias

from agents import AssistantMessage, Usage
from delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    dispatched_answer,
    joined_answer,
)
from delegation.events import ModelAnswered, TaskRequested, TaskSettled, TaskStarted

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

S = SessionId("s")
A, B = map(TaskId, "ab")
PLENTY = 50_000
PRICED = Usage(calls=1, input_tokens=10, output_tokens=5, cost=700)


def test_the_answer_of_joined_tasks_has_each_result_in_the_order_asked(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The call as a whole is complete; how each task ended is its own matter."""
    begin(DeliveryCapability.NONE)
    tell(requested(A, label="first"), requested(B), TaskStarted(A), TaskStarted(B))
    tell(ModelAnswered(A, AssistantMessage(usage=PRICED)))
    tell(ModelAnswered(B, AssistantMessage(usage=Usage(calls=1, unpriced=1))))
    misfits = ("/year: 'x' is no number",)
    tell(
        TaskSettled(
            B, Outcome(Ending.FAILED, "half", "no more paper", schema_errors=misfits)
        )
    )
    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED, "42")))
    answer = joined_answer(
        [ledger.tasks[A], ledger.tasks[B]], ledger.sessions[S], PLENTY
    )

    assert json.loads(answer) == {
        "status": "completed",
        "results": [
            {
                "task_id": "a",
                "path": "/editor/researcher[1]",
                "agent": "researcher",
                "label": "first",
                "status": "succeeded",
                "output": "42",
                "error": "",
                "schema_errors": [],
                "tokens": 15,
                "cost_usd": 0.0007,
                "seconds": 7.0,
            },
            {
                "task_id": "b",
                "path": "/editor/researcher[2]",
                "agent": "researcher",
                "label": "",
                "status": "failed",
                "output": "half",
                "error": "no more paper",
                "schema_errors": ["/year: 'x' is no number"],
                "tokens": 0,
                "cost_usd": None,
                "seconds": 5.0,
            },
        ],
    }


def test_the_answer_says_why_it_did_not_run_in_the_background(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Else a model believes that a result is still to come."""
    begin(DeliveryCapability.NONE)
    tell(requested(A, reason=Reason.CANNOT_BE_TOLD_LATER))
    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED)))
    answer = json.loads(joined_answer([ledger.tasks[A]], ledger.sessions[S], PLENTY))

    assert answer["note"] == (
        "This ran within the same response, not in the background:"
        " whoever asked cannot be told anything after its turn ends."
    )


def test_the_answer_counts_all_below(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Whoever hands work on pays for what becomes of it."""
    begin(DeliveryCapability.NONE)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), TaskStarted(B))
    tell(ModelAnswered(B, AssistantMessage(usage=PRICED)))
    tell(*(TaskSettled(task, Outcome(Ending.SUCCEEDED)) for task in (B, A)))
    (result,) = json.loads(
        joined_answer([ledger.tasks[A]], ledger.sessions[S], PLENTY)
    )["results"]

    assert (result["tokens"], result["cost_usd"]) == (15, 0.0007)


def test_the_receipt_of_detached_tasks_names_them_and_says_what_comes(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A model that waits or asks again would do it for ever."""
    begin(DeliveryCapability.PUSH)
    tell(*(requested(task, mode=Mode.DETACHED) for task in (A, B)))
    receipt = json.loads(
        dispatched_answer([ledger.tasks[A], ledger.tasks[B]], ledger.sessions[S])
    )

    note = receipt.pop("note")
    assert receipt == {
        "status": "dispatched",
        "tasks": [
            {"task_id": "a", "path": "/editor/researcher[1]"},
            {"task_id": "b", "path": "/editor/researcher[2]"},
        ],
    }
    assert "You will be told when each ends" in note
    assert "Do not ask for them again" in note
    assert 'task(action="wait")' in note
