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
from delegation import Ending, Mode, TaskId, TaskRecord
from delegation.events import ModelAnswered, SteeringSeen, TaskSettled, ToolAnswered
from orchestrator.engine.model_events import Listeners
from orchestrator.engine.reservations import Spending
from orchestrator.engine.watchdog import Sign
from orchestrator.execution.outcomes import unfinished
from orchestrator.journal.bookkeeper import Bookkeeper

ABANDONED: Final = "the call that asked for it failed when it was made again"


@attrs.frozen(kw_only=True)
class Backstage:
    """What all roles share."""

    book: Bookkeeper
    spending: Spending
    listeners: Listeners
    told: Mapping[TaskId, dict[CallId, Sequence[int]]]
    """The mail that answers tell which are about to be kept."""
    end_below: Callable[[TaskId, Ending], None]
    """Settles what a task had asked for."""


class Role:
    """The hands and ears of one task."""

    __slots__ = ("_backstage", "_record", "_sign")

    def __init__(
        self, backstage: Backstage, record: TaskRecord, sign: Sign | None
    ) -> None:
        self._backstage = backstage
        self._record = record
        self._sign = sign

    def paid(self, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of the task."""
        return self._backstage.spending.paid_by(self._record, model)

    def keep(self, step: Step) -> Step:
        """Write a step down, and return it as it is kept."""
        record, backstage = self._record, self._backstage
        kept: Step
        if isinstance(step, AssistantMessage):
            kept = backstage.book.post(ModelAnswered(record.id, step)).message
            backstage.spending.booked(record.id)
        else:
            if step.failed and record.children.unsettled:
                self._end_children_of(step.call)
            told = self._read(step)
            kept = backstage.book.post(ToolAnswered(record.id, step, told)).message
        if self._sign is not None:
            self._sign.step(step)
        return kept

    def tell(self, event: ModelEvent) -> None:
        """Tell everybody who listens what the model does."""
        if self._sign is not None:
            self._sign.hear(event)
        self._backstage.listeners.tell(self._record.id, event)

    def hear(self) -> Sequence[UserMessage]:
        """Let the task read what was said to it meanwhile."""
        record = self._record
        if not record.steering:
            return ()
        unseen = tuple(id_ for id_, it in record.steering.items() if it.is_unseen)
        if not unseen:
            return ()
        self._backstage.book.post(SteeringSeen(record.id, unseen))
        return cast("Sequence[UserMessage]", record.transcript[-len(unseen) :])

    def _end_children_of(self, call: CallId) -> None:
        """End what a call had asked for before a crash, and that it fails to ask for again."""
        book = self._backstage.book
        for key, task in list(self._record.children.asked.items()):
            child = book.ledger.tasks[task]
            is_joined = child.outcome is None and child.mode is Mode.JOINED
            if is_joined and key.startswith(f"{call}#"):
                self._backstage.end_below(task, Ending.LOST)
                outcome = unfinished(child, Ending.LOST, ABANDONED)
                book.post(TaskSettled(task, outcome))

    def _read(self, answer: ToolMessage) -> tuple[int, ...]:
        """Return the mail that an answer tells, and that no other has told before it."""
        record, backstage = self._record, self._backstage
        told = backstage.told.get(record.id, {}).pop(answer.call, ())
        mail = backstage.book.ledger.sessions[record.session].mail
        return tuple(seq for seq in told if seq in mail)
