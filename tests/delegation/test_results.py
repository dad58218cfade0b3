"""`delegate_task` answers with JSON that a model can act on."""

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Compaction,
    ScriptedModel,
    ToolCall,
    Transcript,
    Usage,
    UserMessage,
)
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Reason,
    Rules,
    SessionId,
    SessionRecord,
    TaskId,
    TaskRecord,
    dispatched_answer,
    joined_answer,
    readable_characters,
)
from orchestrator.delegation.events import (
    DoorOpened,
    JournalOpened,
    ModelAnswered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
)
from orchestrator.delegation.notices import share_per_result
from orchestrator.delegation.tools.results import task_result

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

S = SessionId("s")
A, B = map(TaskId, "ab")
PLENTY = 50_000
PRICED = Usage(calls=1, input_tokens=10, output_tokens=5, micro_usd=700)


def answer_of(tasks: Sequence[TaskRecord], session: SessionRecord, characters: int) -> str:
    share = share_per_result(len(tasks), characters)
    return joined_answer(tasks, session, [task_result(task, session, share) for task in tasks])


def test_the_answer_of_joined_tasks_has_each_result_in_the_order_asked(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The call as a whole is complete; how each task ended is its own matter."""
    begin(DeliveryCapability.NONE)
    tell(requested(A, label="first"), requested(B), TaskStarted(A), TaskStarted(B))
    tell(ModelAnswered(A, AssistantMessage(usage=PRICED)))
    tell(ModelAnswered(B, AssistantMessage(usage=Usage(calls=1, unpriced=1))))
    misfits = ("/year: 'x' is no number",)
    tell(TaskSettled(B, Outcome(Ending.FAILED, "half", "no more paper", schema_errors=misfits)))
    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED, "42", note="It asked twice.")))
    answer = answer_of([ledger.tasks[A], ledger.tasks[B]], ledger.sessions[S], PLENTY)

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
                "note": "It asked twice.",
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


def test_the_answer_explains_why_the_task_was_joined(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Else a model believes that a result is still to come."""
    begin(DeliveryCapability.NONE)
    tell(requested(A, reason=Reason.CANNOT_BE_TOLD_LATER))
    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED)))
    answer = json.loads(answer_of([ledger.tasks[A]], ledger.sessions[S], PLENTY))

    assert answer["note"] == (
        "This ran within the same response, not in the background:"
        " the caller cannot be told anything after its turn ends."
    )


def test_an_outcome_without_a_recorded_traceback_has_an_empty_one() -> None:
    assert Outcome(Ending.FAILED, error="no more paper").traceback == ""
    assert Outcome(Ending.FAILED, recorded_traceback="line 3").traceback == "line 3"


def test_the_answer_counts_all_below(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(DeliveryCapability.NONE)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), TaskStarted(B))
    tell(ModelAnswered(B, AssistantMessage(usage=PRICED)))
    tell(*(TaskSettled(task, Outcome(Ending.SUCCEEDED)) for task in (B, A)))
    (result,) = json.loads(answer_of([ledger.tasks[A]], ledger.sessions[S], PLENTY))["results"]

    assert (result["tokens"], result["cost_usd"]) == (15, 0.0007)


def test_the_receipt_of_detached_tasks_names_them_and_announces_notices(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """A model that waits or asks again would do it for ever."""
    begin(DeliveryCapability.PUSH)
    tell(*(requested(task, mode=Mode.DETACHED) for task in (A, B)))
    receipt = json.loads(dispatched_answer([ledger.tasks[A], ledger.tasks[B]], ledger.sessions[S]))

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


@pytest.mark.parametrize("rules", [Rules(detached=1)])
def test_a_receipt_names_the_position_and_the_dependencies_of_a_task(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """One has room, one is the next, and one needs both of them."""
    begin(DeliveryCapability.PUSH)
    tell(requested(A, mode=Mode.DETACHED, label="facts"))
    tell(requested(B, mode=Mode.DETACHED))
    tell(requested("c", mode=Mode.DETACHED, needs=(B, A)))
    answer = json.loads(dispatched_answer([*ledger.tasks.values()][1:], ledger.sessions[S]))

    assert answer["tasks"] == [
        {"task_id": "a", "path": "/editor/researcher[1]", "label": "facts"},
        {"task_id": "b", "path": "/editor/researcher[2]", "position": 1},
        {"task_id": "c", "path": "/editor/researcher[3]", "waits_for": ["a", "b"]},
    ]


@pytest.mark.parametrize("rules", [Rules(detached=1)])
def test_a_receipt_names_interrupted_tasks_too(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The call that asked is made again, whether its tasks are back or not."""
    begin(DeliveryCapability.PUSH)
    tell(requested(A, mode=Mode.DETACHED), requested(B, mode=Mode.DETACHED))
    tell(JournalOpened("1.0"))
    tasks = [ledger.tasks[A], ledger.tasks[B]]
    answer = json.loads(dispatched_answer(tasks, ledger.sessions[S]))

    assert [it["task_id"] for it in answer["tasks"]] == [A, B]
    assert not any("position" in it for it in answer["tasks"])


@pytest.mark.parametrize("rules", [Rules(detached=1)])
def test_a_requeued_task_has_a_position_after_a_crash(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(DeliveryCapability.PUSH)
    tell(requested(A, mode=Mode.DETACHED), requested(B, mode=Mode.DETACHED))
    tell(JournalOpened("1.0"), DoorOpened(S, DeliveryCapability.PUSH))
    tasks = [ledger.tasks[A], ledger.tasks[B]]
    answer = json.loads(dispatched_answer(tasks, ledger.sessions[S]))

    assert [it.get("position") for it in answer["tasks"]] == [None, 1]


def test_long_results_share_the_readable_characters(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Each says how much of it is left out, and how the rest is read."""
    begin(DeliveryCapability.NONE)
    tell(requested(A), requested(B))
    tell(TaskSettled(A, Outcome(Ending.SUCCEEDED, "x" * 30_001)))
    tell(TaskSettled(B, Outcome(Ending.SUCCEEDED, "y" * 25_000)))
    tasks = [ledger.tasks[A], ledger.tasks[B]]
    results = json.loads(answer_of(tasks, ledger.sessions[S], PLENTY))["results"]

    assert results[0]["output"] == (
        "x" * 25_000 + "\n[5001 of 30001 characters are left out here:"
        ' task(action="result", ids=["a"], offset=25000) reads on.]'
    )
    assert results[1]["output"] == "y" * 25_000


def calls(number: int) -> AssistantMessage:
    return AssistantMessage(
        calls=tuple(ToolCall("t", id=CallId(f"c{place}")) for place in range(number))
    )


def test_readable_characters_shrink_with_the_remaining_window() -> None:
    def left(window: int | None, *said: str, together: int = 1) -> int:
        compaction = None if window is None else Compaction(window=window)
        agent = Agent("editor", model=ScriptedModel([]), compaction=compaction)
        heard = [UserMessage(text) for text in said]
        return readable_characters(agent, Transcript([*heard, calls(together)]))

    assert left(None, "x" * 10**6) == 50_000
    assert left(10**6) == 49_999
    assert 0 < left(10_000, "x" * 4_000) == left(10_000) - 2_000
    assert left(10_000, together=2) == left(10_000) // 2
    assert left(10_000, together=0) == left(10_000)
    assert left(2_000, "x" * 9_000) == 200
    agent = Agent("editor", model=ScriptedModel([]), compaction=Compaction(window=2_000))
    assert readable_characters(agent, Transcript()) == 700
