"""The values of delegation: a task's request, its owner, and its outcome.

Programs decide by `Ending` and `Cause`. The sentences beside them are for people and models.
"""

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NewType

import msgspec

from orchestrator.agents import Budget
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.earlier_message import EarlierMessage

if TYPE_CHECKING:
    from orchestrator.agents.tools.evidence import Evidence

TaskId = NewType("TaskId", str)
SessionId = NewType("SessionId", str)


def root_of(session: SessionId) -> TaskId:
    """Return the root task of a session: it has the session's id."""
    return TaskId(session)


class DeliveryCapability(enum.StrEnum):
    """Whether a session's door can deliver results after a turn has ended, and how."""

    NONE = "none"
    """Nothing: all work is done within the turn."""
    POLL = "poll"
    """The client fetches new results."""
    PUSH = "push"
    """The door delivers by itself: a notice starts a turn."""


class Mode(enum.StrEnum):
    """Who owns a task."""

    ROOT = "root"
    """The session itself."""
    JOINED = "joined"
    """The parent, which waits inside its own call."""
    DETACHED = "detached"
    """The orchestrator, which sends the session a notice when the task has ended."""


# Every fact asks for these, and the class of an Enum answers slowly in Python 3.11.
ROOT: Final = Mode.ROOT
JOINED: Final = Mode.JOINED
DETACHED: Final = Mode.DETACHED
NO_DELIVERY: Final = DeliveryCapability.NONE


class Reason(enum.StrEnum):
    """Why a task is joined or detached."""

    ASKED_TO_WAIT = "asked_to_wait"
    HANDED_OFF = "handed_off"
    CANNOT_BE_TOLD_LATER = "cannot_be_told_later"
    NONE_IN_BACKGROUND = "none_in_background"
    CAN_BE_TOLD_LATER = "can_be_told_later"
    RUNS_BESIDE = "runs_beside"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.ASKED_TO_WAIT: "the caller asked to wait for it",
    Reason.HANDED_OFF: "the caller handed the conversation off to it",
    Reason.CANNOT_BE_TOLD_LATER: "the caller cannot be told anything after its turn ends",
    Reason.NONE_IN_BACKGROUND: "the rules allow nothing in the background",
    Reason.CAN_BE_TOLD_LATER: "the session that asked can be told later",
    Reason.RUNS_BESIDE: "its function goes on beside it, and waits for it at the end",
}


class Ending(enum.StrEnum):
    """How a task ended. It comes from what happened, never from "it produced text"."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OVER_BUDGET = "over_budget"
    REFUSED = "refused"
    """It never started: a dependency did not succeed, or the rules do not allow it."""
    LOST = "lost"
    """Its process died, and no door is left to deliver a result to."""


CANCELLED: Final = Ending.CANCELLED


class Cause(enum.StrEnum):
    """Why a task ended as it did."""

    NONE = "none"
    """It succeeded, or the cause is not recorded."""

    ASKED = "asked"
    """Its cancellation was requested."""
    CALLER_GONE = "caller_gone"
    """Its caller was cancelled, or left."""
    NOT_AWAITED = "not_awaited"
    """The pipeline that delegated it stopped waiting for it."""
    ENDED_FIRST = "ended_first"
    """Its parent ended first."""
    BEFORE_START = "before_start"
    """Its cancellation was requested while it did not run."""
    SESSION_CLOSED = "session_closed"
    """Its session was closed for good."""
    SHUTDOWN = "shutdown"
    """The orchestrator was stopped, and does not wait for it any more."""

    DEADLINE = "deadline"
    """Its time is used up: its agent's, or the time of the account in the outcome."""
    STALLED = "stalled"
    """It showed no sign of life for too long."""
    BUDGET = "budget"
    """A budget was used up: the account is in the outcome."""
    LIMIT = "limit"
    """A limit of its agent was used up."""

    DEPENDENCY = "dependency"
    """A task that it depends on did not succeed."""
    RULES = "rules"
    """The rules of delegation do not allow it."""
    PROCESS_DIED = "process_died"
    WORKER_LOST = "worker_lost"
    """The worker that ran its turn is gone, and the state of its tools with it."""
    CALL_FAILED = "call_failed"
    """The call that delegated it was repeated after a crash, and failed."""
    CHANGED = "changed"
    """Its program has changed since a crash, and might repeat tasks that were done before."""

    MODEL = "model"
    """The provider failed: `Outcome.kind` says how."""
    OUTPUT = "output"
    """Its answer does not fit the schema."""
    CHILD = "child"
    """A pipeline could not do without a child that did not succeed."""
    ERROR = "error"
    """Its code raised: a tool, a pipeline's program, or a definition that is wrong."""


WITH_CALLER: Final = frozenset({Cause.CALLER_GONE, Cause.NOT_AWAITED, Cause.ENDED_FIRST})
"""Causes that cancel a task with its caller, or because its caller went on without it."""


class Status(enum.StrEnum):
    """The state of a task that has not ended."""

    QUEUED = "queued"
    """It waits for a slot, or for a dependency."""
    RUNNING = "running"
    QUIET = "quiet"
    """It runs, and has shown no sign of life for a while."""
    WAITING = "waiting"
    """It waits for an approval; a session waits for mail."""
    INTERRUPTED = "interrupted"
    """Its process died; it resumes when its session is opened again."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How and why a task ended, with its output."""

    ending: Ending
    output: str = ""
    error: str = ""
    """A sentence for people and models. No program decides by it."""
    kind: str = ""
    """How a provider failed (`rate_limit`, `auth`, ...), or which amount of a budget was used up
    (`usd`, `tokens`, `calls`, `seconds`, `tasks`, `depth`), if that ended it."""
    schema_errors: tuple[str, ...] = ()
    """Where the final answer does not fit the schema, if that ended it."""
    note: str = ""
    """Further information for the parent, such as the location of the work."""
    retry_after: float | None = None
    """After how many seconds the provider that failed accepts another request, if it said so."""
    cause: Cause = Cause.NONE
    account: str = ""
    """The id of the account that was used up, if one ended it."""
    recorded_traceback: str | msgspec.UnsetType = msgspec.UNSET
    """The traceback of the error that ended it; empty for other outcomes."""
    recorded_evidence: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The evidence of its effects, if it had tools or unsuccessful children."""
    kept: bool | msgspec.UnsetType = msgspec.UNSET
    """A fork or a retry has copied it from an earlier run; not set for other outcomes."""

    @property
    def evidence(self) -> "Evidence | None":
        """Its changed files, commands, failed and denied calls, and unsuccessful children."""
        # Imported late: a task without tools has none.
        from orchestrator.agents.tools.evidence import read_evidence

        return read_evidence(self.recorded_evidence)

    @property
    def traceback(self) -> str:
        """Where in the code the error was raised that ended it, for people; empty if none was."""
        return self.recorded_traceback or ""

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.SUCCEEDED


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a request comes from. It travels by value, from the door inwards."""

    session: SessionId
    turn: int
    capability: DeliveryCapability
    """That of the door of this turn; another turn of the session may have another."""


SHARED_BUDGET_PREFIX: Final = "b_"
"""The prefix of the ids of budgets that several sessions may share."""
STANDING_BUDGET_PREFIX: Final = "b_standing:"
"""The prefix of those that a session has until a message brings it another one."""
COMMON_BUDGET_PREFIX: Final = "b_common:"
"""The prefix of those that all journals at one address share."""


class Grant(msgspec.Struct, frozen=True, gc=False):
    """A budget that was set in one place. All tasks that are delegated under it share it."""

    id: str
    budget: Budget

    @property
    def is_shared(self) -> bool:
        """It was set around sessions. The budget of one task has the id of that task."""
        return self.id.startswith(SHARED_BUDGET_PREFIX)

    @property
    def is_common(self) -> bool:
        """All journals at one address book on its account."""
        return self.id.startswith(COMMON_BUDGET_PREFIX)

    @classmethod
    def common(cls, name: str, budget: Budget) -> "Grant":
        """Return one that all journals at one address share."""
        return cls(f"{COMMON_BUDGET_PREFIX}{name}", budget)

    @classmethod
    def standing(cls, name: str, budget: Budget) -> "Grant":
        """Return one that pays for all turns of a session, until a message brings another one.

        A turn that a notice begins has no message: the sender of the last one pays for it.
        """
        return cls(f"{STANDING_BUDGET_PREFIX}{name}", budget)

    @property
    def is_standing(self) -> bool:
        """A session has it until a message brings another one."""
        return self.id.startswith(STANDING_BUDGET_PREFIX)


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work that is delegated.

    There is one for every task: a struct, which is cheap and never part of a cycle.
    """

    id: TaskId
    parent: TaskId
    origin: Origin
    call: str
    """The key of the call that delegates it: the same key twice is the same task."""
    agent: str
    goal: str
    context: str = ""
    label: str = ""
    background: bool | None = None
    """True asks for a detached task, False for a joined one; None leaves it to the rules."""
    copy: bool = False
    """A copy of the parent's own agent does it."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer must fit."""
    needs: tuple[TaskId, ...] = ()
    """The dependencies: they must succeed before it starts, and it reads their outputs."""
    input: Literal["output", "outputs"] | msgspec.UnsetType = msgspec.UNSET
    """The input of a task without a goal: the output of its dependency, or a list of outputs."""
    budget: Budget | None = None
    """The common budget of the task and its descendants."""
    grants: tuple[Grant, ...] = ()
    """The budgets around the call, besides the parent's."""
    handed: tuple[EarlierMessage, ...] | msgspec.UnsetType = msgspec.UNSET
    """The conversation of the parent, if that is handed off: its answer is the parent's."""
    to_come: int | msgspec.UnsetType = msgspec.UNSET
    """How many more tasks its fan-out asks for after this one, if it asks for them one by one."""
    beside: bool | msgspec.UnsetType = msgspec.UNSET
    """The function that requests it goes on, and owns it (`detach`)."""
    about: int | msgspec.UnsetType = msgspec.UNSET
    """The checksum of its agent's instructions, if a pipeline requests it: it tells apart equal
    requests to agents of one name."""
    version: str | msgspec.UnsetType = msgspec.UNSET
    """The version of its agent, if the agent declares one."""

    chosen: Choices | msgspec.UnsetType = msgspec.UNSET
    """The model, effort and budget that its parent chose for it, if it chose any."""

    fork: int | msgspec.UnsetType = msgspec.UNSET
    """How many messages of its parent's conversation it continues, if it is a fork of it."""

    @property
    def choices_text(self) -> str:
        """The choices of its parent for people; empty if there are none."""
        return "" if isinstance(self.chosen, msgspec.UnsetType) else str(self.chosen)

    @property
    def is_fork(self) -> bool:
        """It continues the conversation of its parent, as the same agent."""
        return self.copy and self.fork is not msgspec.UNSET

    @property
    def is_handoff(self) -> bool:
        """Its answer is the answer of its parent."""
        return self.handed is not msgspec.UNSET
