"""What people are asked before a tool runs, and what they answer."""

import enum
from typing import Final, NewType

import attrs

from agents import CallId
from delegation.task import TaskId

ApprovalId = NewType("ApprovalId", str)

BY_DEADLINE: Final = "the deadline"
"""Who has answered when nobody has."""


class ApprovalVerdict(enum.StrEnum):
    """What becomes of a call that somebody was asked about."""

    ONCE = "once"
    """This very call may be run."""
    TASK = "task"
    """So may each like it in this task and below it; of a session, in this turn."""
    SESSION = "session"
    """So may each like it in this session."""
    DENY = "deny"


@attrs.frozen(kw_only=True)
class ApprovalQuestion:
    """A call that waits for an approval."""

    id: ApprovalId
    task: TaskId
    path: str
    """Where in its tree the task is."""
    call: CallId
    tool: str
    subject: str
    """What is approved: this very command, file, or call."""
    details: str
    """What the call says, as far as people are shown it."""
    asked_at: float
    deadline: float
    """When it is denied if nobody has answered, in seconds since the epoch."""
    answer: ApprovalVerdict | None = None
    reason: str = ""
    by: str = ""
    """Who has answered."""
    answered_while_not_running: bool = False
    """It was answered while nobody worked on the task: the call was not run."""

    @property
    def is_open(self) -> bool:
        """Nobody has answered yet."""
        return self.answer is None

    @property
    def was_not_run(self) -> bool:
        """The call was certainly not run."""
        return (
            self.answer in {None, ApprovalVerdict.DENY}
            or self.answered_while_not_running
        )
