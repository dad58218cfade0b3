"""The facts, one class each. The journal is a sequence of these and nothing else.

A session's life: it is opened; doors open onto it and close; it receives messages; its turns
start by taking the mail, are resumed after a crash, and end; their replies are delivered.
A task's life: it is requested, started (once more after a crash), may be told something, may be
quiet for a while, and is settled, once.
Both say what they do in the same facts: a model answered or failed, a tool answered; somebody is
asked for approval, and answers; a command starts in the background, prints what is watched for,
and ends.

The facts that every task has are structs: they cost a fraction, and are part of no cycle.
"""

import enum
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from agents import (
    AssistantMessage,
    Budget,
    CallId,
    Message,
    MessageId,
    Part,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from delegation.events.approvals import ApprovalId, ApprovalVerdict
from delegation.events.processes import ProcessId
from delegation.task import (
    DeliveryCapability,
    Grant,
    Mode,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
)

NO_ID: Final = MessageId("")
EMPTY: Final[Mapping[str, str]] = {}


@attrs.frozen
class JournalOpened:
    """An orchestrator took the journal over: whatever ran before runs no more."""

    version: str


@attrs.frozen(kw_only=True)
class Said:
    """A message of a conversation that was led elsewhere before."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    parts: tuple[Part, ...] = ()
    """What a user sent with it."""
    calls: tuple[ToolCall, ...] = ()
    """What an assistant called."""
    call: str = ""
    """What a tool answers."""

    def message(self, number: int) -> Message:
        """Return it as an agent reads it.

        Args:
            number: its place in the conversation, by which it is named.
        """
        id_ = MessageId(f"h_{number}")
        if self.role == "user":
            return UserMessage(self.text, self.parts, id=id_)
        if self.role == "assistant":
            return AssistantMessage(self.text, self.calls, id=id_)
        return ToolMessage(CallId(self.call), self.text, id=id_)


@attrs.frozen
class SessionOpened:
    session: SessionId
    agent: str
    budget: Budget | None = None
    """What all of it may use."""
    grants: tuple[Grant, ...] = ()
    """The budgets under which it was opened."""
    forked_from: str = ""
    """The run that it goes on from in another way, and the task at which they part: RUN/TASK."""
    attended: bool = False
    """Somebody is there to be asked for approval, also where nobody can be told anything later."""
    history: tuple[Said, ...] = ()
    """What was said elsewhere before."""
    labels: Mapping[str, str] = EMPTY
    """What whoever opened it wrote on it, to know it again. Nobody else reads that."""


@attrs.frozen
class DoorOpened:
    """From now on the session can be told something."""

    session: SessionId
    capability: DeliveryCapability


@attrs.frozen
class DoorClosed:
    session: SessionId


@attrs.frozen
class SessionClosed:
    """Whoever talked to a session has ended it for good: what it was not told is dropped."""

    session: SessionId
    dropped: tuple[int, ...] = ()
    """The mail that nobody will read."""
    deleted: bool = False
    """It is shown to nobody any more. That can be said of one that is closed already."""


@attrs.frozen
class MessageReceived:
    """Somebody said something to a session: mail."""

    session: SessionId
    text: str
    parts: tuple[Part, ...] = ()
    id: MessageId = NO_ID
    """Its name in the transcript; facts of the first version have none."""
    context: Mapping[str, str] = EMPTY
    """Where it comes from: the strings of `delegation.session_context`, by their short names."""
    grants: tuple[Grant, ...] = ()
    """The budgets under which it was said: they hold for the turn that reads it."""
    instructions: str = ""
    """What holds for the turn that reads it, besides what its agent is told always."""
    silent: bool = False
    """It says nothing: the history of its session ends with what there is to go on with."""


@attrs.frozen
class TurnStarted:
    """A session began a turn, and with this very fact has read the mail."""

    session: SessionId
    turn: int
    capability: DeliveryCapability
    mail: tuple[int, ...]
    """The sequence numbers of the facts that it reads."""
    characters: int | None = None
    """How many characters of news its agent can read at once, where that is known."""


@attrs.frozen
class TurnResumed:
    """A turn that a crash interrupted goes on, behind whatever door there is now."""

    session: SessionId
    turn: int
    capability: DeliveryCapability
    afresh: bool = False
    """It begins anew, and knows nothing of what it had done before."""


@attrs.frozen
class TurnEnded:
    session: SessionId
    turn: int
    outcome: Outcome


@attrs.frozen
class ReplyDelivered:
    """A door took the reply of a turn."""

    session: SessionId
    turn: int


@attrs.frozen
class DeliveryFailed:
    """A door could not hand over the reply of a turn."""

    session: SessionId
    turn: int
    attempt: int
    error: str


class TaskRequested(msgspec.Struct, frozen=True, gc=False):
    request: TaskRequest
    mode: Mode
    reason: Reason


class TaskStarted(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    afresh: bool = False
    """It begins anew after a crash, and knows nothing of what it had done before."""


class ModelAnswered(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    message: AssistantMessage
    copied: bool = False
    """It was said in the run that this one is forked from: nothing is used for it here."""


class ModelFailure(enum.StrEnum):
    """Why a model call gave no answer."""

    FAILED = "failed"
    """The provider failed, which ends the task."""
    CUT_OFF = "cut_off"
    """The budget paid for no longer answer, which ends the task."""
    BROKEN_OFF = "broken_off"
    """The call was cancelled."""
    UNRECORDABLE = "unrecordable"
    """The model answered, and the answer cannot be recorded."""


@attrs.frozen
class ModelFailed:
    """A model call gave no answer. Its usage is booked all the same."""

    task: TaskId
    error: str
    usage: Usage
    reason: ModelFailure = ModelFailure.FAILED


@attrs.frozen
class ToolAnswered:
    task: TaskId
    message: ToolMessage
    mail: tuple[int, ...] = ()
    """The mail that the answer tells, and that is read with this very fact."""


class SteeringOrigin(enum.StrEnum):
    """Where a steering message comes from."""

    TASK = "task"
    """A task above, by its tool."""
    OUTSIDE = "outside"
    """A person or a program."""


@attrs.frozen
class Steered:
    """A message was sent to a task while it runs."""

    task: TaskId
    id: MessageId
    text: str
    by: str
    """The sender as the task reads it: the path of a task, or a name."""
    origin: SteeringOrigin = SteeringOrigin.OUTSIDE


@attrs.frozen
class SteeringSeen:
    """A task has read what was said to it, before its next model call."""

    task: TaskId
    ids: tuple[MessageId, ...]


@attrs.frozen
class QuietChanged:
    """A task has shown no sign of life for a while, or shows one again."""

    task: TaskId
    quiet: bool


@attrs.frozen
class ApprovalAsked:
    """A call of a task waits until somebody has said whether it may be run."""

    task: TaskId
    id: ApprovalId
    call: CallId
    tool: str
    subject: str
    deadline: float
    """In seconds since the epoch."""
    details: str = ""
    """What the call says, as far as people are shown it."""


@attrs.frozen
class ApprovalAnswered:
    """Somebody has said whether a call may be run, or the time to say so is over."""

    task: TaskId
    id: ApprovalId
    answer: ApprovalVerdict
    reason: str = ""
    by: str = ""


@attrs.frozen
class ProcessStarted:
    """A task has started a command in the background. What carries its id belongs to it."""

    task: TaskId
    id: ProcessId
    command: str
    notify: bool
    host: str = ""
    """The machine that it runs on; older facts do not name it."""


@attrs.frozen
class ProcessMatched:
    """A command has printed what its task watches for: mail."""

    task: TaskId
    id: ProcessId
    lines: tuple[str, ...]
    left_out: int = 0
    """How many such lines before these came too quickly to be told."""


@attrs.frozen
class ProcessEnded:
    """A command in the background has ended. It is mail if whoever started it wants to know."""

    task: TaskId
    id: ProcessId
    how: str
    """In words."""
    output: str = ""
    """The end of what it printed."""
    left_out: int = 0


@attrs.frozen
class CancelRequested:
    """A task and all below it are to end."""

    task: TaskId


class TaskSettled(msgspec.Struct, frozen=True, gc=False):
    """A task ended. If it was detached, this is mail for the session that asked."""

    task: TaskId
    outcome: Outcome


SessionEvent: TypeAlias = (
    SessionOpened
    | DoorOpened
    | DoorClosed
    | SessionClosed
    | MessageReceived
    | TurnStarted
    | TurnResumed
    | TurnEnded
    | ReplyDelivered
    | DeliveryFailed
)
"""The facts that name their session."""
TaskEvent: TypeAlias = (
    ModelAnswered
    | ToolAnswered
    | TaskStarted
    | TaskSettled
    | ModelFailed
    | CancelRequested
    | Steered
    | SteeringSeen
    | QuietChanged
    | ApprovalAsked
    | ApprovalAnswered
    | ProcessStarted
    | ProcessMatched
    | ProcessEnded
)
"""The facts that name their task, the most frequent first."""
Event: TypeAlias = JournalOpened | SessionEvent | TaskRequested | TaskEvent


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A fact with its place: the line of the journal.

    There is one for every fact, so it is as cheap as can be. It is part of no cycle.
    """

    seq: int
    at: float
    """Seconds since the epoch."""
    session: SessionId
    """The tree it belongs to; empty for what belongs to none."""
    event: Event
