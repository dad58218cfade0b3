"""Every outcome has its cause, every failed call its reason: as values, not as sentences."""

from collections.abc import Sequence

import pytest

from orchestrator.agents import RefusedBy
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import (
    Entry,
    ModelFailed,
    ModelFailure,
    SessionOpened,
    Steered,
    SteeringOrigin,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
)
from orchestrator.products.history.replay.run import replay_sync
from tests.golden.version_1 import ONE_AT_A_TIME, agents, make_ended


@pytest.fixture(scope="module")
def entries() -> Sequence[Entry]:
    """Return the runs of the golden journal, as they are recorded now."""
    return make_ended().entries


def test_every_outcome_has_its_cause(entries: Sequence[Entry]) -> None:
    outcomes = [
        entry.event.outcome for entry in entries if isinstance(entry.event, TaskSettled | TurnEnded)
    ]

    assert {(it.ending, it.cause) for it in outcomes} == {
        (Ending.SUCCEEDED, Cause.NONE),
        (Ending.FAILED, Cause.MODEL),
        (Ending.FAILED, Cause.OUTPUT),
        (Ending.FAILED, Cause.ERROR),
        (Ending.FAILED, Cause.CHILD),
        (Ending.TIMED_OUT, Cause.DEADLINE),
        (Ending.TIMED_OUT, Cause.STALLED),
        (Ending.OVER_BUDGET, Cause.BUDGET),
        (Ending.OVER_BUDGET, Cause.LIMIT),
        (Ending.OVER_BUDGET, Cause.CHILD),
        (Ending.REFUSED, Cause.DEPENDENCY),
        (Ending.CANCELLED, Cause.ASKED),
        (Ending.CANCELLED, Cause.CALLER_GONE),
        (Ending.CANCELLED, Cause.BEFORE_START),
    }


def test_an_outcome_names_the_account_that_ended_it(entries: Sequence[Entry]) -> None:
    outcomes = [
        entry.event.outcome for entry in entries if isinstance(entry.event, TaskSettled | TurnEnded)
    ]
    tasks = {it.event.task for it in entries if isinstance(it.event, TaskSettled)}
    sessions = {it.session for it in entries}
    named = [it.account for it in outcomes if it.cause is Cause.BUDGET]

    assert named
    assert all(it in tasks | sessions or it.startswith("b_") for it in named)
    over = [it for it in outcomes if it.ending is Ending.OVER_BUDGET]
    assert all(it.account for it in over if it.cause is not Cause.LIMIT)


def test_every_failed_call_has_its_reason(entries: Sequence[Entry]) -> None:
    events = [entry.event for entry in entries]
    failed = {it.reason for it in events if isinstance(it, ModelFailed)}
    refused = {it.message.refused_by for it in events if isinstance(it, ToolAnswered)}
    origins = {it.origin for it in events if isinstance(it, Steered)}

    assert failed == {ModelFailure.FAILED, ModelFailure.BROKEN_OFF}
    assert refused == {None, RefusedBy.APPROVAL, RefusedBy.SHUTDOWN, RefusedBy.UNKNOWN_TOOL}
    assert origins == set(SteeringOrigin)


def test_freshly_recorded_runs_replay_without_difference(entries: Sequence[Entry]) -> None:
    runs = [it.event for it in entries if isinstance(it.event, SessionOpened)]
    *_, queued, interrupted = runs
    known = agents()
    for run in runs:
        rules = ONE_AT_A_TIME if run is queued else None
        replayed = replay_sync(entries, known[run.agent], run=run.session, rules=rules)

        assert replayed.is_whole is (run is not interrupted)
        assert replayed.difference is None, (run, replayed.difference)
