"""The stored state of a session: compact records, and codes for frequent values."""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from orchestrator.agents import AssistantMessage, Budget, MessageId, ToolMessage, Usage, UserMessage
from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.answer_terms import AnswerTerms
from orchestrator.delegation.errors import MISFITS, UnreadableFactError
from orchestrator.delegation.events import CallPlaced
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.events.jobs import JobRecord
from orchestrator.delegation.events.processes import ProcessNotice, ProcessRecord
from orchestrator.delegation.ledger.session_record import Envelope, PastTurn, Reply, Turn
from orchestrator.delegation.ledger.task_record import Steering
from orchestrator.delegation.ledger.task_state import (
    IDLE,
    QUEUED,
    QUIET,
    READY,
    READY_TO_RESUME,
    RUNNING,
    Ended,
    Interrupted,
    Queued,
    TaskState,
)
from orchestrator.delegation.notices import TaskNotice
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import StoredStates
from orchestrator.delegation.task import (
    DeliveryCapability,
    Ending,
    Mode,
    Outcome,
    Reason,
    SessionId,
    Status,
    TaskId,
    TaskRequest,
)

STATES: Final[dict[str, TaskState]] = {
    "i": IDLE,
    "q": QUEUED,
    "r": READY,
    "s": READY_TO_RESUME,
    "u": RUNNING,
    "v": QUIET,
    "x": Interrupted(),
}
_CODES: Final = {state: code for code, state in STATES.items()}
_ENDED: Final = "e"
REASONS: Final[dict[str, Reason | Literal[""]]] = {"": "", **{it.value: it for it in Reason}}
STATUSES: Final[dict[str, Status | Ending]] = {it.value: it for it in (*Status, *Ending)}


class StoredUser(msgspec.Struct, array_like=True, gc=False, tag="u"):
    it: UserMessage


class StoredAssistant(msgspec.Struct, array_like=True, gc=False, tag="a"):
    it: AssistantMessage


class StoredTool(msgspec.Struct, array_like=True, gc=False, tag="t"):
    it: ToolMessage


class StoredTaskNotice(msgspec.Struct, array_like=True, gc=False, tag="n"):
    it: TaskNotice


class StoredProcessNotice(msgspec.Struct, array_like=True, gc=False, tag="p"):
    it: ProcessNotice


StoredMessage: TypeAlias = StoredUser | StoredAssistant | StoredTool
StoredMail: TypeAlias = StoredUser | StoredTaskNotice | StoredProcessNotice


class StoredChildren(msgspec.Struct, array_like=True, gc=False):
    by_call: dict[str, TaskId]
    unsettled: list[TaskId]
    counts_by_agent: dict[str, int]
    slots_used: int
    joined_slots_used: int


class StoredDetails(msgspec.Struct, array_like=True, gc=False):
    """The fields that most ended tasks leave empty."""

    transcript: list[StoredMessage]
    incidents: list[Incident]
    children: StoredChildren | None
    dependencies: list[TaskId]
    history_dependencies: dict[int, list[TaskId]]
    instructions: str
    made_instructions: str | None
    reserved: Usage | None
    dependents: list[TaskId]
    steering: list[tuple[MessageId, Steering]]
    unseen_steering: tuple[MessageId, ...]
    questions: list[ApprovalQuestion]
    approved: list[tuple[str, str]]
    placed: list[CallPlaced]
    shared: int = 0
    """How many messages at the start are its parent's, and are not stored again."""


class StoredTask(msgspec.Struct, array_like=True, gc=False):
    """A task and its node of the tree."""

    id: TaskId
    parent: TaskId | None
    agent: str
    path: str
    mode: Mode
    request: TaskRequest | None
    state: str
    history: str
    outcome: Outcome | None
    context: int
    """The index of its context among all of them: most tasks share one."""
    accounts: list[str]
    restarts: int
    cancel_requested: bool
    status: str
    reason: str
    requested: float
    started: float | None
    ended: float | None
    usage: Usage | None
    total: Usage | None
    error: str
    more: StoredDetails | None


class StoredAccount(msgspec.Struct, array_like=True, gc=False):
    id: str
    budget: Budget
    path: str
    depth: int
    at: float
    used: Amounts | None
    """By this session; None if it has booked nothing."""


class StoredSession(msgspec.Struct, array_like=True, gc=False):
    id: SessionId
    facts: int
    goal: str
    accounts: list[str]
    approved: list[tuple[str, str]]
    attended: bool
    closed: bool
    deleted: bool
    door: DeliveryCapability | None
    forked_from: str
    kind: SessionKind
    metadata: Mapping[str, str]
    states: StoredStates
    owner: str
    workspace_host: str
    turns: int
    turn: Turn | None
    turn_times: list[tuple[float, float | None]]
    calls_began: float
    provider_waits: dict[TaskId, list[tuple[float, float]]]
    awaited: list[tuple[float, TaskId]]
    last_outcome: Outcome | None
    past_turns: list[PastTurn]
    mail: list[tuple[int, StoredMail]]
    consumed: list[tuple[int, StoredMail]]
    envelopes: list[tuple[int, Envelope]]
    terms: AnswerTerms
    undelivered: list[Reply]
    unsettled_detached: list[TaskId]
    processes: list[ProcessRecord]
    jobs: list[JobRecord]
    slots_in_use: int
    slots_detached: int
    queues: list[tuple[TaskId, Mode, tuple[TaskId, ...]]]
    eligible: list[tuple[TaskId, Mode]]
    paused: list[TaskId]


class StoredState(msgspec.Struct, gc=False):
    live_tasks: int | None
    live_children: int | None
    detached: int | None
    session: StoredSession
    tasks: list[StoredTask]
    contexts: list[dict[str, str]]
    accounts: list[StoredAccount]
    startable: list[TaskId]
    joinable: list[TaskId]
    unstartable: list[tuple[TaskId, TaskId]]
    open_questions: list[ApprovalQuestion]


MAX_RATIO: Final = 100
MIN_BYTES: Final = 1_000_000
"""The inflated size limit: a multiple of the stored size, or a fixed number. JSON of ids is a
fifth.
"""

PIECE_TASKS: Final = 500
"""How many tasks are encoded or decoded at once: that holds the interpreter for some milliseconds,
while another thread may have to answer."""
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(StoredState)
_TASKS_DECODER: Final = msgspec.json.Decoder(list[StoredTask])
_LENGTH: Final = struct.Struct(">I")


def encode_state(state: StoredState) -> bytes:
    tasks, state.tasks = state.tasks, []
    pieces = [
        _ENCODER.encode(state),
        *(
            _ENCODER.encode(tasks[start : start + PIECE_TASKS])
            for start in range(0, len(tasks), PIECE_TASKS)
        ),
    ]
    state.tasks = tasks
    stored = bytearray()
    for piece in pieces:
        # Ids and repeated words: a fast compression makes it a fifth.
        packed = zlib.compress(piece, level=1)
        stored += _LENGTH.pack(len(packed))
        stored += packed
    return bytes(stored)


def decode_state(data: bytes) -> StoredState:
    """Return the state.

    Raises:
        UnreadableFactError: it is damaged.
    """
    try:
        first, *others = _pieces(data)
        state = _DECODER.decode(first)
        for piece in others:
            state.tasks += _TASKS_DECODER.decode(piece)
    except (*MISFITS, zlib.error, struct.error) as exc:
        raise UnreadableFactError(str(exc)) from exc
    return state


def _pieces(data: bytes) -> Iterator[bytes]:
    left = max(MIN_BYTES, MAX_RATIO * len(data))
    begin = 0
    while begin < len(data):
        (length,) = _LENGTH.unpack_from(data, begin)
        begin += _LENGTH.size
        inflating = zlib.decompressobj()
        # No limit is a limit of 0 to zlib.
        inflated = inflating.decompress(data[begin : begin + length], max(1, left))
        if not inflating.eof:
            raise UnreadableFactError("it has no end, or is too large for its size")
        left -= len(inflated)
        begin += length
        yield inflated


def state_code(state: TaskState) -> str:
    match state:
        case Ended():
            return _ENDED
        case Queued():
            return _CODES[QUEUED]
        case Interrupted():
            return _CODES[Interrupted()]
        case _:
            return _CODES[state]


def state_of_code(code: str, dependencies: Iterable[TaskId], ended: TaskState) -> TaskState:
    if code == _ENDED:
        return ended
    state = STATES[code]
    if dependencies and isinstance(state, Queued | Interrupted):
        return type(state)(frozenset(dependencies))
    return state
