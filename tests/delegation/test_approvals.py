"""Approvals: how questions and verdicts change the ledger, and which of them are impossible."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, CallId, ToolCall, ToolMessage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    decode,
    encode,
    root_of,
)
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    ModelAnswered,
    QuietChanged,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion, ApprovalVerdict

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]
Snapshot: TypeAlias = Callable[[Ledger], object]

NONE, POLL, PUSH = DeliveryCapability
S, OTHER = SessionId("s"), SessionId("other")
ROOT = root_of(S)
A, B = TaskId("a"), TaskId("b")
DONE = Outcome(Ending.SUCCEEDED, "42")
RESTART = JournalOpened("1.0")
CALL, SECOND = CallId("call"), CallId("second")
FIRST_ASK, SECOND_ASK = ApprovalId("a_1"), ApprovalId("a_2")
CALLS = AssistantMessage(
    calls=(ToolCall("terminal", {}, id=CALL), ToolCall("terminal", {}, id=SECOND))
)


def asks(
    task: TaskId = A, id_: ApprovalId = FIRST_ASK, call: CallId = CALL, subject: str = "make"
) -> ApprovalAsked:
    return ApprovalAsked(task, id_, call, "terminal", subject, 99.0, '{"more": 1}')


def answers(
    answer: ApprovalVerdict = ApprovalVerdict.ONCE, task: TaskId = A, id_: ApprovalId = FIRST_ASK
) -> ApprovalAnswered:
    return ApprovalAnswered(task, id_, answer, "so be it", "Ann")


def hears(task: TaskId = A, call: CallId = CALL) -> ToolAnswered:
    return ToolAnswered(task, ToolMessage(call, "made"))


@pytest.fixture
def working(begin: Tell, tell: Tell, requested: Asked) -> None:
    """A session has a detached task that is about to call a tool."""
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), TaskStarted(A), ModelAnswered(A, CALLS))


def status(ledger: Ledger, task: TaskId = A) -> str:
    return str(ledger.sessions[S].tree[task].status)


@pytest.mark.usefixtures("working")
def test_an_approval_question_records_its_call_place_and_deadline(
    ledger: Ledger, tell: Tell
) -> None:
    tell(asks())

    ask = ApprovalQuestion(
        id=FIRST_ASK,
        task=A,
        path="/editor/researcher[1]",
        call=CALL,
        tool="terminal",
        subject="make",
        details='{"more": 1}',
        asked_at=float(ledger.last_seq),
        deadline=99.0,
    )
    assert ledger.open_questions == {FIRST_ASK: ask}
    assert ledger.tasks[A].questions == {CALL: ask}
    assert (ask.is_open, ask.was_not_run) == (True, True)
    assert ledger.tasks[A].awaits_approval


@pytest.mark.usefixtures("working")
def test_an_answer_closes_the_question_and_stays_until_the_call_is_answered(
    ledger: Ledger, tell: Tell
) -> None:
    tell(asks(), answers())

    ask = ledger.tasks[A].questions[CALL]
    assert (ask.answer, ask.reason, ask.by) == (ApprovalVerdict.ONCE, "so be it", "Ann")
    assert (ask.is_open, ask.answered_while_not_running, ask.was_not_run) == (False, False, False)
    assert ledger.open_questions == {}
    assert not ledger.tasks[A].awaits_approval
    tell(hears())
    assert ledger.tasks[A].questions == {}


@pytest.mark.usefixtures("working")
@pytest.mark.parametrize(
    ("answer", "task", "session"),
    [
        (ApprovalVerdict.ONCE, set[object](), set[object]()),
        (ApprovalVerdict.TASK, {("terminal", "make")}, set[object]()),
        (ApprovalVerdict.SESSION, set[object](), {("terminal", "make")}),
        (ApprovalVerdict.DENY, set[object](), set[object]()),
    ],
)
def test_an_answer_holds_for_the_call_the_task_or_the_session(
    ledger: Ledger, tell: Tell, answer: ApprovalVerdict, task: set[object], session: set[object]
) -> None:
    tell(asks(), answers(answer))

    assert ledger.tasks[A].approved == task
    assert ledger.sessions[S].approved == session
    assert ledger.tasks[ROOT].approved == set()
    tell(hears())
    assert ledger.tasks[A].approved == task


def test_a_denied_call_was_certainly_not_run() -> None:
    ask = ApprovalQuestion(
        id=FIRST_ASK,
        task=A,
        path="/editor",
        call=CALL,
        tool="terminal",
        subject="make",
        details="",
        asked_at=1.0,
        deadline=9.0,
    )
    held = {answer: replace(ask, answer=answer).was_not_run for answer in ApprovalVerdict}

    assert [answer for answer, it in held.items() if it] == [ApprovalVerdict.DENY]
    assert replace(ask, answer=ApprovalVerdict.ONCE, answered_while_not_running=True).was_not_run


# What a task is seen to do.


@pytest.mark.usefixtures("working")
def test_a_task_waits_as_long_as_one_of_its_questions_is_open(ledger: Ledger, tell: Tell) -> None:
    story: list[tuple[Event, str]] = [
        (asks(), "waiting"),
        (asks(A, SECOND_ASK, SECOND), "waiting"),
        (answers(ApprovalVerdict.DENY), "waiting"),
        (hears(), "waiting"),
        (QuietChanged(A, True), "quiet"),
        (QuietChanged(A, False), "waiting"),
        (answers(ApprovalVerdict.ONCE, A, SECOND_ASK), "running"),
        (hears(A, SECOND), "running"),
        (TaskSettled(A, DONE), "succeeded"),
    ]
    assert status(ledger) == "running"
    for fact, expected in story:
        tell(fact)
        assert status(ledger) == expected, fact
    assert ledger.open_questions == {}


def test_a_session_waits_in_its_turn(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    begin(PUSH)
    story: list[tuple[Event, str]] = [
        (asks(ROOT), "waiting"),
        (answers(ApprovalVerdict.TASK, ROOT), "running"),
        (hears(ROOT), "running"),
        (asks(ROOT), "waiting"),
        (RESTART, "interrupted"),
        (DoorOpened(S, PUSH), "interrupted"),
        (TurnResumed(S, 1, PUSH), "waiting"),
        (hears(ROOT), "running"),
        (TurnEnded(S, 1, DONE), "succeeded"),
    ]
    for fact, expected in story:
        tell(fact)
        assert status(ledger, ROOT) == expected, fact


@pytest.mark.usefixtures("working")
def test_a_task_that_goes_on_after_a_crash_waits_again(ledger: Ledger, tell: Tell) -> None:
    tell(asks(), RESTART)
    assert status(ledger) == "interrupted"
    assert list(ledger.open_questions) == [FIRST_ASK]

    tell(DoorOpened(S, PUSH), TaskStarted(A))
    assert status(ledger) == "waiting"
    tell(answers())
    assert status(ledger) == "running"


@pytest.mark.usefixtures("working")
def test_a_call_that_is_answered_without_an_approval_has_no_question_any_more(
    ledger: Ledger, tell: Tell
) -> None:
    """After a restart the rules may differ, and then no person is asked."""
    tell(asks(), asks(A, SECOND_ASK, SECOND), hears())
    assert list(ledger.open_questions) == [SECOND_ASK]
    assert status(ledger) == "waiting"

    tell(hears(A, SECOND))
    assert ledger.open_questions == {}
    assert status(ledger) == "running"


# How questions end.


@pytest.mark.usefixtures("working")
@pytest.mark.parametrize("ending", Ending)
def test_a_task_that_ends_takes_its_questions_along(
    ledger: Ledger, tell: Tell, ending: Ending
) -> None:
    tell(asks(), asks(A, SECOND_ASK, SECOND), answers(), TaskSettled(A, Outcome(ending)))

    assert ledger.open_questions == {}
    assert ledger.tasks[A].questions == {}


def test_a_turn_that_ends_takes_its_questions_and_its_approvals_along(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(asks(ROOT, FIRST_ASK, CALL, "a"), answers(ApprovalVerdict.TASK, ROOT))
    tell(asks(ROOT, SECOND_ASK, SECOND, "b"), answers(ApprovalVerdict.SESSION, ROOT, SECOND_ASK))
    tell(asks(ROOT, ApprovalId("a_3"), CallId("third"), "c"))
    assert ledger.tasks[ROOT].approved == {("terminal", "a")}

    tell(TurnEnded(S, 1, DONE))
    assert ledger.open_questions == {}
    assert ledger.tasks[ROOT].questions == {}
    assert ledger.tasks[ROOT].approved == set()
    assert ledger.sessions[S].approved == {("terminal", "b")}


@pytest.mark.usefixtures("working")
def test_a_task_that_starts_afresh_has_no_questions(ledger: Ledger, tell: Tell) -> None:
    tell(asks(), answers(ApprovalVerdict.TASK), asks(A, SECOND_ASK, SECOND), RESTART)
    tell(DoorOpened(S, PUSH), TaskStarted(A, afresh=True))

    assert ledger.open_questions == {}
    assert ledger.tasks[A].questions == {}
    assert ledger.tasks[A].approved == set()
    assert status(ledger) == "running"


def test_a_turn_that_starts_afresh_has_no_questions(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(asks(ROOT), RESTART, DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH, afresh=True))

    assert ledger.open_questions == {}
    assert status(ledger, ROOT) == "running"


# Answers that nobody hears.


@pytest.mark.usefixtures("working")
def test_an_answer_to_an_interrupted_task_is_kept_until_it_resumes(
    ledger: Ledger, tell: Tell
) -> None:
    tell(asks(), RESTART, answers())
    assert status(ledger) == "interrupted"
    assert ledger.tasks[A].questions[CALL].answered_while_not_running

    tell(RESTART)
    assert ledger.tasks[A].questions[CALL].was_not_run, "nobody has worked on it since"
    tell(DoorOpened(S, PUSH), TaskStarted(A))
    assert ledger.tasks[A].questions[CALL].was_not_run, "whoever begins has to know it"
    tell(RESTART)
    assert not ledger.tasks[A].questions[CALL].was_not_run, "it may have been run"


def test_the_same_of_a_session(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    begin(PUSH)
    tell(asks(ROOT), RESTART, answers(ApprovalVerdict.ONCE, ROOT), RESTART)
    assert ledger.tasks[ROOT].questions[CALL].was_not_run

    tell(DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))
    assert ledger.tasks[ROOT].questions[CALL].was_not_run
    tell(RESTART)
    assert not ledger.tasks[ROOT].questions[CALL].was_not_run


@pytest.mark.usefixtures("working")
def test_a_question_that_is_open_survives_any_number_of_crashes(ledger: Ledger, tell: Tell) -> None:
    tell(asks())
    for _ in range(3):
        tell(RESTART, DoorOpened(S, PUSH), TaskStarted(A))
        assert ledger.tasks[A].questions[CALL].is_open
        assert list(ledger.open_questions) == [FIRST_ASK]


@pytest.mark.usefixtures("working")
def test_a_detached_task_is_asked_about_again_when_an_interrupted_turn_ends(
    ledger: Ledger, tell: Tell
) -> None:
    tell(TurnEnded(S, 1, DONE), TurnStarted(S, 2, NONE, ()), asks(), RESTART)
    assert ledger.open_questions == {}, "no caller has resumed the turn"

    tell(TurnEnded(S, 2, DONE))
    assert list(ledger.open_questions) == [FIRST_ASK]
    tell(answers())
    assert ledger.tasks[A].questions[CALL].was_not_run


# Who can be asked.


@pytest.mark.parametrize("attended", [False, True])
@pytest.mark.parametrize("capability", DeliveryCapability)
def test_attended_and_delivering_sessions_can_ask_for_approval(
    ledger: Ledger, tell: Tell, requested: Asked, attended: bool, capability: DeliveryCapability
) -> None:
    tell(SessionOpened(S, "editor", attended=attended))
    assert ledger.can_ask_approval(ROOT) is attended, "it is not in a turn"
    tell(TurnStarted(S, 1, capability, ()))
    tell(requested(A), TaskStarted(A), requested(B, A))

    can_be = attended or capability is not NONE
    assert [ledger.can_ask_approval(it) for it in (ROOT, A, B)] == [can_be] * 3


def test_detached_tasks_can_always_ask_for_approval(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), TaskStarted(A), requested(B, A))
    tell(TurnEnded(S, 1, DONE), DoorClosed(S))
    assert [ledger.can_ask_approval(it) for it in (ROOT, A, B)] == [False, True, True]

    tell(TurnStarted(S, 2, NONE, ()))
    assert [ledger.can_ask_approval(it) for it in (ROOT, A, B)] == [False, True, True]


# What cannot be.


@pytest.fixture
def busy(begin: Tell, tell: Tell, requested: Asked) -> None:
    """One question is open, one is answered, and one task has ended, in one of two sessions."""
    begin(PUSH)
    begin(PUSH, "other")
    tell(requested(A, mode=Mode.DETACHED), TaskStarted(A), requested(B), TaskStarted(B))
    tell(asks(), asks(A, SECOND_ASK, SECOND), answers(ApprovalVerdict.DENY, A, SECOND_ASK))
    tell(asks(B, ApprovalId("a_b")), TaskSettled(B, DONE))


NEW = ApprovalId("a_new")
THIRD = CallId("third")
IMPOSSIBLE: Mapping[str, tuple[Event, str]] = {
    "nobody asks": (asks(TaskId("nobody"), NEW, THIRD), "there is no such task"),
    "a task that has ended asks": (asks(B, NEW, THIRD), "the task has ended already"),
    "a question has the id of another": (
        asks(ROOT, FIRST_ASK, THIRD),
        "there is such an approval already",
    ),
    "a call is asked about twice": (asks(A, NEW, CALL), "it was asked for already"),
    "an answered call is asked about": (asks(A, NEW, SECOND), "it was asked for already"),
    "nobody is answered": (
        answers(ApprovalVerdict.ONCE, TaskId("nobody")),
        "there is no such task",
    ),
    "a task that has ended is answered": (
        answers(ApprovalVerdict.ONCE, B, ApprovalId("a_b")),
        "the task has ended already",
    ),
    "what nobody asked is answered": (
        answers(ApprovalVerdict.ONCE, A, NEW),
        "no such question of the task is open",
    ),
    "a question is answered twice": (
        answers(ApprovalVerdict.ONCE, A, SECOND_ASK),
        "no such question of the task is open",
    ),
    "another task is answered": (
        answers(ApprovalVerdict.ONCE, ROOT),
        "no such question of the task is open",
    ),
    "another session is answered": (
        answers(ApprovalVerdict.ONCE, root_of(OTHER)),
        "no such question of the task is open",
    ),
    "a call is answered with mail that is not there": (
        ToolAnswered(A, ToolMessage(CALL, "made"), (3,)),
        "its notices are",
    ),
}


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_impossible_fact_is_refused_and_leaves_the_ledger_unchanged(
    ledger: Ledger, snapshot: Snapshot, what: str
) -> None:
    fact, because = IMPOSSIBLE[what]
    before = snapshot(ledger)

    with pytest.raises(ImpossibleEventError, match=because):
        ledger.fold(Entry(ledger.last_seq + 1, 0.0, S, fact))
    assert snapshot(ledger) == before


@pytest.mark.usefixtures("working")
def test_a_task_that_does_not_run_cannot_ask_for_approval(ledger: Ledger, tell: Tell) -> None:
    tell(RESTART)

    with pytest.raises(ImpossibleEventError, match="the task does not run"):
        tell(asks())
    with pytest.raises(ImpossibleEventError, match="the task does not run"):
        tell(asks(ROOT))
    assert ledger.open_questions == {}


@pytest.mark.parametrize(
    "fact",
    [
        asks(),
        ApprovalAsked(A, FIRST_ASK, CALL, "terminal", "ü\n", 1794832977.25),
        *(answers(answer) for answer in ApprovalVerdict),
        ApprovalAnswered(A, FIRST_ASK, ApprovalVerdict.DENY),
        SessionOpened(S, "editor", attended=True),
    ],
)
def test_questions_and_answers_are_read_back_as_they_were(fact: Event) -> None:
    assert decode(encode(fact)) == fact
