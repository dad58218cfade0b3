"""Simple books of what should be true, to be compared with what a ledger knows."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
from msgspec import UNSET

from orchestrator.agents import Budget, CallId, MessageId, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Grant,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
)
from orchestrator.delegation.events import TaskRequested
from orchestrator.delegation.events.approvals import ApprovalId
from orchestrator.delegation.events.processes import ProcessId

GRANTS: Final = (
    Grant("b_tasks", Budget(tasks=3)),
    Grant("b_calls", Budget(calls=2, name="few")),
    Grant("b_money", Budget(usd=0.5, seconds=9)),
)
OWN: Final = Budget(tokens=50)


@attrs.define(eq=False)
class Purse:
    """The expected bookings of an account, by session."""

    id: str
    spent: dict[SessionId, list[Usage]] = attrs.field(factory=dict[SessionId, list[Usage]])
    tasks: dict[SessionId, int] = attrs.field(factory=dict[SessionId, int])

    def totals(self, *sessions: SessionId) -> tuple[int, int, int, int]:
        """Return calls, tokens, cost and tasks, of these sessions or of all."""
        spent = [
            usage
            for session, usages in self.spent.items()
            if not sessions or session in sessions
            for usage in usages
        ]
        tasks = [
            number for session, number in self.tasks.items() if not sessions or session in sessions
        ]
        return (
            sum(max(1, usage.calls) for usage in spent),
            sum(usage.tokens for usage in spent),
            sum(usage.micro_usd for usage in spent),
            sum(tasks),
        )


class Purses(dict[str, Purse]):
    """All accounts there should be."""

    def under(self, purses: Sequence[Purse], *grants: Grant) -> tuple[Purse, ...]:
        """Return these accounts and those of some budgets, each once."""
        found = list(purses)
        for grant in grants:
            purse = self.setdefault(grant.id, Purse(grant.id))
            if purse not in found:
                found.append(purse)
        return tuple(found)


@attrs.define(eq=False)
class Question:
    """The expected state of a call with an approval question."""

    id: ApprovalId
    call: CallId
    subject: str
    is_open: bool = True
    is_unheard: bool = False


@attrs.define(eq=False)
class Command:
    """The expected state of a background command."""

    id: ProcessId
    task: "Task" = attrs.field(repr=False)
    notify: bool


@attrs.define(eq=False)
class Task:
    """The expected state of a task. A session's root runs while it takes a turn."""

    id: TaskId
    session: "Session" = attrs.field(repr=False)
    parent: "Task | None" = attrs.field(default=None, repr=False)
    detached: bool = False
    needs: "tuple[Task, ...]" = attrs.field(default=(), repr=False)
    grants: tuple[Grant, ...] = ()
    budget: Budget | None = None
    state: str = "queued"
    entered: bool = False
    """It has room or waits for it: there is nothing else that it waits for."""
    cancelled: bool = False
    paused: bool = False
    outcome: Outcome | None = None
    spent: Usage = attrs.field(factory=Usage)
    reserved: Usage | None = None
    """The reservation of its model call, while one is under way."""
    purses: tuple[Purse, ...] = ()
    heard: int = 0
    """How many messages it has in mind."""
    steering: dict[MessageId, bool] = attrs.field(factory=dict[MessageId, bool])
    seen: list[MessageId] = attrs.field(factory=list[MessageId])
    """The steering that it has seen since it began, or its turn did."""
    """The messages to it while it ran, and whether it has seen each."""
    children: list["Task"] = attrs.field(factory=list["Task"], repr=False)
    questions: dict[CallId, Question] = attrs.field(factory=dict[CallId, Question])
    approved: set[tuple[str, str]] = attrs.field(factory=set[tuple[str, str]])

    def line(self) -> "list[Task]":
        """Return the task and all above it."""
        return [self] if self.parent is None else [self, *self.parent.line()]

    def below(self) -> "list[Task]":
        return [child for child in self.children if child.outcome is None]

    def joined_below(self) -> "list[Task]":
        """Return the joined tasks below that have not ended, deepest first."""
        return [
            task
            for child in reversed(self.below())
            if not child.detached
            for task in (*child.joined_below(), child)
        ]

    def acts(self) -> bool:
        return self.state in {"running", "quiet", "waiting"}

    def open_questions(self) -> list[Question]:
        return [it for it in self.questions.values() if it.is_open]

    def can_be_answered(self) -> bool:
        return bool(self.open_questions()) and not self.session.awaits_resume()

    def work(self) -> None:
        """Be seen to work, or to wait until somebody has answered."""
        self.state = "waiting" if self.open_questions() else "running"

    def hear_a_tool(self, call: CallId) -> None:
        if self.questions.pop(call, None) is not None:
            self.work()

    def has_yet_to_settle(self) -> bool:
        return self.parent is not None and self.outcome is None

    def missing(self) -> "list[Task]":
        """Return the tasks that it needs and that have not succeeded."""
        return [it for it in self.needs if not (it.outcome and it.outcome.succeeded)]

    def is_hopeless(self) -> bool:
        return self.outcome is None and any(it.outcome for it in self.missing())

    def forget(self) -> None:
        """Begin anew: what was seen will be said again."""
        self.steering |= dict.fromkeys(self.seen, False)
        self.seen.clear()
        self.questions.clear()
        self.approved.clear()

    def unseen(self) -> list[MessageId]:
        return [id_ for id_, seen in self.steering.items() if not seen]

    def book(self, usage: Usage) -> None:
        self.spent += usage
        for purse in self.purses:
            purse.spent.setdefault(self.session.id, []).append(usage)

    def charge_open_call(self) -> None:
        """Charge its accounts for a call that has no end, and show nothing of it."""
        if self.reserved is not None:
            for purse in self.purses:
                purse.spent.setdefault(self.session.id, []).append(self.reserved)
        self.reserved = None

    def enter(self) -> None:
        """Wait for room, if there is nothing else to wait for."""
        if self.outcome is None and not self.missing():
            self.entered = True

    def brief(self) -> None:
        """Hear what to do, once all is there that it needs."""
        if not self.missing():
            self.heard += 1

    def enter_below(self) -> None:
        """Let the joined children wait for room again, of one who goes on after a crash."""
        for child in self.below():
            if not child.detached:
                child.enter()


@attrs.define(eq=False)
class Session:
    """The expected state of a session."""

    id: SessionId
    tasks: list[Task] = attrs.field(factory=list[Task])
    door: DeliveryCapability | None = None
    mail: dict[int, str] = attrs.field(factory=dict[int, str])
    """A word of each letter that no other letter has."""
    grants: dict[int, tuple[Grant, ...]] = attrs.field(factory=dict[int, tuple[Grant, ...]])
    """The budgets under which the letters were written."""
    read: dict[int, str] = attrs.field(factory=dict[int, str])
    told: dict[int, str] = attrs.field(factory=dict[int, str])
    """The letters that an answer of a tool has told in this turn."""
    turns: int = 0
    turn: DeliveryCapability | None = None
    """The capability of the turn under way."""
    begins: int = 0
    """How much it had in mind when the turn began."""
    purses: tuple[Purse, ...] = ()
    """The accounts that hold for all its turns."""
    undelivered: list[int] = attrs.field(factory=list[int])
    closed: bool = False
    metadata: dict[str, str] = attrs.field(factory=dict[str, str])
    drinks: dict[str, int] = attrs.field(factory=dict[str, int])
    state: dict[str, Any] = attrs.field(factory=dict[str, Any])
    last: str = "queued"
    attended: bool = False
    approved: set[tuple[str, str]] = attrs.field(factory=set[tuple[str, str]])
    commands: dict[ProcessId, Command] = attrs.field(factory=dict[ProcessId, Command])
    lines: dict[int, ProcessId] = attrs.field(factory=dict[int, ProcessId])
    """The letters that tell a line, and which command has printed it."""

    @property
    def root(self) -> Task:
        return self.tasks[0]

    def interrupted(self) -> bool:
        return self.root.state == "interrupted"

    def awaits_resume(self) -> bool:
        """Return whether its caller is gone with its process."""
        return self.turn is DeliveryCapability.NONE and self.interrupted()

    def outstanding(self) -> list[Task]:
        return [it for it in self.tasks if it.detached and it.outcome is None]

    def told_of(self) -> list[Command]:
        """Return the commands that it wants to be told of."""
        return [it for it in self.commands.values() if it.notify]

    def awaits_news(self) -> bool:
        return bool(self.outstanding() or self.told_of())

    def drop_commands_of(self, task: Task) -> None:
        commands = self.commands.items()
        self.commands = {id_: it for id_, it in commands if it.task is not task}

    def completions(self) -> list[int]:
        return [seq for seq, word in self.mail.items() if word.startswith("(")]

    def ended_commands(self) -> list[int]:
        """Return the letters about commands that have ended, the lines before that included."""
        return [
            seq
            for seq, word in self.mail.items()
            if word.startswith("[")
            or (word.startswith("<line") and self.lines[seq] not in self.commands)
        ]

    def tellable(self) -> list[int]:
        """Return the mail that the answer of a tool may tell."""
        told = {*self.completions(), *self.ended_commands()}
        return [seq for seq in self.mail if seq in told]


def requested(task: Task) -> TaskRequested:
    assert task.parent is not None
    session = task.session
    request = TaskRequest(
        id=task.id,
        parent=task.parent.id,
        origin=Origin(
            session=session.id,
            turn=session.turns,
            capability=session.turn or DeliveryCapability.NONE,
        ),
        call=f"call of {task.id}",
        agent="researcher",
        goal="find it",
        needs=tuple(need.id for need in task.needs),
        # Some are of a fan-out that asks for its tasks one by one.
        to_come=len(task.id) if task.needs else UNSET,
        budget=task.budget,
        grants=task.grants,
    )
    if task.detached:
        return TaskRequested(request, Mode.DETACHED, Reason.CAN_BE_TOLD_LATER)
    return TaskRequested(request, Mode.JOINED, Reason.ASKED_TO_WAIT)


def ids(tasks: Iterable[Task]) -> list[TaskId]:
    return [task.id for task in tasks]
