"""All facts that can be, in any order, and simple books of what they mean."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, CallId, MessageId, ToolCall, ToolMessage, Usage
from orchestrator.delegation import (
    Cause,
    DeliveryCapability,
    Ending,
    Grant,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    Rules,
    SessionId,
    TaskId,
    TaskRecord,
    root_of,
)
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallPlaced,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    KindChanged,
    MessageReceived,
    MetadataChanged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    QuietChanged,
    ReplyDelivered,
    SessionClosed,
    SessionOpened,
    StartsPaused,
    StateChanged,
    Steered,
    SteeringSeen,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WaitSpan,
)
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalVerdict
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.delegation.session_kind import SessionKind
from tests.delegation.reference_books import (
    GRANTS,
    OWN,
    Command,
    Purses,
    Question,
    Session,
    Task,
    requested,
)

Snapshot: TypeAlias = Callable[[Ledger], object]
Rule: TypeAlias = Callable[..., None]

NONE, POLL, PUSH = DeliveryCapability
SESSIONS, TASKS = 2, 15
NOWHERE, NOBODY = SessionId("nowhere"), TaskId("nobody")
DONE = Outcome(Ending.SUCCEEDED)
ASKS = AssistantMessage(calls=(ToolCall("look", {"for": ["it"]}, id=CallId("call")),))
FOUND = ToolMessage(CallId("call"), "found")
NOTE = MessageId("note")
CALLS = (FOUND.call, CallId("other"))
NO_ASK, NO_COMMAND = ApprovalId("a_none"), ProcessId("p_none")
COMMANDS = 4

# As often as not it succeeds, so that those who need it get their turn.
endings = st.just(Ending.SUCCEEDED) | st.sampled_from(Ending)
causes = st.sampled_from([Cause.NONE, Cause.ASKED, Cause.CALLER_GONE, Cause.ENDED_FIRST])
outcomes = st.builds(Outcome, endings, st.text(max_size=3), cause=causes)
usages = st.builds(
    Usage,
    **{name: st.integers(0, 9) for name in Usage.__struct_fields__ if name != "saved_micro_usd"},
    saved_micro_usd=st.just(UNSET) | st.integers(-9, 9).filter(bool),
)
charges = st.builds(
    Usage, calls=st.integers(1, 9), input_tokens=st.integers(0, 9), micro_usd=st.integers(0, 9)
)
grants = st.lists(st.sampled_from(GRANTS), max_size=2, unique=True).map(tuple)
limits = st.sampled_from([None, 1, 2, 3])


def for_a_session(
    condition: Callable[[Session], object], **more: st.SearchStrategy[Any]
) -> Callable[[Rule], Rule]:
    """Make a rule of a method: for one of the sessions that fulfil a condition now."""
    return for_one(lambda it: filter(condition, it.sessions.values()), "session", **more)


def for_a_task(
    condition: Callable[[Task], object], **more: st.SearchStrategy[Any]
) -> Callable[[Rule], Rule]:
    """Make a rule of a method: for one of the tasks that fulfil a condition now."""
    return for_one(lambda it: filter(condition, it.tasks.values()), "task", **more)


def for_one(
    those: "Callable[[Facts], Iterable[object]]", argument: str, **more: st.SearchStrategy[Any]
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
        self.kept = Rules()
        self.ledger = Ledger()
        self.entries: list[Entry] = []
        self.sessions: dict[SessionId, Session] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.purses = Purses()
        self.questions: dict[ApprovalId, tuple[Task, Question]] = {}
        """All that ever were."""
        self.contradicted = 0

    def post(self, fact: Event) -> int:
        seq = len(self.entries) + 1
        entry = Entry(seq, seq / 7, self.ledger.session_of(fact), fact)
        self.ledger.fold(entry)
        self.entries.append(entry)
        return seq

    def waited(self, usage: Usage) -> WaitSpan:
        """Return the wait for a provider before the next fact; every second call has none."""
        end = len(self.entries) / 7
        return (end - usage.calls / 70, end) if usage.calls % 2 else UNSET

    def enter(self, task: Task) -> None:
        self.tasks[task.id] = task
        task.session.tasks.append(task)

    def record(self, task: Task) -> TaskRecord:
        return self.ledger.tasks[task.id]

    def has_slot(self, task: Task) -> bool:
        return task.id in self.ledger.tasks and self.record(task).has_slot

    @initialize(
        capability=st.sampled_from(DeliveryCapability),
        of_children=limits,
        of_tasks=limits,
        of_detached=limits,
    )
    def begin(
        self,
        capability: DeliveryCapability,
        of_children: int | None,
        of_tasks: int | None,
        of_detached: int | None,
    ) -> None:
        """Most of what can happen needs a session that takes a turn."""
        self.kept = Rules(live_children=of_children, live_tasks=of_tasks, detached=of_detached)
        self.ledger = Ledger(self.kept)
        self.open_session(budgets=(), is_limited=False, attended=False)
        (session,) = self.sessions.values()
        if capability is not NONE:
            self.open_door(session, capability)
        self.start_turn(session, set())

    @precondition(lambda self: len(self.sessions) < SESSIONS)
    @rule(budgets=grants, is_limited=st.booleans(), attended=st.booleans())
    def open_session(self, budgets: tuple[Grant, ...], is_limited: bool, attended: bool) -> None:
        session = Session(SessionId(f"s{len(self.sessions)}"), attended=attended)
        budget = OWN if is_limited else None
        self.post(SessionOpened(session.id, "editor", budget, budgets, attended=attended))
        own = (Grant(session.id, OWN),) if is_limited else ()
        session.purses = self.purses.under((), *budgets, *own)
        self.sessions[session.id] = session
        self.enter(Task(root_of(session.id), session, purses=session.purses))

    @for_a_session(
        lambda it: not it.door and not it.closed, capability=st.sampled_from([POLL, PUSH])
    )
    def open_door(self, session: Session, capability: DeliveryCapability) -> None:
        self.post(DoorOpened(session.id, capability))
        session.door = capability
        for task in session.outstanding():
            task.enter()

    @for_a_session(lambda it: it.door)
    def close_door(self, session: Session) -> None:
        self.post(DoorClosed(session.id))
        session.door = None

    @for_a_session(lambda it: len(it.mail) < 3 and not it.closed, budgets=grants)
    def receive(self, session: Session, budgets: tuple[Grant, ...]) -> None:
        word = f"<letter {len(self.entries)}>"
        seq = self.post(MessageReceived(session.id, word, grants=budgets))
        session.mail[seq] = word
        session.grants[seq] = budgets

    @for_a_session(lambda it: not it.turn, unread=st.sets(st.integers(0, 2)))
    def start_turn(self, session: Session, unread: set[int]) -> None:
        mail = [seq for i, seq in enumerate(session.mail) if i not in unread]
        session.turns += 1
        session.turn = session.door or NONE
        self.post(TurnStarted(session.id, session.turns, session.turn, tuple(mail)))
        session.read |= {seq: session.mail.pop(seq) for seq in mail}
        root = session.root
        for seq in mail:
            budgets = session.grants.pop(seq, ())
            root.purses = self.purses.under(root.purses, *budgets)
        root.state = "running"
        root.heard += len(mail)
        session.begins = root.heard
        root.seen.clear()

    @for_a_session(lambda it: it.door and it.interrupted(), anew=st.booleans())
    def resume_turn(self, session: Session, anew: bool) -> None:
        afresh = anew and not session.root.joined_below()
        session.turn = session.door or NONE
        self.post(TurnResumed(session.id, session.turns, session.turn, afresh))
        session.root.enter_below()
        if afresh:
            session.root.heard = session.begins
            session.root.forget()
            session.mail |= session.told
            session.told.clear()
        session.root.work()

    @for_a_session(lambda it: it.turn, outcome=outcomes)
    def end_turn(self, session: Session, outcome: Outcome) -> None:
        for task in session.root.joined_below():
            self.settle(task, outcome)
        self.post(TurnEnded(session.id, session.turns, outcome))
        session.root.charge_open_call()
        session.root.questions.clear()
        session.root.approved.clear()
        if session.turn is NONE:
            session.drop_commands_of(session.root)
        if session.turn is not NONE and not session.closed:
            session.undelivered.append(session.turns)
        session.turn = None
        session.last = outcome.ending.value
        session.root.steering = dict.fromkeys(session.root.steering, True)
        session.told.clear()
        session.root.state = "queued"
        session.root.cancelled = False
        session.root.purses = session.purses

    @for_a_session(lambda it: it.undelivered, oldest=st.booleans(), has_failed=st.booleans())
    def deliver_reply(self, session: Session, oldest: bool, has_failed: bool) -> None:
        turn = session.undelivered[0 if oldest else -1]
        if has_failed:
            self.post(DeliveryFailed(session.id, turn, 1, "the line is busy"))
            return
        session.undelivered.remove(turn)
        self.post(ReplyDelivered(session.id, turn))

    @for_a_session(
        lambda _: True, text=st.sampled_from(["", "tea", "milk"]), of_product=st.booleans()
    )
    def change_metadata_or_state(self, session: Session, text: str, of_product: bool) -> None:
        if not of_product:
            session.metadata = {"title": text} if text else {}
            self.post(MetadataChanged(session.id, session.metadata))
            return
        # An empty text removes all drinks.
        session.drinks = {**session.drinks, text: 1} if text else {}
        entries = {text: 1} if text else {"tea": None, "milk": None}
        self.post(StateChanged(session.id, "order", {"last": text, "drinks": entries}))
        session.state = {"last": text, "drinks": session.drinks}

    @precondition(lambda self: len(self.entries) > 40)
    @for_a_session(lambda it: not it.closed)
    def close_session(self, session: Session) -> None:
        """Late, for there is little that can happen to it then."""
        self.post(SessionClosed(session.id, tuple(session.mail)))
        session.closed = True
        session.mail.clear()
        session.grants.clear()
        session.undelivered.clear()

    @precondition(lambda self: len(self.tasks) < TASKS)
    @for_a_task(
        Task.acts,
        background=st.booleans(),
        needs=st.sets(st.integers(0, 4), max_size=2),
        budgets=grants,
        is_limited=st.booleans(),
        at_once=st.booleans(),
    )
    def request(
        self,
        task: Task,
        background: bool,
        needs: set[int],
        budgets: tuple[Grant, ...],
        is_limited: bool,
        *,
        at_once: bool,
    ) -> None:
        # A child ends with its one turn, so only a session can be told something later.
        detached = background and not task.parent and task.session.turn is not NONE
        child = Task(
            TaskId(f"t{len(self.tasks)}"),
            task.session,
            task,
            detached,
            needs=tuple(it for i, it in enumerate(task.children) if i in needs),
            grants=budgets,
            budget=OWN if is_limited else None,
        )
        slots = self.ledger.sessions[task.session.id].slots
        mode = Mode.DETACHED if detached else Mode.JOINED
        at_once = at_once and not child.needs and slots.has_room(self.record(task), mode)
        self.post(replace(requested(child), started=at_once))
        own = (Grant(child.id, OWN),) if is_limited else ()
        shared = self.purses.under(task.purses, *budgets)
        for purse in shared:
            purse.tasks[child.session.id] = purse.tasks.get(child.session.id, 0) + 1
        child.purses = self.purses.under(shared, *own)
        child.brief()
        child.enter()
        if at_once:
            child.work()
        task.children.append(child)
        self.enter(child)

    @precondition(lambda self: self.ledger.startable or self.ledger.joinable)
    @rule(data=st.data(), anew=st.booleans())
    def start_task(self, data: st.DataObject, anew: bool) -> None:
        self.start(self.tasks[data.draw(st.sampled_from(self.due()))], anew)

    def due(self) -> list[TaskId]:
        return [*self.ledger.startable, *self.ledger.joinable]

    def start(self, task: Task, anew: bool) -> None:
        afresh = anew and task.state == "interrupted" and not task.below()
        self.post(TaskStarted(task.id, afresh))
        if task.state == "interrupted":
            task.enter_below()
        if afresh:
            task.heard = 1
            task.forget()
        task.work()

    @for_a_task(Task.acts, usage=st.none() | usages, has_failed=st.booleans())
    def hear_a_tool_or_a_model(self, task: Task, usage: Usage | None, has_failed: bool) -> None:
        if usage is None:
            self.post(ToolAnswered(task.id, FOUND))
            task.hear_a_tool(FOUND.call)
        elif has_failed:
            again = ModelFailure.ATTEMPT
            waited = self.waited(usage)
            self.post(ModelFailed(task.id, "no", usage, again, then="another", waited=waited))
        else:
            answer, waited = replace(ASKS, usage=usage), self.waited(usage)
            left_out = usage.output_tokens
            self.post(ModelAnswered(task.id, answer, left_out=left_out, waited=waited))
        if usage is not None:
            task.reserved = None
            task.book(usage)
        task.heard += usage is None or not has_failed

    @for_a_task(Task.acts, reserved=charges)
    def call_a_model(self, task: Task, reserved: Usage) -> None:
        self.post(ModelCalled(task.id, reserved))
        task.reserved = reserved

    @for_a_task(lambda it: it.acts() and it.reserved, usage=usages, charged=charges)
    def break_a_call_off(self, task: Task, usage: Usage, charged: Usage) -> None:
        """The tree shows what is known, and budgets are charged with what may be."""
        self.post(ModelFailed(task.id, "cut", usage, charged=charged))
        task.spent += usage
        task.reserved = charged
        task.charge_open_call()

    @for_a_session(lambda it: it.root.acts() and it.tellable(), one=st.booleans())
    def hear_a_tool_that_tells_mail(self, session: Session, one: bool) -> None:
        told = session.tellable()[: 1 if one else None]
        self.post(ToolAnswered(session.root.id, FOUND, tuple(told)))
        session.root.heard += 1
        session.root.hear_a_tool(FOUND.call)
        session.told |= {seq: session.mail.pop(seq) for seq in told}

    @for_a_task(lambda it: not it.outcome and (it.parent or it.acts()))
    def steer(self, task: Task) -> None:
        id_ = MessageId(f"note {len(self.entries)}")
        self.post(Steered(task.id, id_, "faster", "/editor"))
        task.steering[id_] = False

    @for_a_task(lambda it: it.acts() and it.unseen(), one=st.booleans())
    def see_steering(self, task: Task, one: bool) -> None:
        seen = task.unseen()[: 1 if one else None]
        self.post(SteeringSeen(task.id, tuple(seen)))
        task.steering |= dict.fromkeys(seen, True)
        task.seen += seen
        task.heard += len(seen)

    @for_a_task(lambda it: it.acts() and it.parent, quiet=st.booleans())
    def be_quiet(self, task: Task, quiet: bool) -> None:
        self.post(QuietChanged(task.id, quiet))
        task.work()
        if quiet:
            task.state = "quiet"

    @for_a_task(lambda it: it.acts() and len(it.questions) < len(CALLS))
    def ask_for_approval(self, task: Task) -> None:
        call = next(it for it in CALLS if it not in task.questions)
        number = len(self.entries)
        subject = f"command {number % 3}"
        question = Question(ApprovalId(f"a_{number}"), call, subject)
        self.post(ApprovalAsked(task.id, question.id, call, "terminal", subject, number + 0.5))
        task.questions[call] = question
        self.questions[question.id] = (task, question)
        task.work()

    @for_a_task(
        lambda it: it.outcome is None and it.can_be_answered(),
        answer=st.sampled_from(ApprovalVerdict),
        oldest=st.booleans(),
    )
    def answer_a_question(self, task: Task, answer: ApprovalVerdict, oldest: bool) -> None:
        """Also where nobody works on it: its process is gone."""
        question = task.open_questions()[0 if oldest else -1]
        self.post(ApprovalAnswered(task.id, question.id, answer, "so be it", "Ann"))
        question.is_open, question.is_unheard = False, not task.acts()
        if answer is ApprovalVerdict.TASK:
            task.approved.add(("terminal", question.subject))
        if answer is ApprovalVerdict.SESSION:
            task.session.approved.add(("terminal", question.subject))
        if task.acts():
            task.work()

    @for_a_task(lambda it: it.acts() and len(it.session.commands) < COMMANDS, notify=st.booleans())
    def start_a_command(self, task: Task, notify: bool) -> None:
        id_ = ProcessId(f"p_{len(self.entries)}")
        # A child ends with its one turn, so only a session can be told something later.
        can_be_told = task.parent is None and task.session.turn is not NONE
        command = Command(id_, task, notify and can_be_told)
        self.post(ProcessStarted(task.id, id_, "make", command.notify))
        task.session.commands[id_] = command

    @for_a_task(lambda it: it.acts(), allowed=st.booleans())
    def ask_for_a_host(self, task: Task, allowed: bool) -> None:
        self.post(NetworkRequested(task.id, "pypi.org:443", allowed, 1, 2))

    @for_a_task(
        lambda it: it.acts(), call=st.sampled_from("ab"), run=st.booleans(), turn=st.booleans()
    )
    def place_a_call(self, task: Task, call: str, run: bool, turn: bool) -> None:
        attempt, worker = len(self.entries), "w" * run
        id_ = CallId(call)
        self.post(CallPlaced(task.id, id_, "gpu", attempt, worker, worker, turn=turn))

    @for_a_session(Session.told_of, oldest=st.booleans())
    def match_a_line(self, session: Session, oldest: bool) -> None:
        command = session.told_of()[0 if oldest else -1]
        word = f"<line {len(self.entries)}>"
        seq = self.post(ProcessMatched(command.task.id, command.id, (word,), 1))
        if not session.closed:
            session.mail[seq] = word
            session.lines[seq] = command.id

    @for_a_session(lambda it: it.commands, oldest=st.booleans())
    def end_a_command(self, session: Session, oldest: bool) -> None:
        command = list(session.commands.values())[0 if oldest else -1]
        word = f"[end {len(self.entries)}]"
        seq = self.post(ProcessEnded(command.task.id, command.id, "exit 0", word))
        del session.commands[command.id]
        if command.notify and not session.closed:
            session.mail[seq] = word

    @for_a_task(lambda it: not it.outcome)
    def pause(self, task: Task) -> None:
        task.paused = not task.paused
        self.post(StartsPaused(task.id, task.paused))

    @for_a_task(lambda it: it.acts() and not it.cancelled)
    def cancel(self, task: Task) -> None:
        self.post(CancelRequested(task.id))
        task.cancelled = True

    @for_a_task(Task.has_yet_to_settle, outcome=outcomes, usage=st.none() | usages)
    def settle(self, task: Task, outcome: Outcome, usage: Usage | None = None) -> None:
        for child in task.below():
            self.settle(child, outcome)
        last: ModelAnswered | None = None
        if usage is not None and task.acts():
            message = AssistantMessage("42", usage=usage)
            last = ModelAnswered(task.id, message, waited=self.waited(usage))
            task.reserved = None
            task.book(usage)
        seq = self.post(TaskSettled(task.id, outcome, last))
        task.charge_open_call()
        task.state, task.outcome = outcome.ending.value, outcome
        task.entered, task.heard = False, 0
        task.questions.clear()
        task.session.drop_commands_of(task)
        if task.detached and not task.session.closed:
            task.session.mail[seq] = f"({task.id})"
        assert task.parent is not None
        for waiting in task.parent.below():
            if task in waiting.needs:
                waiting.brief()
                waiting.enter()

    @precondition(lambda self: any(map(Task.acts, self.tasks.values())))
    @rule()
    def restart(self) -> None:
        self.post(JournalOpened("1.0"))
        for session in self.sessions.values():
            session.door = None
        for task in self.tasks.values():
            if task.acts():
                task.charge_open_call()
                # Whoever worked on it may have run what was approved before.
                for question in task.questions.values():
                    question.is_unheard = False
            if task.acts() or task.has_yet_to_settle():
                task.state, task.entered = "interrupted", False

    @precondition(lambda self: any(map(Task.acts, self.tasks.values())))
    @rule(anew=st.booleans(), answer=st.sampled_from(ApprovalVerdict), crashes=st.integers(1, 2))
    def restart_while_all_ask(self, anew: bool, answer: ApprovalVerdict, crashes: int) -> None:
        """Answer questions more often than chance would."""
        asking = [
            task for task in self.tasks.values() if task.acts() and len(task.questions) < len(CALLS)
        ]
        for task in asking:
            self.ask_for_approval(task)
        for crash in range(crashes):
            self.restart()
            for task in asking[crash::2]:
                if task.can_be_answered():
                    self.answer_a_question(task, answer, oldest=True)
            self.go_on(anew)

    def go_on(self, anew: bool) -> None:
        for session in self.sessions.values():
            if not session.closed:
                self.open_door(session, PUSH)
                if session.interrupted():
                    self.resume_turn(session, anew)
        for task in self.due():
            self.start(self.tasks[task], anew)

    @precondition(lambda self: self.contradicted < len(self.entries))
    @rule(first=st.integers(0, 4))
    def contradict(self, first: int) -> None:
        """Impossible facts are refused and change nothing."""
        self.contradicted = len(self.entries)
        facts = [*self.impossible_for_sessions(), *self.impossible_for_tasks()]
        before = self.snapshot(self.ledger)
        # A part of them at a time: there are many, and tests are to be quick.
        for fact in facts[first::5]:
            with pytest.raises(ImpossibleEventError):
                self.ledger.fold(Entry(len(self.entries) + 1, 0.0, NOWHERE, fact))
        assert self.snapshot(self.ledger) == before

    def impossible_for_sessions(self) -> Iterator[Event]:
        yield MessageReceived(NOWHERE, "hello?")
        yield DoorOpened(NOWHERE, PUSH)
        # What was read, what is somebody else's, and what nobody ever wrote.
        all_mail = [0, len(self.entries) + 1]
        for session in self.sessions.values():
            all_mail += [*session.mail, *session.read, *session.told]
        for session in (Session(NOWHERE), *self.sessions.values()):
            yield ReplyDelivered(session.id, session.turns + 1)
            yield DeliveryFailed(session.id, session.turns + 1, 1, "no")
            yield SessionClosed(session.id, (*session.mail, 0))
            yield TurnEnded(session.id, session.turns + 1, DONE)
            if session.id == NOWHERE:
                yield MetadataChanged(session.id, {"title": "tea"})
                yield StateChanged(session.id, "order", {"table": 7})
            yield KindChanged(session.id, SessionKind.PROGRAM)
            yield TurnStarted(session.id, session.turns + 2, PUSH, ())
            for seq in {*all_mail} - {*session.mail}:
                yield TurnStarted(session.id, session.turns + 1, PUSH, (seq,))
                yield ToolAnswered(root_of(session.id), FOUND, (seq,))
            for seq in {*session.mail} - {*session.tellable()}:
                yield ToolAnswered(root_of(session.id), FOUND, (seq,))
            if not session.door:
                yield DoorClosed(session.id)
        for session in self.sessions.values():
            yield from self.impossible_for_one(session)

    def impossible_for_one(self, session: Session) -> Iterator[Event]:
        yield SessionOpened(session.id, "editor")
        if session.closed:
            yield SessionClosed(session.id)
            yield MessageReceived(session.id, "hello?")
        if session.door or session.closed:
            yield DoorOpened(session.id, PUSH)
        if session.turn:
            yield TurnStarted(session.id, session.turns + 1, PUSH, ())
        if not session.interrupted():
            yield TurnResumed(session.id, session.turns, PUSH)
        if session.root.joined_below():
            yield TurnEnded(session.id, session.turns, DONE)
            yield TurnResumed(session.id, session.turns, PUSH, afresh=True)

    def impossible_for_tasks(self) -> Iterator[Event]:
        nobody = Task(NOBODY, Session(NOWHERE), outcome=DONE)
        for task in (nobody, *self.tasks.values()):
            yield from self.impossible_for(task, nobody)
            strangers = [it for it in self.tasks.values() if it.parent is not task]
            needs = tuple(strangers[:1])
            yield requested(Task(TaskId("new"), task.session, task, needs=needs))

    def impossible_for(self, task: Task, nobody: Task) -> Iterator[Event]:
        yield SteeringSeen(task.id, (NOTE,))
        yield requested(Task(task.id, task.session, task.parent or nobody))
        if task.parent:
            yield SessionOpened(SessionId(task.id), "editor")
            yield ToolAnswered(task.id, FOUND, (1,))
        for id_, seen in task.steering.items():
            yield Steered(task.id, id_, "again", "/editor")
            if seen:
                yield SteeringSeen(task.id, (id_,))
        yield from self.impossible_answers(task)
        yield from self.impossible_commands(task)
        yield from self.impossible_now(task)

    def impossible_answers(self, task: Task) -> Iterator[Event]:
        yield ApprovalAnswered(task.id, NO_ASK, ApprovalVerdict.ONCE)
        for question in task.questions.values():
            yield ApprovalAsked(task.id, NO_ASK, question.call, "terminal", "x", 1.0)
        for id_, (asker, question) in self.questions.items():
            is_open = asker.questions.get(question.call) is question
            if not (is_open and question.is_open and asker is task):
                yield ApprovalAnswered(task.id, id_, ApprovalVerdict.DENY)
            # A question of an interrupted run is hidden until that is resumed.
            if is_open and question.is_open and asker.can_be_answered():
                yield ApprovalAsked(task.id, id_, CallId("new"), "terminal", "x", 1.0)

    def impossible_commands(self, task: Task) -> Iterator[Event]:
        if task.parent or task.session.turn in {None, NONE}:
            yield ProcessStarted(task.id, NO_COMMAND, "make", True)
        known = [it for each in self.sessions.values() for it in each.commands.values()]
        for command in (Command(NO_COMMAND, task, False), *known):
            own = command.id in task.session.commands
            if own:
                yield ProcessStarted(task.id, command.id, "make", False)
            is_own = own and command.task is task
            if not (is_own and command.notify):
                yield ProcessMatched(task.id, command.id, ("line",))
            if not is_own:
                yield ProcessEnded(task.id, command.id, "exit 0")

    def impossible_now(self, task: Task) -> Iterator[Event]:
        if not task.acts():
            yield requested(Task(TaskId("late"), task.session, task))
            yield ModelAnswered(task.id, ASKS)
            yield ModelFailed(task.id, "no", Usage())
            yield ModelCalled(task.id, Usage())
            yield ToolAnswered(task.id, FOUND)
            yield SteeringSeen(task.id, ())
            yield ApprovalAsked(task.id, NO_ASK, CALLS[0], "terminal", "x", 1.0)
            yield ProcessStarted(task.id, NO_COMMAND, "make", False)
        if not task.acts() or not task.parent:
            yield QuietChanged(task.id, True)
        if task.acts() or not task.has_yet_to_settle() or task.missing():
            yield TaskStarted(task.id)
        if task.below():
            yield TaskStarted(task.id, afresh=True)
        if task.outcome or not (task.parent or task.acts()):
            yield CancelRequested(task.id)
        yield StartsPaused(task.id, bool(task.outcome) or task.paused)
        if task.outcome or not (task.parent or task.session.turn):
            yield Steered(task.id, NOTE, "faster", "/editor")
        if task.below() or not task.has_yet_to_settle():
            yield TaskSettled(task.id, DONE)
