"""The groups of facts, by which readers narrow before they match."""

from collections import Counter
from typing import get_args

from orchestrator.delegation.events import (
    AttemptFact,
    DoorFact,
    Event,
    JobFact,
    JournalOpened,
    OversightFact,
    PlaceFact,
    ProcessFact,
    SessionEvent,
    SteeringFact,
    StepFact,
    TaskEvent,
    TaskRequested,
    TurnFact,
)
from orchestrator.delegation.ledger.fold import FOLDS

GROUPS = (
    *(DoorFact, TurnFact, JobFact, StepFact, AttemptFact),
    *(SteeringFact, OversightFact, ProcessFact, PlaceFact),
)


def test_each_fact_is_in_one_group() -> None:
    grouped = Counter(kind for group in GROUPS for kind in get_args(group))
    assert grouped == Counter(set(get_args(Event)) - {JournalOpened, TaskRequested})


def test_each_fact_has_a_fold_of_its_own() -> None:
    assert set(FOLDS) == set(get_args(Event))
    assert len(set(FOLDS.values())) == len(FOLDS)


def test_facts_name_their_sessions_and_tasks() -> None:
    for kind in get_args(SessionEvent):
        assert "session" in kind.__annotations__, kind
    for kind in get_args(TaskEvent):
        assert "task" in kind.__annotations__, kind
