"""The fold of the facts: what is true now, and what is due.

It only ever learns by `post`. Whoever folds the same facts gets the same ledger, so a restart
needs no code of its own. What the orchestrator asks again and again is kept in an index.
"""

from collections.abc import Iterator
from typing import assert_never

from delegation.budget import Account
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    QuietChanged,
    ReplyDelivered,
    SessionClosed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from delegation.events.approvals import ApprovalId, ApprovalQuestion
from delegation.ledger.fold import fold_entry
from delegation.ledger.records import SessionRecord, TaskRecord
from delegation.rules import Rules
from delegation.task import (
    DeliveryCapability,
    Mode,
    SessionId,
    TaskId,
)


class Ledger:
    """What is true after all the facts so far."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = Rules() if rules is None else rules
        """They say who has room, and nothing of what is true."""
        self.last_seq = 0
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.sessions: dict[SessionId, SessionRecord] = {}
        self.all_sessions: dict[SessionId, None] = {}
        """All sessions, oldest first, also those at rest that are not remembered any more."""
        self.accounts: dict[str, Account] = {}
        """All budgets that were ever set, by id."""
        self.startable: dict[TaskId, TaskRecord] = {}
        """Detached tasks that are due, have room, and that nobody runs, oldest first."""
        self.joinable: dict[TaskId, TaskRecord] = {}
        """The same of joined tasks: whoever waits for them runs them."""
        self.unstartable: dict[TaskId, TaskRecord] = {}
        """Tasks that will never start, each with the task that it needs and that did not
        succeed."""
        self.open_questions: dict[ApprovalId, ApprovalQuestion] = {}
        """What somebody is asked to approve now, oldest first."""
        self.wakeable: dict[SessionId, SessionRecord] = {}
        """Sessions that can be told something now, and have a turn to begin or to resume."""

    def fold(self, entry: Entry) -> None:
        """Learn a fact, or raise `ImpossibleEventError` and stay as it was."""
        fold_entry(self, entry)

    def is_evicted(self, session: SessionId) -> bool:
        """Tell whether a session is known, and nothing more of it."""
        return session in self.all_sessions and session not in self.sessions

    def abandoned(self) -> list[SessionRecord]:
        """Return the sessions whose interrupted turn nobody will ever take up again.

        Whoever asked was waiting inside the turn, and died with it.
        """
        return [
            session
            for session in self.sessions.values()
            if (turn := session.turn) is not None
            and turn.interrupted
            and turn.capability is DeliveryCapability.NONE
        ]

    def is_cancelled(self, task: TaskId) -> bool:
        """Tell whether a task, or one above it, was asked to end."""
        record: TaskRecord | None = self.tasks[task]
        while record is not None:
            if record.cancel_requested:
                return True
            # What runs in the background outlives the turn that asked for it.
            record = None if record.mode is Mode.DETACHED else record.parent
        return False

    def settles_on_teardown(self, task: TaskId) -> bool:
        """Tell whether a task that is torn down now has ended, or can be taken up later.

        It has ended if that was asked for, or if whoever asked for it was waiting inside a turn
        and is gone with it.
        """
        if self.is_cancelled(task):
            return True
        record = self.tasks[task]
        while record.parent is not None:
            if record.mode is Mode.DETACHED:
                return False
            record = record.parent
        turn = self.sessions[record.session].turn
        return turn is not None and turn.capability is DeliveryCapability.NONE

    def can_ask_approval(self, task: TaskId) -> bool:
        """Tell whether there is somebody who can be asked to approve what a task does."""
        record = self.tasks[task]
        while record.parent is not None and record.mode is not Mode.DETACHED:
            record = record.parent
        session = self.sessions[record.session]
        # Whoever is told later how it ended can be asked meanwhile.
        is_reached = record.mode is Mode.DETACHED or (
            session.turn is not None
            and session.turn.capability is not DeliveryCapability.NONE
        )
        return is_reached or session.attended

    def has_no_runner(self, task: TaskId) -> bool:
        """Tell whether a task that has not ended waits for somebody to run it."""
        record = self.tasks[task]
        if record.mode is Mode.ROOT:
            turn = self.sessions[record.session].turn
            return turn is not None and turn.interrupted
        return not record.is_running

    def is_descendant(self, task: TaskId, above: TaskId) -> bool:
        """Tell whether a task is a descendant of another."""
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
        """Return the tree that a fact belongs to."""
        match event:
            case TaskRequested():
                return event.request.origin.session
            case (
                ModelAnswered()
                | ToolAnswered()
                | TaskStarted()
                | TaskSettled()
                | ModelFailed()
                | CancelRequested()
                | Steered()
                | SteeringSeen()
                | QuietChanged()
                | ApprovalAsked()
                | ApprovalAnswered()
                | ProcessStarted()
                | ProcessMatched()
                | ProcessEnded()
            ):
                return self.tasks[event.task].session
            case (
                SessionOpened()
                | DoorOpened()
                | DoorClosed()
                | SessionClosed()
                | MessageReceived()
                | TurnStarted()
                | TurnResumed()
                | TurnEnded()
                | ReplyDelivered()
                | DeliveryFailed()
            ):
                return event.session
            case JournalOpened():
                return SessionId("")
            case _:
                assert_never(event)
