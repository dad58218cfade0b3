"""The ledger: the state folded from the facts, and the due work.

The same facts make the same ledger, so a restart needs no code of its own. Indexes answer the
questions that the loops of the orchestrator ask repeatedly.
"""

from collections.abc import Iterator
from typing import Any, Final, get_args

from orchestrator.delegation.budget import Account
from orchestrator.delegation.events import Event, JournalOpened, TaskEvent, TaskRequested
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion
from orchestrator.delegation.ledger.fold import fold_entry
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.task import DETACHED, NO_DELIVERY, Mode, SessionId, TaskId

_TASK_EVENTS: Final = frozenset(get_args(TaskEvent))


class Ledger:
    """The state after all facts so far."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = Rules() if rules is None else rules
        """They decide about slots only; no fact is judged by them."""
        self.last_seq = 0
        self.host = ""
        """The machine of the process that opened the journal last."""
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.sessions: dict[SessionId, SessionRecord] = {}
        self.all_sessions: dict[SessionId, None] = {}
        """All sessions, oldest first, also the evicted ones."""
        self.accounts: dict[str, Account] = {}
        """All budgets that were ever set, by id."""
        self.startable: dict[TaskId, TaskRecord] = {}
        """Detached tasks that have a slot and are not started, oldest first."""
        self.joinable: dict[TaskId, TaskRecord] = {}
        """The same of joined tasks, which the waiting parent starts."""
        self.unstartable: dict[TaskId, TaskRecord] = {}
        """Tasks that will never start, each with the dependency that did not succeed."""
        self.open_questions: dict[ApprovalId, ApprovalQuestion] = {}
        """The questions that have no verdict yet, oldest first."""
        self.wakeable: dict[SessionId, SessionRecord] = {}
        """Sessions with an open door and a turn to begin or to resume."""
        self.scheduled: dict[SessionId, SessionRecord] = {}
        """Sessions with jobs."""

    fold = fold_entry

    def is_evicted(self, session: SessionId) -> bool:
        """Return whether a session exists whose records are not in memory."""
        return session in self.all_sessions and session not in self.sessions

    def is_cancelled(self, task: TaskId) -> bool:
        """Return whether the end of a task, or of one above it, was requested."""
        record: TaskRecord | None = self.tasks[task]
        while record is not None:
            if record.cancel_requested:
                return True
            # A detached task outlives its parent.
            record = None if record.node.mode is DETACHED else record.parent
        return False

    def settles_on_teardown(self, task: TaskId) -> bool:
        """Return whether a task that is torn down now has ended, or is resumed later.

        It has ended if that was requested, or if its caller waited inside a turn and is gone.
        """
        if self.is_cancelled(task):
            return True
        record = self.tasks[task]
        while record.parent is not None:
            if record.mode is DETACHED:
                return False
            record = record.parent
        turn = self.sessions[record.session].turn
        return turn is not None and turn.capability is NO_DELIVERY

    def can_ask_approval(self, task: TaskId) -> bool:
        """Return whether people can be asked to approve the calls of a task."""
        record = self.tasks[task]
        while record.parent is not None and record.mode is not DETACHED:
            record = record.parent
        session = self.sessions[record.session]
        # A session that gets the outcome later can be asked meanwhile.
        is_reached = record.mode is DETACHED or (
            session.turn is not None and session.turn.capability is not NO_DELIVERY
        )
        return is_reached or session.attended

    def has_no_runner(self, task: TaskId) -> bool:
        """Return whether a task that has not ended runs nowhere."""
        record = self.tasks[task]
        return record.is_interrupted if record.is_root else not record.is_running

    def is_descendant(self, task: TaskId, above: TaskId) -> bool:
        """Return whether a task is a descendant of another."""
        record = self.tasks.get(task)
        while record is not None and record.parent is not None:
            record = record.parent
            if record.id == above:
                return True
        return False

    def unsettled_below(self, task: TaskId) -> Iterator[TaskRecord]:
        """Yield the joined tasks below one that have not ended, deepest first."""
        for child in reversed(self.tasks[task].children.unsettled.values()):
            if child.mode is Mode.JOINED:
                yield from self.unsettled_below(child.id)
                yield child

    def session_of(self, event: Event) -> SessionId:
        """Return the session that a fact belongs to; the empty one for a fact of none."""
        # Asked for every fact: `isinstance` tries the members of a union one by one.
        kind = type(event)
        fact: Any = event
        found: SessionId
        if kind in _TASK_EVENTS:
            found = self.tasks[fact.task].session
        elif kind is TaskRequested:
            found = fact.request.origin.session
        else:
            found = SessionId("") if kind is JournalOpened else fact.session
        return found
