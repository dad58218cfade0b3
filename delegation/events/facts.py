"""The facts, one class each. The journal is a sequence of facts and nothing else.

A session is opened; doors open onto it and close; it receives messages. Its turns start by reading
the mail, are resumed after a crash, and end; their replies are delivered, whole or in parts. Jobs
are set in it, paused and removed; their times occur.
A task is requested, started (again after a crash), may be steered, may be quiet for a while, and
is settled once. A task that starts at once is requested and started by one fact, and one whose last
answer ends it is answered and settled by one fact: readers that need both take `parts_of` a fact.
Both have the same facts about their work: a model answered or failed; a tool answered; an approval
was asked and answered; a call was lent to a worker; a background command started, printed a watched
line, went out of sight of the machine that took the journal over, and ended; a command asked for a
host of the network. The first task of a session that touches the machine opens its workspace, which
ties the session to it.

A fact is a struct that the garbage collector does not track: a fact is never part of a cycle.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    Budget,
    CallId,
    MessageId,
    Part,
    ToolMessage,
    Usage,
)
from orchestrator.delegation.answer_terms import NO_TERMS, AnswerTerms
from orchestrator.delegation.earlier_message import EarlierMessage
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalVerdict
from orchestrator.delegation.events.jobs import JobId, JobSpec
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import NO_STATES, StateFields, StoredStates
from orchestrator.delegation.task import (
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
GivenSettings: TypeAlias = Mapping[str, Any] | msgspec.UnsetType
"""The settings of a model call that were given, by name; most calls have none."""
WaitSpan: TypeAlias = tuple[float, float] | msgspec.UnsetType
"""When a model call began to wait for its provider, and when it was sent; most do not wait."""


def _empty() -> Mapping[str, str]:
    # A struct would copy an empty dictionary for each fact.
    return EMPTY


def _no_states() -> StoredStates:
    return NO_STATES


class JournalOpened(msgspec.Struct, frozen=True, gc=False):
    """An orchestrator took the journal over: all that ran before is interrupted."""

    version: str
    host: str = ""
    """The machine that it runs on."""


class SessionOpened(msgspec.Struct, frozen=True, gc=False):
    session: SessionId
    agent: str
    budget: Budget | None = None
    """The most that its whole tree uses."""
    grants: tuple[Grant, ...] = ()
    """The budgets around the call that opened it."""
    forked_from: str = ""
    """The run that it is a fork of, and the task at which they part: RUN/TASK."""
    attended: bool = False
    """A person can approve calls, also where the door delivers nothing after a turn."""
    history: tuple[EarlierMessage, ...] = ()
    """The conversation before it was opened."""
    owner: str = ""
    """Whose it is, where it came by a door with several owners; "" is the operator's."""
    metadata: Mapping[str, str] = msgspec.field(default_factory=_empty)
    """The notes that its client keeps with it."""
    states: StoredStates = msgspec.field(default_factory=_no_states)
    """The states that products keep in it, by their names."""
    kind: SessionKind = SessionKind.PROGRAM


class KindChanged(msgspec.Struct, frozen=True, gc=False):
    """A session of a program became one of another kind: a server goes on with it."""

    session: SessionId
    kind: SessionKind


class MetadataChanged(msgspec.Struct, frozen=True, gc=False):
    """The client of a session has replaced the notes that it keeps with it."""

    session: SessionId
    metadata: Mapping[str, str]


class StateChanged(msgspec.Struct, frozen=True, gc=False):
    """A product has changed its state in a session. `change_state` makes this fact."""

    session: SessionId
    state: str
    """The name of the state."""
    changes: StateFields
    """The fields that have another value. A field of entries has the entries that are another; an
    entry that is None is removed."""


class DoorOpened(msgspec.Struct, frozen=True, gc=False):
    """A door was attached to a session: replies can be delivered."""

    session: SessionId
    capability: DeliveryCapability


class DoorClosed(msgspec.Struct, frozen=True, gc=False):
    session: SessionId


class SessionClosed(msgspec.Struct, frozen=True, gc=False):
    """The client has closed a session for good: its unread mail is dropped."""

    session: SessionId
    dropped: tuple[int, ...] = ()
    """The sequence numbers of the mail that was not read."""
    deleted: bool = False
    """It is not listed any more. A closed session can be closed again to be deleted."""


class MessageReceived(msgspec.Struct, frozen=True, gc=False):
    """A session received a message from its client: mail."""

    session: SessionId
    text: str
    parts: tuple[Part, ...] = ()
    id: MessageId = NO_ID
    """Its id in the transcript; the fold names a message without one by the number of the fact."""
    context: Mapping[str, str] = msgspec.field(default_factory=_empty)
    """The variables of `orchestrator.delegation.session_context`, by their short names."""
    grants: tuple[Grant, ...] = ()
    """The budgets around the call that sent it: they pay for the turn that reads it."""
    instructions: str = ""
    """Added to the agent's instructions in the turn that reads it."""
    silent: bool = False
    """It has no text: the turn goes on with the last message of the session's history."""
    async_delivery: bool = True
    """Its sender can receive results after the turn that reads it, if the door can deliver them."""
    terms: AnswerTerms = NO_TERMS
    """How its sender wants the answers of the session from then on."""


class TurnStarted(msgspec.Struct, frozen=True, gc=False):
    """A session started a turn, and has read the mail with this fact."""

    session: SessionId
    turn: int
    capability: DeliveryCapability
    mail: tuple[int, ...]
    """The sequence numbers of the mail that it reads."""
    characters: int | None = None
    """How many characters of notices its agent can read at once, where that is known."""
    version: str | msgspec.UnsetType = msgspec.UNSET
    """The version of its agent, if the agent declares one."""
    trace: str | msgspec.UnsetType = msgspec.UNSET
    """The span of the caller that sent its last message, as a `traceparent`, if one is known."""


class TurnResumed(msgspec.Struct, frozen=True, gc=False):
    """A turn that a crash interrupted was resumed, with the door of now.

    Or one that runs begins anew, because the worker that had the state of its tools is gone.
    """

    session: SessionId
    turn: int
    capability: DeliveryCapability
    afresh: bool = False
    """It starts from the beginning: its steps before the crash are forgotten."""
    paused: float = 0.0
    """For how many seconds it was interrupted, if its budgets do not count them."""
    accepts_changes: bool = False
    """Its programs may request other tasks than before the crash."""


class TurnInterrupted(msgspec.Struct, frozen=True):
    """The process of a run has stopped it, as a crash would: it waits until it is resumed."""

    session: SessionId
    turn: int
    reason: str
    """A sentence for people: how its program has changed."""


class TurnEnded(msgspec.Struct, frozen=True, gc=False):
    session: SessionId
    turn: int
    outcome: Outcome


class ReplyDelivered(msgspec.Struct, frozen=True, gc=False):
    """A door delivered the reply of a turn."""

    session: SessionId
    turn: int


class DeliveryFailed(msgspec.Struct, frozen=True, gc=False):
    """A door could not deliver the reply of a turn."""

    session: SessionId
    turn: int
    attempt: int
    error: str


class ReplyPartDelivered(msgspec.Struct, frozen=True, gc=False):
    """A door delivered a part of a reply: one of several messages, or to one of several places."""

    session: SessionId
    turn: int
    part: str
    """The name of the part, chosen by the door."""
    receipt: str = ""
    """The id of the message at its chat."""


class JobSet(msgspec.Struct, frozen=True, gc=False):
    """A job was set, or set anew: from then on its times count."""

    session: SessionId
    """Its session: the one in which it was set, or one of its own."""
    job: JobSpec
    at: float
    """When, by the clock that people read; the time of a fact goes on steadily instead."""
    call: str = ""
    """The call of the agent that set it: repeated after a crash, it sets the job once."""


class JobPaused(msgspec.Struct, frozen=True, gc=False):
    """A job was paused, or goes on. What would have been due meanwhile is not caught up."""

    session: SessionId
    job: JobId
    paused: bool
    at: float


class JobRemoved(msgspec.Struct, frozen=True, gc=False):
    """A job was removed. What runs of it ends in peace."""

    session: SessionId
    job: JobId


class JobOccurred(msgspec.Struct, frozen=True, gc=False):
    """A time of a job has come: a run began, or none, and why."""

    session: SessionId
    job: JobId
    at: float
    """The time, in seconds since the epoch."""
    run: SessionId
    """The session of the run; its id is made of the job and the time."""
    skipped: str = ""
    """Why none began."""
    missed: int = 0
    """How many times before it went by without a run."""
    by_hand: bool = False
    """A person began it: it stands for no time of the schedule."""


class TaskRequested(msgspec.Struct, frozen=True, gc=False):
    request: TaskRequest
    mode: Mode
    reason: Reason
    started: bool = False
    """It starts with this fact: a slot is free, and its parent runs it at once."""


class TaskStarted(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    afresh: bool = False
    """It starts from the beginning: its steps before the crash, or before the worker was lost
    that had the state of its tools, are forgotten."""


class ModelCalled(msgspec.Struct, frozen=True, gc=False):
    """A model is called for a task under a budget: one call of a provider, or a retry of one.

    It is durable before the call is made: a process that dies meanwhile may have paid for it.
    """

    task: TaskId
    reserved: Usage
    """The most that the call may use."""


class ModelAnswered(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    message: AssistantMessage
    copied: bool = False
    """It was copied from the run that this one is a fork of, which has paid for it."""
    left_out: int = 0
    """How many characters of the conversation the model did not read, to fit its window."""
    charged: Usage | None = None
    """The charge of budgets, if the model did not report its usage."""
    settings: GivenSettings = msgspec.UNSET
    """How the model was to answer."""
    instructions: str | msgspec.UnsetType = msgspec.UNSET
    """The instructions that a function of its agent had made for this turn: of the first answer
    after that. A turn that is resumed goes on with them."""
    waited: WaitSpan = msgspec.UNSET


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
    ATTEMPT = "attempt"
    """The provider failed, and was to be called again, or another one."""
    SUMMARY = "summary"
    """The model wrote a summary, since the request did not fit its window."""
    QUESTION = "question"
    """A call for a question to the parent, whatever became of it: the answer of the tool says."""
    CONVERSATION = "conversation"
    """The model wrote a summary of the conversation, the text, for tasks that it delegates."""


class ModelFailed(msgspec.Struct, frozen=True, gc=False):
    """A model call gave no answer. Its usage is booked all the same."""

    task: TaskId
    error: str
    usage: Usage
    reason: ModelFailure = ModelFailure.FAILED
    text: str = ""
    """The text of the model so far: an incomplete message of the transcript, or a summary."""
    charged: Usage | None = None
    """The charge on budgets, if it is higher: the most that the call may have used."""
    settings: GivenSettings = msgspec.UNSET
    """How the model was to answer."""
    then: str = ""
    """The model that is called instead, after an attempt; "" is the same one again."""
    waited: WaitSpan = msgspec.UNSET
    reserved: Usage | msgspec.UnsetType = msgspec.UNSET
    """The most that another call for the same answer may use, which is still under way."""


class ToolAnswered(msgspec.Struct, frozen=True, gc=False):
    task: TaskId
    message: ToolMessage
    mail: tuple[int, ...] = ()
    """The mail that the answer contains, and that is read with this fact."""


class CallPlaced(msgspec.Struct, frozen=True, gc=False):
    """A call waits for a worker at a place, or a worker has begun to run it there.

    The second is durable before the worker begins: a call without it has never run. Of an agent
    with a place it is said once for a turn, by the first call that needs the worker. Of a tool of
    an MCP server it says which task the server has made of the call: `place` is `mcp:` and the
    name of the server, `execution` is the id of the task.
    """

    task: TaskId
    call: CallId
    place: str
    attempt: int = 0
    """The number of the attempt; it grows over all processes that write the journal."""
    worker: str = ""
    """The worker that runs it; empty while it waits for one."""
    execution: str = ""
    """The name that the worker has given to its execution of this attempt."""
    wants: str = ""
    """The version of its agent that no worker has had so far, and why that matters."""
    turn: bool = False
    """The worker runs all calls of this turn from then on, and has the state of its tools."""


class SteeringOrigin(enum.StrEnum):
    """Where a steering message comes from."""

    TASK = "task"
    """A task above, by its tool."""
    OUTSIDE = "outside"
    """A person or a program."""


class Steered(msgspec.Struct, frozen=True, gc=False):
    """A message was sent to a task while it runs."""

    task: TaskId
    id: MessageId
    text: str
    by: str
    """The sender as the task reads it: the path of a task, or a name."""
    origin: SteeringOrigin = SteeringOrigin.OUTSIDE


class SteeringSeen(msgspec.Struct, frozen=True, gc=False):
    """A task has read steering messages, before its next model call."""

    task: TaskId
    ids: tuple[MessageId, ...]


class QuietChanged(msgspec.Struct, frozen=True, gc=False):
    """A task shows no sign of life for a while, or shows one again."""

    task: TaskId
    quiet: bool


class StartsPaused(msgspec.Struct, frozen=True, gc=False):
    """No new task below this one starts any more, or they start again."""

    task: TaskId
    paused: bool


class ApprovalAsked(msgspec.Struct, frozen=True, gc=False):
    """A tool call waits for the approval of a person."""

    task: TaskId
    id: ApprovalId
    call: CallId
    tool: str
    subject: str
    deadline: float
    """Seconds since the epoch; the call is denied then."""
    details: str = ""
    """The arguments of the call, as far as people are shown them."""
    why: str = ""
    """Why it is asked about, if no rule of the agent says so."""


class ApprovalAnswered(msgspec.Struct, frozen=True, gc=False):
    """A person approved or denied a call, or the deadline denied it."""

    task: TaskId
    id: ApprovalId
    answer: ApprovalVerdict
    reason: str = ""
    by: str = ""


class ProcessStarted(msgspec.Struct, frozen=True, gc=False):
    """A task started a background command. Its processes carry the id as a tag."""

    task: TaskId
    id: ProcessId
    command: str
    notify: bool
    host: str = ""
    """The machine that it runs on."""


class ProcessMatched(msgspec.Struct, frozen=True, gc=False):
    """A background command printed lines that its task watches for: mail."""

    task: TaskId
    id: ProcessId
    lines: tuple[str, ...]
    left_out: int = 0
    """How many watched lines before these came too quickly, and are left out."""


class ProcessUnreachable(msgspec.Struct, frozen=True, gc=False):
    """The journal was taken over on another machine, which cannot see a command of the first.

    Whether it still runs is not known. It is mail if its task asked for a notice. A process on the
    machine of the command says later that it has ended.
    """

    task: TaskId
    id: ProcessId
    host: str
    """The machine that took the journal over."""


class ProcessEnded(msgspec.Struct, frozen=True, gc=False):
    """A background command ended. It is mail if its task asked for a notice."""

    task: TaskId
    id: ProcessId
    how: str
    """A sentence for people and models."""
    output: str = ""
    """The end of its output."""
    left_out: int = 0


class WorkspaceOpened(msgspec.Struct, frozen=True, gc=False):
    """A task opened the workspace of its session, the first one that can touch the machine."""

    task: TaskId
    host: str
    """The machine that has the folder: the session goes on there, and nowhere else."""
    path: str


class NetworkRequested(msgspec.Struct, frozen=True, gc=False):
    """A command asked its proxy for a host, and this request is over."""

    task: TaskId
    target: str
    """The name of the host, and the port: `pypi.org:443`."""
    allowed: bool
    sent: int = 0
    """How many bytes the host was sent."""
    received: int = 0
    """How many bytes came back."""


class CancelRequested(msgspec.Struct, frozen=True, gc=False):
    """The cancellation of a task and its descendants was requested."""

    task: TaskId


class TaskSettled(msgspec.Struct, frozen=True, gc=False):
    """A task ended. The end of a detached task is mail for its session."""

    task: TaskId
    outcome: Outcome
    answer: ModelAnswered | None = None
    """The last answer of its model, if that ended the task in the same step."""


# The groups of facts, by their readers. A reader narrows to its groups with `isinstance`, and
# matches each of these to the end: a new fact is a type error in the readers of its group alone.
DoorFact: TypeAlias = (
    SessionOpened
    | KindChanged
    | MetadataChanged
    | StateChanged
    | SessionClosed
    | DoorOpened
    | DoorClosed
    | TurnResumed
    | TurnInterrupted
    | ReplyDelivered
    | ReplyPartDelivered
    | DeliveryFailed
)
"""A session, its doors and its deliveries."""
JobFact: TypeAlias = JobSet | JobPaused | JobRemoved | JobOccurred
"""A job and its times."""
TurnFact: TypeAlias = MessageReceived | TurnStarted | TurnEnded
"""The conversation of a session."""
StepFact: TypeAlias = ModelAnswered | ToolAnswered | TaskStarted | TaskSettled
"""A step of a task."""
AttemptFact: TypeAlias = ModelCalled | ModelFailed | QuietChanged
"""An attempt at a step: a repetition of the run may need other ones."""
SteeringFact: TypeAlias = Steered | SteeringSeen | CancelRequested
"""A message to a task, or its cancellation."""
OversightFact: TypeAlias = ApprovalAsked | ApprovalAnswered | StartsPaused
"""A person decides about a task, or is asked to."""
ProcessFact: TypeAlias = ProcessStarted | ProcessMatched | ProcessEnded | ProcessUnreachable
"""A background command."""
PlaceFact: TypeAlias = WorkspaceOpened | NetworkRequested | CallPlaced
"""The machine that a task works on, and the hosts that it reaches."""

WorkFact: TypeAlias = TurnFact | TaskRequested | StepFact
"""The course of a run: a replay repeats these facts, and a fork copies them."""
SessionEvent: TypeAlias = DoorFact | TurnFact | JobFact
"""The facts that name their session."""
TaskEvent: TypeAlias = (
    StepFact | AttemptFact | SteeringFact | OversightFact | ProcessFact | PlaceFact
)
"""The facts that name their task."""
Event: TypeAlias = JournalOpened | SessionEvent | TaskRequested | TaskEvent


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A numbered fact: one row of the journal.

    A struct, which is cheap and never part of a cycle: there is one for every fact.
    """

    seq: int
    at: float
    """Seconds since the epoch."""
    session: SessionId
    """The session that it is about; empty for `JournalOpened`."""
    event: Event


def parts_of(event: Event) -> tuple[Event, ...]:
    """Return the two facts that a fact stands for: request and start, or answer and end.

    Any other fact is its only part.
    """
    if isinstance(event, TaskRequested) and event.started:
        return replace(event, started=False), TaskStarted(event.request.id)
    if isinstance(event, TaskSettled) and event.answer is not None:
        return event.answer, replace(event, answer=None)
    return (event,)


def in_parts(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the parts of facts, each with the number and the time of its fact."""
    for entry in entries:
        for part in parts_of(entry.event):
            yield entry if part is entry.event else replace(entry, event=part)
