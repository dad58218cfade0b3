"""Approvals: the question that a person is asked before a tool runs, and the verdict."""

import enum
from typing import Final, NewType

import msgspec

from orchestrator.agents import CallId
from orchestrator.delegation.task import TaskId

ApprovalId = NewType("ApprovalId", str)

BY_DEADLINE: Final = "the deadline"
"""The author of the verdict on a question that no person has answered in time."""


class ApprovalVerdict(enum.StrEnum):
    """The answer to a question."""

    ONCE = "once"
    """This call may run."""
    TASK = "task"
    """Each call like it may run in this task and below it; of a root, in this turn."""
    SESSION = "session"
    """Each call like it may run in this session."""
    DENY = "deny"


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that waits for an approval."""

    id: ApprovalId
    task: TaskId
    path: str
    """The path of the task."""
    call: CallId
    tool: str
    subject: str
    """The approved command, file, or call."""
    details: str
    """The arguments of the call, as far as people are shown them."""
    asked_at: float
    deadline: float
    """Seconds since the epoch: without an answer the call is denied then."""
    why: str = ""
    """Why it is asked about, if no rule of the agent says so."""
    answer: ApprovalVerdict | None = None
    reason: str = ""
    by: str = ""
    """The author of the answer."""
    answered_while_not_running: bool = False
    """It was answered while the task did not run: the call was not run either."""

    @property
    def is_open(self) -> bool:
        """It has no answer yet."""
        return self.answer is None

    @property
    def was_not_run(self) -> bool:
        """The call was certainly not run."""
        return self.answer in {None, ApprovalVerdict.DENY} or self.answered_while_not_running
