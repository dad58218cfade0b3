"""The record of a task: its state, its place in the tree, its messages and its children.

Only the fold writes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    MessageId,
    Transcript,
    Usage,
    unanswered_calls,
)
from orchestrator.delegation.budget import Account
from orchestrator.delegation.events import CallPlaced
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.ledger.task_state import (
    IDLE,
    NO_DEPENDENCIES,
    QUEUED,
    Ended,
    Interrupted,
    Queued,
    Ready,
    Running,
    TaskState,
)
from orchestrator.delegation.task import Mode, Outcome, SessionId, TaskId, TaskRequest
from orchestrator.delegation.tree.node import TaskNode


class Children:
    """The tasks that one task has requested."""

    __slots__ = ("by_call", "counts_by_agent", "joined_slots_used", "slots_used", "unsettled")

    def __init__(self) -> None:
        self.by_call: dict[str, TaskId] = {}
        """All of them, by the call that requested them."""
        self.unsettled: dict[TaskId, TaskRecord] = {}
        """Those that have not ended, oldest first."""
        self.counts_by_agent: dict[str, int] = {}
        """How many tasks each agent has got: numbers their paths."""
        self.slots_used = 0
        """How many have a slot."""
        self.joined_slots_used = 0
        """How many of these are joined."""


# Shared by all tasks without children, which are most; never written.
NO_CHILDREN: Final = Children()
NO_MESSAGES: Final = Transcript()


class Steering(msgspec.Struct, frozen=True, gc=False):
    """A message to a running task."""

    text: str
    by: str
    """The path of the sender."""
    seen_at: int | None = None
    """The number of the model call before which the task has read it."""
    too_late: bool = False
    """The turn ended before the task could read it."""

    @property
    def is_unseen(self) -> bool:
        return self.seen_at is None and not self.too_late


# Shared by all tasks without incidents, steering or questions; never written.
NO_INCIDENTS: Final[list[Incident]] = []
NO_STEERING: Final[dict[MessageId, Steering]] = {}
NO_QUESTIONS: Final[Mapping[CallId, ApprovalQuestion]] = {}
Approved: TypeAlias = frozenset[tuple[str, str]]
"""Tools, each with the subject that it may be used for without another question."""
NOTHING_APPROVED: Final[Approved] = frozenset()
NOTHING_PLACED: Final[Mapping[CallId, CallPlaced]] = {}


class TaskRecord:
    """The root of a session, or a delegated task, with its node in the tree."""

    __slots__ = (
        "accounts",
        "approved",
        "cancel_requested",
        "children",
        "context",
        "dependents",
        "has_slot",
        "history",
        "id",
        "incidents",
        "instructions",
        "is_interrupted",
        "is_root",
        "is_running",
        "made_instructions",
        "node",
        "outcome",
        "parent",
        "placed",
        "questions",
        "request",
        "reserved",
        "restarts",
        "session",
        "state",
        "steering",
        "transcript",
        "unseen_steering",
    )

    def __init__(
        self,
        id: TaskId,  # noqa: A002 (the word of the domain)
        session: SessionId,
        node: TaskNode,
        parent: "TaskRecord | None" = None,
        request: TaskRequest | None = None,
    ) -> None:
        self.id = id
        self.session = session
        self.node = node
        """Its node in the tree: the part of it that readers see."""
        self.parent = parent
        self.is_root = parent is None
        """It is the root of its session, which takes turns and never ends."""
        self.request = request
        self.transcript = NO_MESSAGES
        self.incidents = NO_INCIDENTS
        """The incidents of its model calls, oldest first; its transcript does not contain them."""
        self.state: TaskState = IDLE if parent is None else QUEUED
        self.outcome: Outcome | None = None
        """How it ended; never set for a root."""
        self.is_running = False
        """An agent works on it now."""
        self.is_interrupted = False
        """Its process is gone, and it has not been queued again."""
        self.has_slot = False
        """It runs or may start; a root needs no slot."""
        self.history: tuple[TaskState, ...] = (self.state,)
        """Its states so far, oldest first, without changes of their data; of a root those of
        its turn."""
        self.cancel_requested = False
        """A request from outside, in whatever state it is."""
        self.restarts = 0
        """How often it began anew after a crash."""
        self.children = NO_CHILDREN
        self.context: Mapping[str, str] = {} if parent is None else parent.context
        """The origin of the message that it works for, by the names of `session_context`."""
        self.instructions = ""
        """The instructions of this turn, besides those of its agent."""
        self.made_instructions: str | None = None
        """Instructions that a function of its agent made for this turn, and that a model has
        answered."""
        self.accounts: tuple[Account, ...] = ()
        """The budgets that its usage is booked on, its own last."""
        self.reserved: Usage | None = None
        """The reservation of its model call, while one is under way that a budget pays for."""
        self.dependents: Sequence[TaskRecord] = ()
        """The tasks that start when it has succeeded."""
        self.steering = NO_STEERING
        """The messages to it while it ran, oldest first."""
        self.unseen_steering: tuple[MessageId, ...] = ()
        """Those that it has not read, and that came in time."""
        self.questions: Mapping[CallId, ApprovalQuestion] = NO_QUESTIONS
        """The questions about its calls that have no result yet."""
        self.approved = NOTHING_APPROVED
        self.placed: Mapping[CallId, CallPlaced] = NOTHING_PLACED
        """Where the calls without a result wait or run that are lent to workers, and the turn, by
        its first call."""

    @property
    def agent(self) -> str:
        return self.node.agent

    @property
    def path(self) -> str:
        return self.node.path

    @property
    def mode(self) -> Mode:
        return self.node.mode

    @property
    def depth(self) -> int:
        """How many tasks are above it."""
        return self.node.level

    def set_state(self, state: TaskState) -> None:
        """Write a state, and the answers about it that every fact asks for."""
        kind = type(state)
        self.state = state
        self.outcome = state.outcome if isinstance(state, Ended) else None
        self.is_running = kind is Running
        self.is_interrupted = kind is Interrupted
        self.has_slot = not self.is_root and (kind is Running or kind is Ready)

    def rewind(self, length: int) -> None:
        """Begin anew where the transcript had this length."""
        self.restarts += 1
        self.approved = NOTHING_APPROVED
        self.placed = NOTHING_PLACED
        self.made_instructions = None
        removed = {message.id for message in self.transcript[length:]}
        self.transcript = self.transcript[:length]
        self.incidents = [it for it in self.incidents if it.after < length]
        # It reads the removed steering messages once more.
        self.steering = {
            id_: replace(message, seen_at=None) if id_ in removed else message
            for id_, message in self.steering.items()
        }
        self.unseen_steering = tuple(
            id_ for id_, message in self.steering.items() if message.is_unseen
        )
        if self.children is not NO_CHILDREN:
            # A call of the same name will be another call.
            by_call = self.children.by_call
            self.children.by_call = {f"{call}~": task for call, task in by_call.items()}

    def ends_incomplete(self, start: int) -> bool:
        """Return whether the last answer of a turn that began at a length was broken off."""
        if len(self.transcript) <= start:
            return False
        last = self.transcript[-1]
        return isinstance(last, AssistantMessage) and last.incomplete

    def drop_incomplete(self, start: int) -> None:
        """Forget the text of a call that was interrupted, because the model is asked again."""
        if self.ends_incomplete(start):
            self.transcript = self.transcript[:-1]

    @property
    def first_step(self) -> int:
        """The index of the first own step of a task that is no root: the messages before it are its
        brief.
        """
        request = self.request
        if request is None or (request.handed is UNSET and request.fork is UNSET):
            return 1
        before = 0 if request.handed is UNSET else len(request.handed)
        if request.fork is not UNSET:
            # Imported late: most tasks are no forks.
            from orchestrator.delegation.ledger.forks import length_of_fork

            before += length_of_fork(self.transcript, request.fork)
        return 1 + before

    @property
    def is_copy(self) -> bool:
        """A copy of its parent's agent works on it."""
        return self.request is not None and self.request.copy

    @property
    def label(self) -> str:
        """The name that its parent gave it in the call, if any."""
        return self.node.label

    @property
    def requested_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that its parent requested for the answer, if any."""
        return None if self.request is None else self.request.output_schema

    @property
    def has_begun(self) -> bool:
        """An agent has worked on it, in this process or in one before."""
        return any(isinstance(state, Running) for state in self.history)

    @property
    def was_interrupted(self) -> bool:
        """It goes on after a crash, or waits to; of a root, its turn does."""
        return any(isinstance(state, Interrupted) for state in self.history)

    @property
    def pending_dependencies(self) -> frozenset[TaskId]:
        """The tasks that must succeed before it starts, and have not."""
        state = self.state
        if isinstance(state, (Queued, Interrupted)):
            return state.dependencies
        return NO_DEPENDENCIES

    @property
    def call_prefix(self) -> str:
        """The prefix of its call keys, another one after each restart."""
        return f"{self.id}~{self.restarts}" if self.restarts else self.id

    @property
    def awaits_approval(self) -> bool:
        """A question about one of its calls is open."""
        return any(question.is_open for question in self.questions.values())

    @property
    def placed_turn(self) -> CallPlaced | None:
        """Where its turn waits or runs; None if that is not lent as a whole."""
        return next((it for it in self.placed.values() if it.turn), None)

    @property
    def awaits_worker(self) -> str:
        """The place at which one of its calls waits for a worker; empty if none does."""
        for placed in self.placed.values():
            # A turn whose call was given up waits again when it calls a tool again.
            if not (placed.execution or (placed.turn and self._has_no_open_call)):
                return placed.place
        return ""

    @property
    def _has_no_open_call(self) -> bool:
        return not unanswered_calls(self.transcript)
