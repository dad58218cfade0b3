"""The port for reading: the records of sessions and tasks that are in memory."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from orchestrator.delegation import Account, Rules, SessionId, SessionRecord, TaskId, TaskRecord
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion


class Records(Protocol):
    """The state after all facts so far, to read (`Ledger` implements it).

    Only the engine and the journal have the ledger itself: they change it by facts alone.
    """

    @property
    def last_seq(self) -> int:
        """The number of the last fact."""
        ...

    @property
    def rules(self) -> Rules:
        """The limits of delegation."""
        ...

    @property
    def sessions(self) -> Mapping[SessionId, SessionRecord]:
        """The sessions in memory, oldest first."""
        ...

    @property
    def all_sessions(self) -> Mapping[SessionId, None]:
        """All sessions, oldest first, also the evicted ones."""
        ...

    @property
    def tasks(self) -> Mapping[TaskId, TaskRecord]:
        """The tasks of the sessions in memory."""
        ...

    @property
    def accounts(self) -> Mapping[str, Account]:
        """All budgets that were ever set, by id."""
        ...

    @property
    def open_questions(self) -> Mapping[ApprovalId, ApprovalQuestion]:
        """The approval questions that have no verdict yet, oldest first."""
        ...

    @property
    def scheduled(self) -> Mapping[SessionId, SessionRecord]:
        """The sessions with jobs."""
        ...

    def is_evicted(self, session: SessionId) -> bool:
        """Return whether a session exists whose records are not in memory."""
        ...

    def is_cancelled(self, task: TaskId) -> bool:
        """Return whether the end of a task, or of one above it, was requested."""
        ...

    def settles_on_teardown(self, task: TaskId) -> bool:
        """Return whether a task that is torn down now has ended, or is resumed later."""
        ...

    def unsettled_below(self, task: TaskId) -> Iterator[TaskRecord]:
        """Yield the joined tasks below one that have not ended, deepest first."""
        ...
