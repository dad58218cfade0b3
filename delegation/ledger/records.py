"""The records of the ledger: tasks, sessions, turns and replies.

Only the fold writes them.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    UserMessage,
    unanswered_calls,
)
from orchestrator.delegation.answer_terms import NO_TERMS, AnswerTerms
from orchestrator.delegation.budget import Account
from orchestrator.delegation.events import CallPlaced
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.events.jobs import JobId, JobRecord
from orchestrator.delegation.events.processes import ProcessId, ProcessNotice, ProcessRecord
from orchestrator.delegation.ledger.slots import Slots
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
from orchestrator.delegation.notices import TaskNotice
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import NO_STATES, SessionState, StateT, read_state
from orchestrator.delegation.task import (
    NO_DELIVERY,
    DeliveryCapability,
    Grant,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    TaskRequest,
    root_of,
)
from orchestrator.delegation.tree.node import TaskNode
from orchestrator.delegation.tree.tree import Tree


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
NO_METADATA: Final[Mapping[str, str]] = {}
ADDRESS: Final = ("platform", "chat_id", "thread_id")
"""The variables of a session's context that name a chat address."""
NOTHING_DECODED: Final[Mapping[str, SessionState]] = {}


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
EMPTY: Final[Mapping[str, str]] = {}


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


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A turn that has started and not ended."""

    number: int
    capability: DeliveryCapability
    read: tuple[int, ...]
    """The mail it has read, by sequence number."""
    transcript_start: int = 0
    """The length of the transcript when it had read its mail."""
    async_delivery: bool = True
    """All who wrote to it can receive results later."""
    accepts_changes: bool = False
    """Its programs may request other tasks than before a crash."""
    change: str = ""
    """How its program has changed since a crash, if that stopped it."""
    version: str | msgspec.UnsetType = msgspec.UNSET
    """The version of the agent that began it, if the agent declares one."""

    @property
    def promises(self) -> DeliveryCapability:
        """The delivery capability of its tasks: the door's, unless a sender lacks it."""
        return self.capability if self.async_delivery else NO_DELIVERY


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The result of a turn."""

    session: SessionId
    turn: int
    read: tuple[int, ...]
    """The mail that it answers, by sequence number."""
    outcome: Outcome
    context: Mapping[str, str] = EMPTY
    """The origin of the message that it answers: the variables of `session_context` by their short
    names, as its door had given them."""
    parts: Mapping[str, str] = EMPTY
    """The parts of it that its door has delivered, and what their places call them."""

    @property
    def text(self) -> str:
        """The output; of a turn that did not succeed, its ending and error."""
        if self.outcome.succeeded:
            return self.outcome.output
        return f"{self.outcome.ending}: {self.outcome.error}"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The parts of mail that are not for the agent."""

    context: Mapping[str, str]
    grants: tuple[Grant, ...]
    instructions: str = ""
    silent: bool = False
    async_delivery: bool = True
    terms: AnswerTerms = NO_TERMS

    @property
    def address(self) -> tuple[str | None, ...]:
        """The chat and thread that the mail came from, and that the reply goes to."""
        return tuple(map(self.context.get, ADDRESS))


Mail: TypeAlias = UserMessage | TaskNotice | ProcessNotice
"""Unread input of a session: a message, or a notice about a task or a command of it."""


class SessionRecord:
    """A conversation: the root of a tree, its mail and its turns."""

    __slots__ = (
        "accounts",
        "approved",
        "attended",
        "closed",
        "consumed",
        "decoded_states",
        "deleted",
        "door",
        "envelopes",
        "facts",
        "facts_in_snapshot",
        "forked_from",
        "id",
        "jobs",
        "kind",
        "last_outcome",
        "mail",
        "metadata",
        "own_accounts",
        "owner",
        "processes",
        "root",
        "slots",
        "states",
        "terms",
        "tree",
        "turn",
        "turns",
        "undelivered",
        "unsettled_detached",
        "workspace_host",
    )

    def __init__(  # noqa: PLR0915 (a record has many fields)
        self,
        id: SessionId,  # noqa: A002
        root: TaskRecord,
        rules: Rules,
    ) -> None:
        self.id = id
        self.root = root
        self.slots = Slots(rules)
        self.accounts: tuple[Account, ...] = ()
        """The budgets of all its turns."""
        self.own_accounts: dict[str, Account] = {}
        """Its own share of each budget's usage."""
        self.consumed: dict[int, Mail] = {}
        """The mail that tool results of this turn have handed over."""
        self.envelopes: dict[int, Envelope] = {}
        """The envelopes of its unread mail."""
        self.tree = Tree(root_of(id))
        self.forked_from = ""
        """The run and the task that it was forked from: RUN/TASK."""
        self.facts = 0
        """How many facts of it were folded."""
        self.facts_in_snapshot = 0
        """How many of them its last snapshot has; no fact says it."""
        self.closed = False
        """It takes no more messages and has no more doors."""
        self.deleted = False
        """It is listed nowhere any more."""
        self.kind = SessionKind.PROGRAM
        self.metadata: Mapping[str, str] = NO_METADATA
        """The notes that its client keeps with it."""
        self.states = NO_STATES
        """The states that products keep in it, by their names; `state` returns one."""
        self.decoded_states: Mapping[str, SessionState] = NOTHING_DECODED
        """The states that were asked for, since they have changed."""
        self.owner = ""
        """Whose it is; "" is the operator's."""
        self.door: DeliveryCapability | None = None
        """The capability of the open door, if one is open."""
        self.mail: dict[int, Mail] = {}
        """Its unread input, by the sequence number of the fact that brought it."""
        self.unsettled_detached: dict[TaskId, TaskRecord] = {}
        """Its detached tasks that have not ended, oldest first."""
        self.processes: dict[ProcessId, ProcessRecord] = {}
        """The background commands of all its tasks."""
        self.jobs: dict[JobId, JobRecord] = {}
        """The jobs that were set in it, and not removed."""
        self.workspace_host = ""
        """The machine that has the folder of its tools; "" is any."""
        self.approved = NOTHING_APPROVED
        self.attended = False
        """People can be asked for approval, also where no reply can be delivered later."""
        self.terms = NO_TERMS
        """How its client wants its answers, since the last message."""
        self.turns = 0
        self.turn: Turn | None = None
        self.last_outcome: Outcome | None = None
        self.undelivered: dict[int, Reply] = {}
        """The replies that no door has taken yet, by turn."""

    @property
    def is_interrupted(self) -> bool:
        """The process that took its turn is gone."""
        return self.root.is_interrupted

    @property
    def is_interrupted_in_answer(self) -> bool:
        """Its turn is not over, and the last answer was broken off: the model is asked again."""
        turn = self.turn
        return turn is not None and self.root.ends_incomplete(turn.transcript_start)

    @property
    def next_mail(self) -> tuple[int, ...]:
        """The mail that its next turn reads: all from the address of the oldest.

        A turn has one reply, which goes to one address. Mail from other addresses begins later
        turns.
        """
        first = self.envelopes[next(iter(self.mail))].address
        return tuple(seq for seq in self.mail if self.envelopes[seq].address == first)

    @property
    def is_due(self) -> bool:
        """It has a turn to resume, or mail to begin one with."""
        if self.turn is None:
            return bool(self.mail)
        return self.is_interrupted

    @property
    def awaits_resume(self) -> bool:
        """Its caller waited inside its turn, and is gone with the process that took it.

        It holds nothing, and goes on when a caller resumes it, or a door opens.
        """
        turn = self.turn
        return turn is not None and turn.capability is NO_DELIVERY and self.is_interrupted

    @property
    def is_interruptible(self) -> bool:
        """Its process can stop it so that a caller resumes it: it is a run, and nothing else."""
        turn = self.turn
        is_run = turn is not None and turn.capability is NO_DELIVERY and self.door is None
        return is_run and self.root.is_running and not self.unsettled_detached

    @property
    def is_at_rest(self) -> bool:
        """No door is open, it has no due or running work, and it has no jobs.

        Replies may wait for the next door.
        """
        if self.door is not None or self.processes or self.jobs:
            return False
        if self.turn is None:
            return self.has_nothing_pending
        is_left = self.closed or self.mail or self.unsettled_detached
        return self.awaits_resume and not is_left

    @property
    def is_idle(self) -> bool:
        """It is at rest, and all its replies were taken."""
        return self.is_at_rest and not self.undelivered

    def state(self, kind: type[StateT]) -> StateT:
        """Return the state that a product keeps in it; the default one if it keeps none."""
        known = self.decoded_states.get(kind.NAME)
        if not isinstance(known, kind):
            known = read_state(self.states, kind)
            if kind.NAME in self.states:
                self.decoded_states = {**self.decoded_states, kind.NAME: known}
        return known

    def own_account(self, account: Account) -> Account:
        """Return its own share of a budget's usage."""
        if account.id not in self.own_accounts:
            self.own_accounts[account.id] = account.without_use()
        return self.own_accounts[account.id]

    def task_notices(self) -> Iterator[tuple[int, TaskId]]:
        """Yield the unread notices of tasks: sequence number and task."""
        for seq, mail in self.mail.items():
            if isinstance(mail, TaskNotice):
                yield seq, mail.request.id

    def process_notices(self) -> Iterator[tuple[int, ProcessId]]:
        """Yield the unread notices of commands that have ended: sequence number and command.

        With the end of a command its earlier notices are read, too.
        """
        for seq, mail in self.mail.items():
            if isinstance(mail, ProcessNotice) and mail.process not in self.processes:
                yield seq, mail.process

    @property
    def has_nothing_pending(self) -> bool:
        """No turn runs, no mail is unread, and no notice will come."""
        return not (self.turn or self.mail or self.awaits_notices)

    @property
    def awaits_notices(self) -> bool:
        """A detached task or a command of it will send a notice."""
        if self.unsettled_detached or not self.processes:
            return bool(self.unsettled_detached)
        return any(
            process.notify and not process.is_unreachable for process in self.processes.values()
        )

    @property
    def may_be_told_later(self) -> bool:
        """A command of it is on another machine: a notice may come, or never."""
        if not self.processes:
            return False
        return any(process.notify and process.is_unreachable for process in self.processes.values())
