"""Facts of version 2 get the values that version 3 has beside its sentences."""

import json
from typing import Any

import pytest

from orchestrator.agents import RefusedBy, Usage
from orchestrator.delegation import Cause, Encoded, Ending, Outcome, TaskId, decode
from orchestrator.delegation.events import (
    ModelFailed,
    ModelFailure,
    Steered,
    SteeringOrigin,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
)


def read(kind: str, body: dict[str, Any]) -> Any:
    return decode(Encoded(kind, 2, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("ending", "error", "more", "cause"),
    [
        ("succeeded", "", {"output": "it is done"}, Cause.NONE),
        ("cancelled", "it was stopped", {}, Cause.STOPPED),
        ("cancelled", "it was stopped, and then it broke", {}, Cause.STOPPED),
        ("cancelled", "it was stopped before it could go on", {}, Cause.BEFORE_START),
        ("cancelled", "whoever asked for it stopped waiting", {}, Cause.NOT_AWAITED),
        ("cancelled", "the task that asked for it ended first", {}, Cause.ENDED_FIRST),
        ("lost", "the task that asked for it ended first", {}, Cause.ENDED_FIRST),
        ("lost", "its process died before it had ended", {}, Cause.PROCESS_DIED),
        ("lost", "the call that asked for it failed when it was made again", {}, Cause.CALL_FAILED),
        ("refused", "it needs /a/b, which ended as failed", {}, Cause.DEPENDENCY),
        ("timed_out", "used up its limit of 5 seconds", {}, Cause.DEADLINE),
        ("timed_out", "stalled: no sign of life for 2 seconds", {}, Cause.STALLED),
        ("over_budget", "used up its limit of 3 model calls", {}, Cause.LIMIT),
        ("over_budget", "the budget (calls=1) of /a is used up: 1", {}, Cause.BUDGET),
        ("over_budget", "/a/b[1] over_budget: the budget of it", {}, Cause.CHILD),
        ("failed", "/a/b[1] failed: down", {"kind": "other"}, Cause.CHILD),
        ("failed", "down", {"kind": "rate_limit"}, Cause.MODEL),
        ("failed", "no int", {"schema_errors": ["no int"]}, Cause.OUTPUT),
        ("failed", "ValueError: a bug (a.py:1)", {}, Cause.ERROR),
        ("failed", "/etc/passwd: not found", {}, Cause.ERROR),
    ],
)
def test_an_outcome_gets_its_cause(
    ending: str, error: str, more: dict[str, Any], cause: Cause
) -> None:
    outcome = {"ending": ending, "error": error, **more}
    settled = read("TaskSettled", {"task": "a", "outcome": outcome})
    turn = read("TurnEnded", {"session": "s", "turn": 1, "outcome": outcome})

    assert isinstance(settled, TaskSettled)
    assert isinstance(turn, TurnEnded)
    assert settled.outcome == turn.outcome
    assert (settled.outcome.cause, settled.outcome.error) == (cause, error)


@pytest.mark.parametrize(
    ("error", "account"),
    [
        ("the budget (calls=1) of /a is used up: 1 call", "the budget (calls=1) of /a"),
        (
            "/a/b[1] over_budget: the budget 'of /x' (usd=0.5) of /a/b[1] cannot be kept",
            "the budget 'of /x' (usd=0.5) of /a/b[1]",
        ),
        ("used up its limit of 3 model calls", ""),
    ],
)
def test_an_outcome_names_the_account_as_it_was_described(error: str, account: str) -> None:
    outcome = {"ending": "over_budget", "error": error}
    fact = read("TaskSettled", {"task": "a", "outcome": outcome})

    assert fact.outcome.account == account


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("it was broken off", ModelFailure.BROKEN_OFF),
        ("its answer cannot be kept", ModelFailure.UNRECORDABLE),
        ("down", ModelFailure.FAILED),
    ],
)
def test_a_failed_model_call_gets_its_reason(error: str, reason: ModelFailure) -> None:
    fact = read("ModelFailed", {"task": "a", "error": error, "usage": {"calls": 1}})

    assert fact == ModelFailed(TaskId("a"), error, Usage(calls=1), reason)


@pytest.mark.parametrize(
    ("text", "failed", "refused_by"),
    [
        ("there is no tool 'x'; there are: none", True, RefusedBy.UNKNOWN_TOOL),
        ("you have made this very call 3 times and", True, RefusedBy.REPEAT_LIMIT),
        ("terminal was denied by Ann. It was not run.", True, RefusedBy.APPROVAL),
        ("edit-file needs an approval, and nobody", True, RefusedBy.APPROVAL),
        ("task was approved for 'x', and is about", True, RefusedBy.APPROVAL),
        ("the orchestrator is stopping, and nothing", True, RefusedBy.SHUTDOWN),
        ("broken off: everything stopped during", True, RefusedBy.CRASH),
        ("the file is not there", True, None),
        ("there is no tool 'x' in the shed", False, None),
    ],
)
def test_a_refused_call_says_what_refused_it(
    text: str, failed: bool, refused_by: RefusedBy | None
) -> None:
    message = {"call": "c", "text": text, "failed": failed}
    fact = read("ToolAnswered", {"task": "a", "message": message})

    assert isinstance(fact, ToolAnswered)
    assert fact.message.refused_by is refused_by


@pytest.mark.parametrize(
    ("by", "origin"),
    [
        ("/editor", SteeringOrigin.TASK),
        ("outside", SteeringOrigin.OUTSIDE),
        ("the HTTP API", SteeringOrigin.OUTSIDE),
    ],
)
def test_steering_says_where_it_comes_from(by: str, origin: SteeringOrigin) -> None:
    fact = read("Steered", {"task": "a", "id": "m", "text": "go", "by": by})

    assert isinstance(fact, Steered)
    assert fact.origin is origin


def test_a_fact_of_this_version_is_not_upgraded() -> None:
    """Its sentence may say anything."""
    body = b'{"task":"a","outcome":{"ending":"cancelled","error":"it was stopped"}}'

    assert decode(Encoded("TaskSettled", 3, body)) == TaskSettled(
        TaskId("a"), Outcome(Ending.CANCELLED, error="it was stopped")
    )
