"""What the ledger remembers of a task and of a session.

Only the ledger writes these; everybody else reads.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from agents import CallId, Message, MessageId, UserMessage
from delegation.budget import Account
from delegation.events.approvals import ApprovalQuestion
from delegation.events.processes import ProcessId, ProcessNotice, ProcessRecord
from delegation.ledger.slots import Slots
from delegation.notices import TaskNotice
from delegation.rules import Rules
from delegation.task import (
    DeliveryCapability,
    Grant,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    TaskRequest,
    root_of,
)
from delegation.tree.tree import Tree


class Children:
    """The tasks that one task asked for."""

    __slots__ = (
        "by_call",
        "counts_by_agent",
        "joined_slots_used",
        "slots_used",
        "unsettled",
    )

    def __init__(self) -> None:
        self.by_call: dict[str, TaskId] = {}
        """All of them, by the call that asked."""
        self.unsettled: dict[TaskId, TaskRecord] = {}
        """Those that have not ended, oldest first."""
        self.counts_by_agent: dict[str, int] = {}
        """How often each agent was asked for: that numbers them."""
        self.slots_used = 0
        """How many have a place to run in."""
        self.joined_slots_used = 0
        """How many of these it waits for."""


# Most tasks never have any; this one is theirs, and is never written.
NO_CHILDREN: Final = Children()


@attrs.frozen
class Steering:
    """Something that was said to a task while it ran."""

    text: str
    by: str
    """The path of whoever said it."""
    seen_at: int | None = None
    """Before which of its model calls the task saw it."""
    too_late: bool = False
    """The turn had ended before it could see it."""

    @property
    def is_unseen(self) -> bool:
        return self.seen_at is None and not self.too_late


NO_STEERING: Final[Mapping[MessageId, Steering]] = {}
NO_QUESTIONS: Final[Mapping[CallId, ApprovalQuestion]] = {}
Approved: TypeAlias = frozenset[tuple[str, str]]
"""Tools, and what each of them may be used for without asking again."""
NOTHING_APPROVED: Final[Approved] = frozenset()


class TaskRecord:
    """One node of a tree: a session's root, or a task somebody asked for."""

    __slots__ = (
        "accounts",
        "agent",
        "approved",
        "cancel_requested",
        "children",
        "context",
        "dependents",
        "depth",
        "has_slot",
        "id",
        "instructions",
        "interrupted",
        "is_running",
        "mode",
        "outcome",
        "parent",
        "path",
        "pending_dependencies",
        "questions",
        "request",
        "restarts",
        "session",
        "steering",
        "transcript",
    )

    def __init__(
        self,
        id: TaskId,  # noqa: A002 (the word of the domain)
        *,
        session: SessionId,
        agent: str,
        path: str,
        mode: Mode,
        parent: "TaskRecord | None" = None,
        request: TaskRequest | None = None,
    ) -> None:
        self.id = id
        self.session = session
        self.agent = agent
        self.path = path
        self.mode = mode
        self.parent = parent
        self.request = request
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.transcript: list[Message] = []
        self.outcome: Outcome | None = None
        """Never set for a root: a session goes on."""
        self.is_running = False
        """An agent works on it now: it says things, and asks for tasks."""
        self.cancel_requested = False
        self.interrupted = False
        """The process that ran it is gone."""
        self.restarts = 0
        """How often a restart made it begin anew."""
        self.has_slot = False
        """It has a place to run in, and runs or is about to."""
        self.children = NO_CHILDREN
        self.context: Mapping[str, str] = {} if parent is None else parent.context
        """Where the message came from that it works for: `delegation.session_context`."""
        self.instructions = ""
        """What it is told for this turn, besides what its agent is told always."""
        self.accounts: tuple[Account, ...] = ()
        """The budgets that all it uses is booked on, its own last."""
        self.pending_dependencies: Collection[TaskId] = ()
        """The tasks that must have succeeded before it starts, and have not."""
        self.dependents: Sequence[TaskRecord] = ()
        self.steering: Mapping[MessageId, Steering] = NO_STEERING
        """What was said to it while it ran."""
        self.questions: Mapping[CallId, ApprovalQuestion] = NO_QUESTIONS
        """Its calls that somebody was asked about, and that have not been answered."""
        self.approved = NOTHING_APPROVED

    def rewind(self, length: int) -> None:
        """Begin anew where the transcript had this length."""
        self.restarts += 1
        self.approved = NOTHING_APPROVED
        forgotten = {said.id for said in self.transcript[length:]}
        del self.transcript[length:]
        # It is told again what it was told meanwhile.
        self.steering = {
            id_: attrs.evolve(said, seen_at=None) if id_ in forgotten else said
            for id_, said in self.steering.items()
        }
        if self.children is not NO_CHILDREN:
            # A call of the same name will be another call.
            asked = self.children.by_call
            self.children.by_call = {f"{call}~": task for call, task in asked.items()}

    @property
    def call_prefix(self) -> str:
        """What the keys of its calls begin with: another one whenever it begins anew."""
        return f"{self.id}~{self.restarts}" if self.restarts else self.id

    @property
    def awaits_approval(self) -> bool:
        """It waits until somebody has said whether a call may be run."""
        return bool(self.questions) and any(
            ask.is_open for ask in self.questions.values()
        )

    @property
    def is_ready(self) -> bool:
        """It has not ended, nobody runs it, and it waits for nothing but room."""
        return not (
            self.outcome
            or self.is_running
            or self.has_slot
            or self.pending_dependencies
        )


@attrs.frozen
class Turn:
    """A turn that has started and not ended."""

    number: int
    capability: DeliveryCapability
    read: tuple[int, ...]
    """The mail it has read, by sequence number."""
    interrupted: bool = False
    """The process that took it is gone."""
    transcript_start: int = 0
    """How long the transcript was when it had read its mail."""


@attrs.frozen
class Reply:
    """What a session says at the end of a turn."""

    session: SessionId
    turn: int
    read: tuple[int, ...]
    """The mail that the turn had read, by sequence number: what this answers."""
    outcome: Outcome

    @property
    def text(self) -> str:
        """What it says; of a turn that did not succeed, what went wrong."""
        if self.outcome.succeeded:
            return self.outcome.output
        return f"{self.outcome.ending}: {self.outcome.error}"


@attrs.frozen
class Envelope:
    """What is written on a message, and is not for the agent to read."""

    context: Mapping[str, str]
    grants: tuple[Grant, ...]
    instructions: str = ""
    silent: bool = False


Mail: TypeAlias = UserMessage | TaskNotice | ProcessNotice
"""What a session will read: something that somebody said, how a task of it ended, or what a command
of it did."""


class SessionRecord:
    """A conversation: the root of a tree, its mail and its turns."""

    __slots__ = (
        "accounts",
        "approved",
        "attended",
        "closed",
        "deleted",
        "door",
        "envelopes",
        "forked_from",
        "id",
        "labels",
        "last_outcome",
        "mail",
        "own_accounts",
        "processes",
        "root",
        "slots",
        "told",
        "tree",
        "turn",
        "turns",
        "undelivered",
        "unsettled_detached",
    )

    def __init__(self, id: SessionId, root: TaskRecord, rules: Rules) -> None:  # noqa: A002
        self.id = id
        self.root = root
        self.slots = Slots(rules)
        self.accounts: tuple[Account, ...] = ()
        """The budgets that hold for all its turns."""
        self.own_accounts: dict[str, Account] = {}
        """What it has used itself of each budget."""
        self.told: dict[int, Mail] = {}
        """The mail that tools have told in the turn that is under way."""
        self.envelopes: dict[int, Envelope] = {}
        """What is written on its unread mail."""
        self.tree = Tree(root_of(id))
        self.forked_from = ""
        """The run and the task that it goes on from: RUN/TASK."""
        self.closed = False
        """Whoever talked to it has ended it for good."""
        self.deleted = False
        """Whoever owned it wants it shown to nobody any more."""
        self.labels: Mapping[str, str] = {}
        """What whoever opened it wrote on it."""
        self.door: DeliveryCapability | None = None
        """What the door that is open now can do."""
        self.mail: dict[int, Mail] = {}
        """What it has not read yet, by the sequence number of the fact that says it."""
        self.unsettled_detached: dict[TaskId, TaskRecord] = {}
        """The detached tasks that it still has to be told about, oldest first."""
        self.processes: dict[ProcessId, ProcessRecord] = {}
        """The commands that run in the background, for any task of it."""
        self.approved = NOTHING_APPROVED
        self.attended = False
        """Somebody is there to be asked, also where nobody can be told anything later."""
        self.turns = 0
        self.turn: Turn | None = None
        self.last_outcome: Outcome | None = None
        self.undelivered: dict[int, Reply] = {}
        """What no door has taken yet, by turn."""

    @property
    def is_idle(self) -> bool:
        """Nothing of it is due, nobody talks to it, and nothing runs for it."""
        is_left = self.door is None and not self.undelivered
        return self.has_nothing_pending and is_left and not self.processes

    def own_account(self, account: Account) -> Account:
        """Return its own part of what is used under a budget."""
        if account.id not in self.own_accounts:
            self.own_accounts[account.id] = account.without_use()
        return self.own_accounts[account.id]

    def task_notices(self) -> Iterator[tuple[int, TaskId]]:
        """Yield the unread news of tasks that have ended: its number, and which task."""
        for seq, mail in self.mail.items():
            if isinstance(mail, TaskNotice):
                yield seq, mail.request.id

    def process_notices(self) -> Iterator[tuple[int, ProcessId]]:
        """Yield the unread news of commands that have ended: its number, and which command.

        Whoever knows how one ended is not woken for a line that it printed before.
        """
        for seq, mail in self.mail.items():
            if isinstance(mail, ProcessNotice) and mail.process not in self.processes:
                yield seq, mail.process

    @property
    def has_nothing_pending(self) -> bool:
        """Nothing runs that it will be told of, and nothing waits to be read."""
        return not (self.turn or self.mail or self.awaits_notices)

    @property
    def awaits_notices(self) -> bool:
        """It will be told how something ended."""
        return bool(self.unsettled_detached) or any(
            process.notify for process in self.processes.values()
        )
