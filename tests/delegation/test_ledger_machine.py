"""Whatever can happen, happens; replay agrees."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import attrs
import networkx as nx
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents import AssistantMessage, CallId, ToolCall, ToolMessage, Usage, UserMessage
from delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
    decode,
    encode,
    root_of,
)
from delegation.events import (
    CancelRequested,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)

Snapshot: TypeAlias = Callable[[Ledger], object]
Rule: TypeAlias = Callable[..., None]

NONE, POLL, PUSH = DeliveryCapability
SESSIONS, TASKS = 2, 15
NOWHERE, NOBODY = SessionId("nowhere"), TaskId("nobody")
DONE = Outcome(Ending.SUCCEEDED)
ASKS = AssistantMessage(calls=(ToolCall("look", {"for": ["it"]}, id=CallId("call")),))
FOUND = ToolMessage(CallId("call"), "found")

outcomes = st.builds(Outcome, st.sampled_from(Ending), st.text(max_size=3))
usages = st.builds(Usage, **{it.name: st.integers(0, 9) for it in attrs.fields(Usage)})


@attrs.define(eq=False)
class Task:
    """What should be true of a task. A session's root runs while it takes a turn."""

    id: TaskId
    session: "Session" = attrs.field(repr=False)
    parent: "Task | None" = attrs.field(default=None, repr=False)
    detached: bool = False
    state: str = "queued"
    due: bool = False
    """It is detached, and nobody runs it though somebody should."""
    cancelled: bool = False
    outcome: Outcome | None = None
    spent: Usage = attrs.field(factory=Usage)
    heard: int = 1
    """How many messages it has in mind."""
    children: list["Task"] = attrs.field(factory=list["Task"], repr=False)

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
        return self.state == "running"

    def can_start(self) -> bool:
        stands = self.outcome is None and not self.detached and not self.acts()
        return self.due or (stands and self.parent is not None and self.parent.acts())

    def has_yet_to_settle(self) -> bool:
        return self.parent is not None and self.outcome is None


@attrs.define(eq=False)
class Session:
    """What should be true of a session."""

    id: SessionId
    tasks: list[Task] = attrs.field(factory=list[Task])
    door: DeliveryCapability | None = None
    mail: dict[int, str] = attrs.field(factory=dict[int, str])
    """A word of each letter that no other letter has."""
    read: dict[int, str] = attrs.field(factory=dict[int, str])
    turns: int = 0
    turn: DeliveryCapability | None = None
    """What the turn can do that is under way."""
    undelivered: list[int] = attrs.field(factory=list[int])
    last: str = "queued"

    @property
    def root(self) -> Task:
        return self.tasks[0]

    def interrupted(self) -> bool:
        return self.root.state == "interrupted"

    def outstanding(self) -> list[Task]:
        return [it for it in self.tasks if it.detached and it.outcome is None]


def for_a_session(
    condition: Callable[[Session], object], **more: st.SearchStrategy[Any]
) -> Callable[[Rule], Rule]:
    """Make a rule of a method: for one of the sessions that fulfil a condition now."""
    return for_one(
        lambda it: filter(condition, it.sessions.values()), "session", **more
    )


def for_a_task(
    condition: Callable[[Task], object], **more: st.SearchStrategy[Any]
) -> Callable[[Rule], Rule]:
    """Make a rule of a method: for one of the tasks that fulfil a condition now."""
    return for_one(lambda it: filter(condition, it.tasks.values()), "task", **more)


def for_one(
    those: "Callable[[Facts], Iterable[object]]",
    argument: str,
    **more: st.SearchStrategy[Any],
) -> Callable[[Rule], Rule]:
    one = st.runner().flatmap(lambda it: st.sampled_from(list(those(it))))
    # Its overloads foresee no arguments whose names are only known here.
    when = rule(**{argument: one, **more})  # type: ignore[call-overload]
    return lambda method: precondition(lambda self: any(those(self)))(when(method))


class Facts(RuleBasedStateMachine):
    """Posts all kinds of facts that can be, and keeps simple books of what they mean."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.ledger = Ledger()
        self.entries: list[Entry] = []
        self.sessions: dict[SessionId, Session] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.contradicted = 0

    def post(self, fact: Event) -> int:
        seq = len(self.entries) + 1
        entry = Entry(seq, seq / 7, self.ledger.session_of(fact), fact)
        self.ledger.post(entry)
        self.entries.append(entry)
        return seq

    def enter(self, task: Task) -> None:
        self.tasks[task.id] = task
        task.session.tasks.append(task)

    @initialize(capability=st.sampled_from(DeliveryCapability))
    def begin(self, capability: DeliveryCapability) -> None:
        """Most of what can happen needs a session that takes a turn."""
        self.open_session()
        (session,) = self.sessions.values()
        if capability is not NONE:
            self.open_door(session, capability)
        self.start_turn(session, set())

    @precondition(lambda self: len(self.sessions) < SESSIONS)
    @rule()
    def open_session(self) -> None:
        session = Session(SessionId(f"s{len(self.sessions)}"))
        self.post(SessionOpened(session.id, "editor"))
        self.sessions[session.id] = session
        self.enter(Task(root_of(session.id), session, heard=0))

    @for_a_session(lambda it: not it.door, capability=st.sampled_from([POLL, PUSH]))
    def open_door(self, session: Session, capability: DeliveryCapability) -> None:
        self.post(DoorOpened(session.id, capability))
        session.door = capability
        for task in session.outstanding():
            task.due = task.due or task.state == "interrupted"

    @for_a_session(lambda it: it.door and it.turn)
    def close_door(self, session: Session) -> None:
        self.post(DoorClosed(session.id))
        session.door = None

    @for_a_session(lambda it: len(it.mail) < 3)
    def receive(self, session: Session) -> None:
        word = f"<letter {len(self.entries)}>"
        session.mail[self.post(MessageReceived(session.id, word))] = word

    @for_a_session(lambda it: not it.turn, unread=st.sets(st.integers(0, 2)))
    def start_turn(self, session: Session, unread: set[int]) -> None:
        mail = [seq for i, seq in enumerate(session.mail) if i not in unread]
        session.turns += 1
        session.turn = session.door or NONE
        self.post(TurnStarted(session.id, session.turns, session.turn, tuple(mail)))
        session.read |= {seq: session.mail.pop(seq) for seq in mail}
        session.root.state = "running"
        session.root.heard += len(mail)

    @for_a_session(lambda it: it.door and it.interrupted())
    def resume_turn(self, session: Session) -> None:
        session.turn = session.door or NONE
        self.post(TurnResumed(session.id, session.turns, session.turn))
        session.root.state = "running"

    @for_a_session(lambda it: it.turn, outcome=outcomes)
    def end_turn(self, session: Session, outcome: Outcome) -> None:
        for task in session.root.joined_below():
            self.settle(task, outcome)
        self.post(TurnEnded(session.id, session.turns, outcome))
        if session.turn is not NONE:
            session.undelivered.append(session.turns)
        session.turn = None
        session.last = outcome.ending.value
        session.root.state = "queued"
        session.root.cancelled = False

    @for_a_session(lambda it: it.undelivered, oldest=st.booleans())
    def deliver_reply(self, session: Session, oldest: bool) -> None:
        turn = session.undelivered.pop(0 if oldest else -1)
        self.post(ReplyDelivered(session.id, turn))

    @precondition(lambda self: len(self.tasks) < TASKS)
    @for_a_task(Task.acts, background=st.booleans(), at_once=st.booleans())
    def request(self, task: Task, background: bool, at_once: bool) -> None:
        # A child ends with its one turn, so only a session can be told something later.
        detached = background and not task.parent and task.session.turn is not NONE
        id_ = TaskId(f"t{len(self.tasks)}")
        child = Task(id_, task.session, task, detached, due=detached)
        self.post(requested(child))
        task.children.append(child)
        self.enter(child)
        if at_once:
            self.start_task(child)

    @for_a_task(Task.can_start)
    def start_task(self, task: Task) -> None:
        self.post(TaskStarted(task.id))
        task.state, task.due = "running", False

    @for_a_task(Task.acts, usage=st.none() | usages)
    def hear_a_tool_or_a_model(self, task: Task, usage: Usage | None) -> None:
        task.heard += 1
        if usage is None:
            self.post(ToolAnswered(task.id, FOUND))
            return
        self.post(ModelAnswered(task.id, attrs.evolve(ASKS, usage=usage)))
        task.spent += usage

    @for_a_task(lambda it: it.acts() and not it.cancelled)
    def cancel(self, task: Task) -> None:
        self.post(CancelRequested(task.id))
        task.cancelled = True

    @for_a_task(Task.has_yet_to_settle, outcome=outcomes)
    def settle(self, task: Task, outcome: Outcome) -> None:
        for child in task.below():
            self.settle(child, outcome)
        seq = self.post(TaskSettled(task.id, outcome))
        task.state, task.outcome = outcome.ending.value, outcome
        task.due, task.heard = False, 0
        if task.detached:
            task.session.mail[seq] = f"({task.id})"

    @precondition(lambda self: any(map(Task.acts, self.tasks.values())))
    @rule()
    def restart(self) -> None:
        self.post(JournalOpened("1.0"))
        for session in self.sessions.values():
            session.door = None
        for task in self.tasks.values():
            if task.acts() or (task.parent and not task.outcome):
                task.state, task.due = "interrupted", False

    @precondition(lambda self: self.contradicted < len(self.entries))
    @rule(first=st.integers(0, 2))
    def contradict(self, first: int) -> None:
        """Whatever cannot happen is refused, and changes nothing."""
        self.contradicted = len(self.entries)
        facts = [*self.impossible_for_sessions(), *self.impossible_for_tasks()]
        before = self.snapshot(self.ledger)
        # A third of them at a time: there are many, and tests are to be quick.
        for fact in facts[first::3]:
            with pytest.raises(ImpossibleEventError):
                self.ledger.post(Entry(len(self.entries) + 1, 0.0, NOWHERE, fact))
        assert self.snapshot(self.ledger) == before

    def impossible_for_sessions(self) -> Iterator[Event]:
        yield MessageReceived(NOWHERE, "hello?")
        yield DoorOpened(NOWHERE, PUSH)
        # What was read, what is somebody else's, and what nobody ever wrote.
        all_mail = [0, len(self.entries) + 1]
        for session in self.sessions.values():
            all_mail += [*session.mail, *session.read]
        for session in (Session(NOWHERE), *self.sessions.values()):
            yield ReplyDelivered(session.id, session.turns + 1)
            yield TurnEnded(session.id, session.turns + 1, DONE)
            yield TurnStarted(session.id, session.turns + 2, PUSH, ())
            for seq in {*all_mail} - {*session.mail}:
                yield TurnStarted(session.id, session.turns + 1, PUSH, (seq,))
            if not session.door:
                yield DoorClosed(session.id)
        for session in self.sessions.values():
            yield SessionOpened(session.id, "editor")
            if session.door:
                yield DoorOpened(session.id, PUSH)
            if session.turn:
                yield TurnStarted(session.id, session.turns + 1, PUSH, ())
            if not session.interrupted():
                yield TurnResumed(session.id, session.turns, PUSH)
            if session.root.joined_below():
                yield TurnEnded(session.id, session.turns, DONE)

    def impossible_for_tasks(self) -> Iterator[Event]:
        nobody = Task(NOBODY, Session(NOWHERE), outcome=DONE)
        for task in (nobody, *self.tasks.values()):
            if task.parent:
                yield SessionOpened(SessionId(task.id), "editor")
            yield requested(Task(task.id, task.session, task.parent or nobody))
            if not task.acts():
                yield requested(Task(TaskId("late"), task.session, task))
                yield ModelAnswered(task.id, ASKS)
                yield ToolAnswered(task.id, FOUND)
            if task.acts() or not task.has_yet_to_settle():
                yield TaskStarted(task.id)
            if task.outcome:
                yield CancelRequested(task.id)
            if task.below() or not task.has_yet_to_settle():
                yield TaskSettled(task.id, DONE)

    @invariant()
    def every_task_is_where_it_should_be(self) -> None:
        assert list(self.ledger.tasks) == list(self.tasks)
        for task in self.tasks.values():
            record = self.ledger.tasks[task.id]
            below = [child.id for child in self.ledger.unsettled_below(task.id)]
            assert record.outcome == task.outcome
            assert len(record.transcript) == task.heard
            assert list(record.children.unsettled) == [
                child.id for child in task.below()
            ]
            assert below == [child.id for child in task.joined_below()]

    @invariant()
    def a_task_settles_at_most_once(self) -> None:
        facts = [entry.event for entry in self.entries]
        settled = [fact.task for fact in facts if isinstance(fact, TaskSettled)]
        assert len(settled) == len(set(settled))

    @invariant()
    def mail_is_read_once_and_by_its_session(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            said = record.root.transcript
            heard = [it.text for it in said if isinstance(it, UserMessage)]
            letters = [*heard, *(it.text for it in record.mail.values())]
            words = [*session.read.values(), *session.mail.values()]
            assert list(record.mail) == list(session.mail)
            assert len(letters) == len(words)
            assert all(map(str.__contains__, letters, words))

    @invariant()
    def what_is_due_is_due(self) -> None:
        due = {task.id for task in self.tasks.values() if task.due}
        assert set(self.ledger.startable) == due
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            waits = session.interrupted() if session.turn else bool(session.mail)
            lost = session.turn is NONE and session.interrupted()
            assert (session.id in self.ledger.wakeable) is (
                waits and bool(session.door)
            )
            assert (record in self.ledger.abandoned()) is lost

    @invariant()
    def what_is_torn_down_is_known_to_end_or_not(self) -> None:
        for task in self.tasks.values():
            cancelled = any(above.cancelled for above in task.line())
            detached = any(above.detached for above in task.line())
            nobody_is_left = task.session.turn is NONE and not detached
            assert self.ledger.is_cancelled(task.id) is cancelled
            assert self.ledger.ends_for_good(task.id) is (cancelled or nobody_is_left)
            if task.outcome is None:
                waits = task.due or task.state == "interrupted"
                assert self.ledger.nobody_runs(task.id) is waits

    @invariant()
    def every_session_shows_what_it_does(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            waits_for = session.outstanding()
            status = "waiting" if waits_for else session.last
            if session.turn:
                status = session.root.state
            assert record.tree[session.root.id]["status"] == status
            assert list(record.outstanding) == [task.id for task in waits_for]
            assert list(record.undelivered) == session.undelivered
            assert record.idle is not bool(session.turn or session.mail or waits_for)

    @invariant()
    def every_session_is_a_tree_whose_totals_are_sums(self) -> None:
        for session in self.sessions.values():
            tree = self.ledger.sessions[session.id].tree
            assert nx.is_arborescence(tree.graph)
            assert list(tree.graph) == [task.id for task in session.tasks]
            for task in session.tasks:
                spent = [it.spent for it in session.tasks if task in it.line()]
                assert tree[task.id]["usage"] == task.spent
                assert tree[task.id]["total"] == sum(spent, Usage())
                assert tree.children(task.id) == [child.id for child in task.children]
                if task is not session.root:
                    assert tree[task.id]["status"] == task.state

    def teardown(self) -> None:
        """Whoever folds the same facts, read back from how they are kept, knows the same."""
        again = Ledger()
        for entry in self.entries:
            again.post(attrs.evolve(entry, event=decode(encode(entry.event))))
        assert self.snapshot(again) == self.snapshot(self.ledger)


def requested(task: Task) -> TaskRequested:
    assert task.parent is not None
    session = task.session
    request = TaskRequest(
        id=task.id,
        parent=task.parent.id,
        origin=Origin(
            session=session.id, turn=session.turns, capability=session.turn or NONE
        ),
        call=f"call of {task.id}",
        agent="researcher",
        goal="find it",
    )
    if task.detached:
        return TaskRequested(request, Mode.DETACHED, Reason.CAN_BE_TOLD_LATER)
    return TaskRequested(request, Mode.JOINED, Reason.ASKED_TO_WAIT)


def test_whatever_can_happen_happens_and_replay_agrees(snapshot: Snapshot) -> None:
    """The rules hold in every order of facts, and a restart needs no code of its own."""

    class Machine(Facts):
        def __init__(self) -> None:
            super().__init__(snapshot)

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=80, stateful_step_count=70)
    )
