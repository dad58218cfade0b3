"""The messages of a worker and the writer of a journal about one call, or one turn.

An execution asks whether it may begin, and reports its end. In between, the execution of a turn
asks for calls, and reports the end of each. The writer answers when the journal is durable. An
unreadable message is an error of its sender, never a crash.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from orchestrator.agents import CallId, Part, ToolCall
from orchestrator.products.cluster.work import Dispatch, DispatchId, ExecutionId

MOST_BYTES: Final = 8 * 1024 * 1024
"""The largest call, and the largest answer, that is sent."""
BEGIN: Final = 0
END: Final = 1
"""The numbers of the first and the last request of an execution; those between have higher ones."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """May I run this attempt?"""

    dispatch: str
    attempt: int
    place: str


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The tool has answered."""

    dispatch: str
    text: str
    parts: tuple[Part, ...] = ()
    """Images and files of the answer."""
    evidence: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The effect of the call."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The tool raised a `ToolError`, which the model reads."""

    dispatch: str
    text: str
    refused_by: str = ""


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """The tool raised any other error, which ends the task."""

    dispatch: str
    text: str
    expected: bool = False
    """Its text is enough for people: no type and no line of code is added to it."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The execution was told to end, or had to: all of it has ended."""

    dispatch: str
    note: str = ""
    """The leftovers of a turn on the machine, for the parent of the task."""


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """The worker cannot run the call or turn, and has not begun to."""

    dispatch: str
    why: str
    lasting: bool = True
    """It never can: its agents are others. Else the next attempt may be for it again."""


class Next(msgspec.Struct, frozen=True, tag="next"):
    """A request for the calls of the worker's turn that are due."""

    dispatch: str
    begun: tuple[str, ...] = ()
    """The calls that it has begun, and whose answers are not acknowledged."""


CallEnd: TypeAlias = Answered | Failed | Crashed


class CallEnded(msgspec.Struct, frozen=True, tag="call_ended"):
    """A call of a turn has ended; the turn goes on."""

    dispatch: str
    call: str
    end: CallEnd


End: TypeAlias = CallEnd | Stopped | Unfit
Question: TypeAlias = Begin | Next | CallEnded | End


class Work(msgspec.Struct, frozen=True, tag="work"):
    """Yes, and this is the call."""

    agent: tuple[str, ...]
    """Names from an agent of the file down to the agent of the task."""
    version: str
    """The fingerprint of that agent."""
    tool: str
    arguments: dict[str, Any]
    call: str
    key: str
    seconds: float | None
    """The rest of the timeout."""
    session: str
    path: str
    context: dict[str, str]
    async_delivery: bool
    walled: bool
    """A wall would hold its commands at the writer, so that no person was asked about them."""


class TurnWork(msgspec.Struct, frozen=True, tag="turn"):
    """Yes: ask for the calls of this turn."""

    agent: tuple[str, ...]
    """Names from an agent of the file down to the agent of the task."""
    version: str
    """The fingerprint of that agent."""
    session: str
    path: str
    context: dict[str, str]
    async_delivery: bool
    processes: int
    """How many commands may run in the background at once."""


class DueCall(msgspec.Struct, frozen=True):
    """A call of a turn, for the worker that has the turn."""

    tool: str
    arguments: dict[str, Any]
    call: str
    key: str
    seconds: float | None
    """The rest of the timeout."""


class Calls(msgspec.Struct, frozen=True, tag="calls"):
    """Run these; there may be none yet, which says that the writer is there."""

    calls: tuple[DueCall, ...] = ()


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """The answer of a call is in the journal; the turn goes on."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """The end of the execution is in the journal."""


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    """Another execution counts, or none any more: drop it."""


class Later(msgspec.Struct, frozen=True, tag="later"):
    """The worker has refused such a call before."""


Reply: TypeAlias = Work | TurnWork | Calls | Kept | Taken | Fenced | Later

_ENCODER: Final = msgspec.msgpack.Encoder()
_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
_REPLIES: Final = msgspec.msgpack.Decoder(Reply)


def encoded(value: Question | Reply) -> bytes:
    return _ENCODER.encode(value)


def question_in(body: bytes) -> Question | None:
    """Return the message of a worker; None if it is unreadable."""
    try:
        question: Question = _QUESTIONS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return question


def reply_in(body: bytes) -> Reply | None:
    """Return the message of a writer; None if it is unreadable."""
    try:
        reply: Reply = _REPLIES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return reply


def dispatch_id(prefix: str, call: CallId) -> DispatchId:
    """Return the name of a call at work queues, without the text of a model."""
    digest = hashlib.sha256(call.encode(errors="replace")).hexdigest()[:16]
    return DispatchId(f"{prefix}.{digest}")


def execution_id(dispatch: Dispatch, token: str) -> ExecutionId:
    """Return the name of an execution, which says whose it is."""
    return ExecutionId(f"{dispatch.journal}/{dispatch.id}/{dispatch.attempt}/{token}")


def call_prefix_in(execution: ExecutionId, journal: str) -> str | None:
    """Return the call prefix of the task of an execution; None if it is of another journal."""
    if not execution.startswith(f"{journal}/"):
        return None
    dispatch = execution.removeprefix(f"{journal}/").rsplit("/", 2)[0]
    return dispatch.rpartition(".")[0]


def call_of(work: Work | DueCall) -> ToolCall:
    return ToolCall(work.tool, work.arguments, id=CallId(work.call))


def size_of(arguments: Mapping[str, Any]) -> int:
    """Return how many bytes the arguments of a call have."""
    return len(_ENCODER.encode(arguments))
