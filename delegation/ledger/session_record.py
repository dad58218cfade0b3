"""The record of a session: its mail, its turns and its replies.

Only the fold writes it.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from orchestrator.agents import UserMessage
from orchestrator.delegation.answer_terms import NO_TERMS, AnswerTerms
from orchestrator.delegation.budget import Account
from orchestrator.delegation.events.jobs import JobId, JobRecord
from orchestrator.delegation.events.processes import ProcessId, ProcessNotice, ProcessRecord
from orchestrator.delegation.ledger.slots import Slots
from orchestrator.delegation.ledger.task_record import NOTHING_APPROVED, TaskRecord
from orchestrator.delegation.notices import TaskNotice
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import NO_STATES, SessionState, StateT, read_state
from orchestrator.delegation.task import (
    NO_DELIVERY,
    DeliveryCapability,
    Grant,
    Outcome,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.tree.tree import Tree

NO_METADATA: Final[Mapping[str, str]] = {}
ADDRESS: Final = ("platform", "chat_id", "thread_id")
"""The variables of a session's context that name a chat address."""
NOTHING_DECODED: Final[Mapping[str, SessionState]] = {}
EMPTY: Final[Mapping[str, str]] = {}


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
    trace: str | msgspec.UnsetType = msgspec.UNSET
    """The span of its caller, as a `traceparent`, if one is known."""

    @property
    def promises(self) -> DeliveryCapability:
        """The delivery capability of its tasks: the door's, unless a sender lacks it."""
        return self.capability if self.async_delivery else NO_DELIVERY


class PastTurn(msgspec.Struct, frozen=True, gc=False):
    """A turn of a conversation that has ended. Its messages came since the turn before it."""

    end: int
    """The length of the transcript when it ended."""
    failure: Outcome | None = None
    """Its outcome without the output, if it did not succeed."""


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
    trace: str | msgspec.UnsetType = msgspec.UNSET
    """The span of the caller of its turn, as a `traceparent`, if one is known."""

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
        "past_turns",
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
        self.past_turns: list[PastTurn] = []
        """The turns of a conversation that have ended, oldest first; other kinds have none."""
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
