"""The end of a task: the only place that posts `TaskSettled` and `TurnEnded`.

A task ends after the tasks that it joined, and before the tasks that depend on it are refused.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from orchestrator.agents import Agent, AssistantMessage
from orchestrator.delegation import Cause, Ending, Outcome, TaskId, TaskRecord, unmet_dependency
from orchestrator.delegation.events import ModelAnswered, TaskSettled, TurnEnded
from orchestrator.kernel.execution.outcomes import ENDED_FIRST, unfinished_outcome
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

CHANGES_ACCEPTED: Final = "it was resumed with changes accepted"
SUCCEEDED: Final = Ending.SUCCEEDED
"""A constant: the class of an Enum answers slowly in Python 3.11."""


class Settlement:
    """Settles tasks: for the runner of a task, and for callers that end one that does not run."""

    def __init__(
        self,
        book: Bookkeeper,
        *,
        pop_note: Callable[[TaskId], str],
        note_activity: Callable[[TaskId], None],
    ) -> None:
        """Settle tasks in a journal; `pop_note` returns the note about a task's workspace once."""
        self._book = book
        self._pop_note = pop_note
        self._note_activity = note_activity
        self.notes: Final[dict[TaskId, list[str]]] = {}
        """The notes of tasks that have not ended, besides those about a workspace."""

    def settle(
        self, task: TaskRecord, outcome: Outcome, agent: Agent[Any] | None = None
    ) -> Outcome:
        """End a task, or the turn of a root, and return the recorded outcome.

        The outcome of a task that ran with an agent has evidence of its effects.
        """
        if agent is not None and agent.plan.has_evidence and not task.is_root:
            outcome = self._with_evidence(task, outcome, agent)
        if task.children.unsettled:
            is_lost = outcome.ending is Ending.LOST
            self.settle_descendants(task, Ending.LOST if is_lost else Ending.CANCELLED)
        recorded = self._post(task, outcome)
        if self._book.ledger.unstartable:
            self.refuse_unstartable()
        return recorded

    def settle_answered(self, task: TaskRecord, answer: ModelAnswered) -> AssistantMessage:
        """End a child that has nothing below it with its last answer, in one fact."""
        outcome = Outcome(SUCCEEDED, answer.message.text)
        for call in task.children.by_call:
            child = self._book.ledger.tasks[task.children.by_call[call]].outcome
            if child is not None and child.ending is not SUCCEEDED:
                outcome = self._with_evidence(task, outcome)
                break
        recorded = self._book.post(TaskSettled(task.id, outcome, answer)).answer
        assert recorded is not None, "a fact is redacted field by field"
        parent = task.parent
        assert parent is not None, "only a root has no parent"
        if not parent.is_root:
            self._note_activity(parent.id)
        return recorded.message

    def _with_evidence(
        self, task: TaskRecord, outcome: Outcome, agent: Agent[Any] | None = None
    ) -> Outcome:
        """Return the outcome of a task with the evidence of its effects."""
        # Imported late: most tasks have neither tools nor unsuccessful children.
        from orchestrator.kernel.engine.task_evidence import task_evidence

        return replace(outcome, recorded_evidence=task_evidence(task, agent, self._book.ledger))

    def settle_descendants(self, task: TaskRecord, ending: Ending) -> None:
        """End the joined tasks below a task, deepest first."""
        for child in list(self._book.ledger.unsettled_below(task.id)):
            # It may have been refused meanwhile, because it depended on one of the others.
            if child.outcome is None:
                ended = unfinished_outcome(child, ending, Cause.ENDED_FIRST, ENDED_FIRST)
                self._post(child, ended)
                self.refuse_unstartable()

    def refuse_unstartable(self) -> None:
        """End the tasks that never start, because a dependency has not succeeded."""
        ledger = self._book.ledger
        while ledger.unstartable:
            task, dependency = next(iter(ledger.unstartable.items()))
            refused = Outcome(
                Ending.REFUSED, error=unmet_dependency(dependency), cause=Cause.DEPENDENCY
            )
            self._post(ledger.tasks[task], refused)

    def _post(self, task: TaskRecord, outcome: Outcome) -> Outcome:
        note = self._pop_note(task.id)
        if self.notes:
            note = "; ".join(filter(None, [note, *self.notes.pop(task.id, ())]))
        if note:
            outcome = replace(outcome, note=note)
        if task.is_root:
            turn = self._book.ledger.sessions[task.session].turn
            assert turn is not None, "a root is settled in a turn"
            if turn.accepts_changes:
                note = "; ".join(filter(None, [CHANGES_ACCEPTED, outcome.note]))
                outcome = replace(outcome, note=note)
            ended = TurnEnded(task.session, turn.number, outcome)
            return self._book.post(ended).outcome
        recorded = self._book.post(TaskSettled(task.id, outcome)).outcome
        assert task.parent is not None, "only a root has no parent"
        if not task.parent.is_root:
            self._note_activity(task.parent.id)
        return recorded
