"""Logs the life of turns and tasks, from their facts: logger `orchestrator.runs`.

A record names the session, the task, its path, its agent and the trace of its spans.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from orchestrator.delegation import Encoded, Outcome, TaskId, printable
from orchestrator.delegation.events import (
    ApprovalAsked,
    CancelRequested,
    Entry,
    Event,
    ModelFailed,
    ModelFailure,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.loggers import logger_of
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.telemetry.current_spans import CurrentSpans

RUNS: Final = "runs"
KINDS: Final = (
    TurnStarted,
    TurnResumed,
    TurnEnded,
    TaskRequested,
    TaskStarted,
    TaskSettled,
    ModelFailed,
    ApprovalAsked,
    CancelRequested,
)
FAILURES: Final = frozenset({ModelFailure.ATTEMPT, ModelFailure.FAILED, ModelFailure.CUT_OFF})
"""The failures of model calls that people read about: the others have answered no turn."""


@contextmanager
def log_facts(book: Bookkeeper) -> Generator[None]:
    """Log the facts of all sessions as long as the block lasts."""
    with book.subscribers.subscribe_kinds(FactLog(book).receive, KINDS):
        yield


class FactLog:
    """Makes a record of each fact."""

    def __init__(self, book: Bookkeeper) -> None:
        self._records = book.records
        self._spans = CurrentSpans(book)
        self._log = logger_of(RUNS)

    def receive(self, entry: Entry, _: Encoded) -> None:
        """Log a fact. An error of a handler must not end the run."""
        event = entry.event
        task = self._records.tasks.get(_task_of(event))
        if task is None:
            return
        level, text = _sentence(event)
        about = {
            "session": task.session,
            "task": task.id,
            "path": task.path,
            "agent": task.agent,
            "trace_id": self._spans.trace_of(task),
        }
        with suppress(Exception):
            self._log.log(level, "%s %s", task.path, text, extra=about)


def _task_of(event: Event) -> TaskId:
    match event:
        case TurnStarted() | TurnResumed() | TurnEnded():
            return TaskId(event.session)
        case TaskRequested():
            return event.request.id
        case TaskStarted() | TaskSettled() | ModelFailed() | ApprovalAsked() | CancelRequested():
            return event.task
        case _:
            raise AssertionError(f"{event!r} is not among `KINDS`")


def _sentence(event: Event) -> tuple[int, str]:
    """Return the level of a fact, and a text on one line."""
    level = logging.INFO
    match event:
        case TurnStarted() | TurnResumed():
            verb = "started" if isinstance(event, TurnStarted) else "resumed"
            text = f"{verb} turn {event.turn}"
        case TurnEnded():
            level, text = _ended(event.outcome, f"turn {event.turn}")
        case TaskRequested():
            text = f"was requested, {event.mode.value}"
        case TaskStarted():
            text = "started"
        case TaskSettled():
            level, text = _ended(event.outcome, "it")
        case ModelFailed():
            level = logging.WARNING if event.reason in FAILURES else logging.DEBUG
            text = f"got no answer from its model, {event.reason.value}: {_line(event.error)}"
        case ApprovalAsked():
            text = f"asks for approval of {event.tool}"
        case _:
            text = "is to be cancelled"
    return level, text


def _ended(outcome: Outcome, subject: str) -> tuple[int, str]:
    if outcome.succeeded:
        return logging.INFO, f"ended: {subject} succeeded"
    why = f": {_line(outcome.error)}" if outcome.error else ""
    return logging.WARNING, f"ended: {subject} {outcome.ending.value}{why}"


def _line(text: str) -> str:
    return " ".join(printable(text).split())
