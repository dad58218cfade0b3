"""One agent at work: what it says is kept, what it hears is handed to it.

A role is made for every task that acts, so it is small, and what all of them share is `Backstage`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import attrs

from agents import (
    AssistantMessage,
    CallId,
    Model,
    ModelEvent,
    Step,
    ToolMessage,
    UserMessage,
)
from delegation import Ending, Mode, Outcome, TaskId, TaskRecord
from delegation.events import ModelAnswered, SteeringSeen, ToolAnswered
from orchestrator.engine.model_events import ModelEventSubscribers
from orchestrator.engine.reservations import Reservations
from orchestrator.engine.watchdog import TaskActivity
from orchestrator.execution.outcomes import unfinished_outcome
from orchestrator.journal.bookkeeper import Bookkeeper

ABANDONED: Final = "the call that asked for it failed when it was made again"


@attrs.frozen(kw_only=True)
class Backstage:
    """What all roles share."""

    book: Bookkeeper
    spending: Reservations
    listeners: ModelEventSubscribers
    told: Mapping[TaskId, dict[CallId, Sequence[int]]]
    """The mail that answers tell which are about to be kept."""
    settle: Callable[[TaskRecord, Outcome], Outcome]


class LocalTaskHost:
    """The hands and ears of one task."""

    __slots__ = ("_activity", "_backstage", "_record")

    def __init__(
        self, backstage: Backstage, record: TaskRecord, activity: TaskActivity | None
    ) -> None:
        self._backstage = backstage
        self._record = record
        self._activity = activity

    def budgeted_model(self, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of the task."""
        return self._backstage.spending.budgeted_model(self._record, model)

    def record_step(self, step: Step) -> Step:
        """Write a step down, and return it as it is kept."""
        record, backstage = self._record, self._backstage
        kept: Step
        if isinstance(step, AssistantMessage):
            kept = backstage.book.post(ModelAnswered(record.id, step)).message
            backstage.spending.call_recorded(record.id)
        else:
            if step.failed and record.children.unsettled:
                self._settle_children_of(step.call)
            told = self._read(step)
            kept = backstage.book.post(ToolAnswered(record.id, step, told)).message
        if self._activity is not None:
            self._activity.on_step(step)
        return kept

    def emit(self, event: ModelEvent) -> None:
        """Tell everybody who listens what the model does."""
        if self._activity is not None:
            self._activity.on_model_event(event)
        self._backstage.listeners.emit(self._record.id, event)

    def steering(self) -> Sequence[UserMessage]:
        """Let the task read what was said to it meanwhile."""
        record = self._record
        if not record.steering:
            return ()
        unseen = tuple(id_ for id_, it in record.steering.items() if it.is_unseen)
        if not unseen:
            return ()
        self._backstage.book.post(SteeringSeen(record.id, unseen))
        return cast("Sequence[UserMessage]", record.transcript[-len(unseen) :])

    def _settle_children_of(self, call: CallId) -> None:
        """End what a call had asked for before a crash, and that it fails to ask for again."""
        book = self._backstage.book
        for key, task in list(self._record.children.by_call.items()):
            child = book.ledger.tasks[task]
            is_joined = child.outcome is None and child.mode is Mode.JOINED
            if is_joined and key.startswith(f"{call}#"):
                outcome = unfinished_outcome(child, Ending.LOST, ABANDONED)
                self._backstage.settle(child, outcome)

    def _read(self, answer: ToolMessage) -> tuple[int, ...]:
        """Return the mail that an answer tells, and that no other has told before it."""
        record, backstage = self._record, self._backstage
        told = backstage.told.get(record.id, {}).pop(answer.call, ())
        mail = backstage.book.ledger.sessions[record.session].mail
        return tuple(seq for seq in told if seq in mail)
