"""Impossible facts are refused and change nothing."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import AssistantMessage, CallId, MessageId, ToolMessage, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.events import (
    CallPlaced,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JobOccurred,
    JobPaused,
    JobRemoved,
    JobSet,
    JournalOpened,
    KindChanged,
    MessageReceived,
    MetadataChanged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    QuietChanged,
    ReplyDelivered,
    ReplyPartDelivered,
    SessionClosed,
    SessionOpened,
    StartsPaused,
    StateChanged,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.events.jobs import JobId, JobSpec
from orchestrator.delegation.session_kind import SessionKind

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]
Snapshot: TypeAlias = Callable[[Ledger], object]
Refuses: TypeAlias = Callable[[Event], str]

POLL, PUSH = DeliveryCapability.POLL, DeliveryCapability.PUSH
S = SessionId("s")
ROOT = root_of(S)
OTHER = SessionId("other")
NOWHERE = SessionId("nowhere")
RESUMED_ANEW = TurnResumed(S, 1, PUSH, afresh=True)
GONE = SessionId("gone")
A, B, C, D, QUEUED = (TaskId(name) for name in ("a", "b", "c", "d", "queued"))
NOBODY, NEEDY, NEWS_OF = map(TaskId, ("nobody", "needy", "news of"))
SEEN, SAID, NEW = map(MessageId, ("seen", "said", "new"))
NEWS, LETTER = 20, 21
DONE = Outcome(Ending.SUCCEEDED, "42")
SAYS = AssistantMessage("hm")
ANSWERS = ToolMessage(CallId("call"), "yes")
RESTART = JournalOpened("1.0")
JOB = JobSpec(id=JobId("brief"), schedule="0 8 * * *", zone="UTC", agent="editor", goal="Write.")


def of_task(task: TaskId) -> dict[str, Event]:
    """Return all that could be said of a task once it was asked for."""
    return {
        "starts": TaskStarted(task),
        "calls a model": ModelCalled(task, Usage()),
        "hears a model": ModelAnswered(task, SAYS),
        "hears a model fail": ModelFailed(task, "no", Usage()),
        "hears a tool": ToolAnswered(task, ANSWERS),
        "is told something": Steered(task, NEW, "faster", "/editor"),
        "sees what it was told": SteeringSeen(task, ()),
        "is quiet": QuietChanged(task, True),
        "is paused": StartsPaused(task, True),
        "is cancelled": CancelRequested(task),
        "settles": TaskSettled(task, DONE),
    }


def of_session(session: SessionId) -> dict[str, Event]:
    """Return all that could be said of a session once it was opened."""
    return {
        "opens a door": DoorOpened(session, PUSH),
        "closes its door": DoorClosed(session),
        "gets mail": MessageReceived(session, "hello"),
        "starts a turn": TurnStarted(session, 1, PUSH, ()),
        "resumes a turn": TurnResumed(session, 1, PUSH),
        "ends a turn": TurnEnded(session, 1, DONE),
        "has a reply delivered": ReplyDelivered(session, 1),
        "has a reply not delivered": DeliveryFailed(session, 1, 1, "no"),
        "is closed": SessionClosed(session),
        "is of another kind": KindChanged(session, SessionKind.RUN),
        "has other metadata": MetadataChanged(session, {"title": "tea"}),
        "has another state": StateChanged(session, "order", {"table": 7}),
        "has a part delivered": ReplyPartDelivered(session, 1, "1"),
        "sets a job": JobSet(session, JOB, 1.0),
        "pauses a job": JobPaused(session, JOB.id, True, 1.0),
        "removes a job": JobRemoved(session, JOB.id),
        "has a job occur": JobOccurred(session, JOB.id, 9.0, SessionId("run")),
    }


IMPOSSIBLE: dict[str, Event] = {
    **{f"nobody {does}": fact for does, fact in of_task(NOBODY).items()},
    **{f"a settled task {does}": fact for does, fact in of_task(C).items()},
    **{f"no session {does}": fact for does, fact in of_session(NOWHERE).items()},
    "a task settles before those below it": TaskSettled(A, DONE),
    "a session settles": TaskSettled(ROOT, DONE),
    "a task ends with the answer of another": TaskSettled(B, DONE, ModelAnswered(A, SAYS)),
    "a queued task ends with an answer": TaskSettled(QUEUED, DONE, ModelAnswered(QUEUED, SAYS)),
    "a session is opened twice": SessionOpened(S, "editor"),
    "a second door opens": DoorOpened(S, POLL),
    "a door closes that is not open": DoorClosed(OTHER),
    "two turns at a time": TurnStarted(S, 2, PUSH, ()),
    "a turn is left out": TurnStarted(OTHER, 2, PUSH, ()),
    "a turn reads what was never said": TurnStarted(OTHER, 1, PUSH, (99,)),
    "a turn reads mail of another session": TurnStarted(OTHER, 1, PUSH, (3,)),
    "a turn reads the same mail twice": TurnStarted(OTHER, 1, PUSH, (10, 10)),
    "a turn resumes that runs": TurnResumed(S, 1, PUSH),
    "a turn resumes that never started": TurnResumed(OTHER, 1, PUSH),
    "a turn ends that is not under way": TurnEnded(S, 2, DONE),
    "a turn ends that never started": TurnEnded(OTHER, 1, DONE),
    "a turn ends before the tasks joined to it": TurnEnded(S, 1, DONE),
    "a reply is delivered before its turn ends": ReplyDelivered(S, 1),
    "a reply is not delivered before its turn ends": DeliveryFailed(S, 1, 1, "no"),
    "a part is delivered before its turn ends": ReplyPartDelivered(S, 1, "1"),
    "a job is paused that was never set": JobPaused(S, JOB.id, True, 1.0),
    "a job is removed that was never set": JobRemoved(S, JOB.id),
    "a job occurs that was never set": JobOccurred(S, JOB.id, 9.0, OTHER),
    "a session is closed and not all mail is dropped": SessionClosed(S, (NEWS,)),
    "a session is closed twice": SessionClosed(GONE),
    "a door opens onto a closed session": DoorOpened(GONE, PUSH),
    "a closed session gets mail": MessageReceived(GONE, "hello?"),
    "a session takes the id of a task": SessionOpened(SessionId(A), "editor"),
    "a task starts that runs": TaskStarted(B),
    "a task starts before what it needs": TaskStarted(NEEDY),
    "a task starts anew before those below it have ended": TaskStarted(A, True),
    "a session is quiet": QuietChanged(ROOT, True),
    "a session between two turns is told something": Steered(
        root_of(OTHER), NEW, "faster", "/editor"
    ),
    "a task is told the same twice": Steered(A, SAID, "faster", "/editor"),
    "a task sees what nobody said": SteeringSeen(A, (NEW,)),
    "a task sees what it has seen": SteeringSeen(A, (SEEN,)),
    "a task sees the same twice": SteeringSeen(A, (SAID, SAID)),
    "a task reads mail": ToolAnswered(A, ANSWERS, (NEWS,)),
    "a tool tells what was never said": ToolAnswered(ROOT, ANSWERS, (99,)),
    "a tool tells what was read": ToolAnswered(ROOT, ANSWERS, (3,)),
    "a tool tells mail of another session": ToolAnswered(ROOT, ANSWERS, (10,)),
    "a tool tells the same mail twice": ToolAnswered(ROOT, ANSWERS, (NEWS, NEWS)),
    "a tool tells what somebody said": ToolAnswered(ROOT, ANSWERS, (LETTER,)),
    "a session starts like a task": TaskStarted(ROOT),
}

SILENT: dict[str, Event] = {
    f"{who} {does}": of_task(task)[does]
    for task, who in {
        root_of(OTHER): "a session between two turns",
        QUEUED: "a task that has not started",
    }.items()
    for does in (
        "hears a model",
        "hears a model fail",
        "hears a tool",
        "sees what it was told",
        "is quiet",
    )
}


@pytest.fixture
def refuses(ledger: Ledger, snapshot: Snapshot) -> Callable[[Event], str]:
    """Check that a fact is refused and changes nothing, and return why it is impossible."""

    def refuses(fact: Event) -> str:
        before = snapshot(ledger)
        with pytest.raises(ImpossibleEventError) as refused:
            ledger.fold(Entry(ledger.last_seq + 1, 99.0, S, fact))
        assert refused.value.event is fact
        assert snapshot(ledger) == before
        return refused.value.because

    return refuses


@pytest.fixture
def life(ledger: Ledger, begin: Tell, tell: Tell, requested: Asked) -> None:
    """Session `s` runs task a, which runs b; c is settled. The other has one letter, no turn.

    A has seen one note and not another; one task needs it. There are news and a letter for `s`.
    """
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), TaskStarted(B))
    tell(SessionOpened(OTHER, "editor"), MessageReceived(OTHER, "hello"))
    tell(requested(C), TaskStarted(C), TaskSettled(C, DONE))
    tell(requested(QUEUED, parent=A), requested(NEEDY, needs=(A,)))
    tell(Steered(A, SEEN, "faster", "/editor"), SteeringSeen(A, (SEEN,)))
    tell(Steered(A, SAID, "faster", "/editor"))
    tell(requested(NEWS_OF, mode=Mode.DETACHED), TaskSettled(NEWS_OF, DONE))
    tell(MessageReceived(S, "and more"))
    tell(SessionOpened(GONE, "editor"), SessionClosed(GONE))
    assert list(ledger.sessions[S].mail) == [NEWS, LETTER]


@pytest.mark.usefixtures("life")
@pytest.mark.parametrize("fact", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_contradicting_fact_is_refused_and_leaves_the_ledger_unchanged(
    fact: Event, refuses: Refuses
) -> None:
    """The ledger is the one place where a bug of ours cannot become the truth."""
    assert refuses(fact)


@pytest.mark.usefixtures("life")
@pytest.mark.parametrize("fact", SILENT.values(), ids=SILENT)
def test_answers_for_a_task_that_does_not_act_are_refused(fact: Event, refuses: Refuses) -> None:
    assert refuses(fact)


@pytest.mark.usefixtures("life")
@pytest.mark.parametrize(
    ("task", "more"),
    [
        pytest.param(D, {"parent": NOBODY}, id="by nobody"),
        pytest.param(D, {"parent": C}, id="by a settled task"),
        pytest.param(D, {"parent": QUEUED}, id="by a task that has not started"),
        pytest.param(D, {"parent": OTHER, "session": OTHER}, id="by a session between two turns"),
        pytest.param(A, {"call": "another"}, id="under an id that is taken"),
        pytest.param(ROOT, {}, id="under the id of a session"),
        pytest.param(D, {"call": f"call of {A}"}, id="again by the same call"),
        pytest.param(D, {"session": OTHER}, id="from another tree"),
        pytest.param(D, {"mode": Mode.ROOT}, id="as a session"),
        pytest.param(D, {"needs": (NOBODY,)}, id="needing nobody"),
        pytest.param(D, {"needs": (A, B)}, id="needing another's child"),
        pytest.param(D, {"needs": (ROOT,)}, id="needing whoever asks"),
        pytest.param(D, {"needs": (D,)}, id="needing itself"),
        pytest.param(D, {"needs": (A,), "started": True}, id="started before its dependency"),
    ],
)
def test_a_task_cannot_be_asked_for(
    task: str, more: dict[str, object], requested: Asked, refuses: Refuses
) -> None:
    assert refuses(requested(task, **more))


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_facts_come_in_their_order(
    ledger: Ledger, tell: Tell, snapshot: Snapshot, seq: int
) -> None:
    """A repetition means that the journal is not what was written.

    A gap is no contradiction: what belongs to a session at rest is not folded.
    """
    tell(RESTART, RESTART)
    before = snapshot(ledger)

    with pytest.raises(ImpossibleEventError, match="2 is the last number"):
        ledger.fold(Entry(seq, 9.0, S, SessionOpened(S, "editor")))
    assert snapshot(ledger) == before

    ledger.fold(Entry(7, 9.0, S, SessionOpened(S, "editor")))
    assert ledger.last_seq == 7


def test_only_an_interrupted_turn_is_resumed(begin: Tell, tell: Tell, refuses: Refuses) -> None:
    """A fact names the turn it is about, and another one is another fact."""
    begin(PUSH)
    tell(RESTART)

    assert refuses(TurnResumed(S, 2, PUSH))


def test_an_interrupted_task_neither_hears_nor_asks(
    begin: Tell, tell: Tell, requested: Asked, refuses: Refuses
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), RESTART)

    for who in (ROOT, A):
        assert refuses(ModelAnswered(who, SAYS))
        assert refuses(ToolAnswered(who, ANSWERS))
        assert refuses(requested(B, parent=who))


def test_a_session_that_takes_no_turn_cannot_be_cancelled(
    begin: Tell, tell: Tell, refuses: Refuses
) -> None:
    """The cancel would hit the next turn, which was not requested to end."""
    begin(PUSH)
    tell(TurnEnded(S, 1, DONE))

    assert refuses(CancelRequested(ROOT))


def test_a_running_task_starts_afresh_only_after_losing_its_worker(
    begin: Tell, tell: Tell, requested: Asked, refuses: Refuses
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A))
    for task, anew in ((A, TaskStarted(A, afresh=True)), (ROOT, RESUMED_ANEW)):
        assert refuses(anew)
        tell(CallPlaced(task, CallId("c"), "gpu", 1, "w", "run"))
        assert refuses(anew), "a call is lost, and not its turn"
        tell(CallPlaced(task, CallId("d"), "gpu", 1, turn=True))
        assert refuses(anew), "no worker has it"
    assert refuses(TurnResumed(S, 1, PUSH)), "it was not interrupted"

    tell(CallPlaced(A, CallId("d"), "gpu", 2, "w", "run", turn=True))
    tell(CallPlaced(ROOT, CallId("d"), "gpu", 2, "w", "run", turn=True))
    assert refuses(RESUMED_ANEW), "a task below it has not ended"
    tell(TaskStarted(A, afresh=True), TaskSettled(A, DONE), RESUMED_ANEW)


def test_a_task_starts_afresh_only_after_its_children_have_ended(
    begin: Tell, tell: Tell, requested: Asked, refuses: Refuses
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), requested(B, parent=A), RESTART)

    assert refuses(TurnResumed(S, 1, PUSH, afresh=True))
    assert refuses(TaskStarted(A, afresh=True))
    tell(TaskSettled(B, DONE), TaskStarted(A, afresh=True))
    tell(TaskSettled(A, DONE), TurnResumed(S, 1, PUSH, afresh=True))


def test_a_task_awaits_a_worker_until_one_runs_its_call(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A))
    assert ledger.tasks[A].awaits_worker == ""
    tell(CallPlaced(A, CallId("c"), "gpu", 1))
    assert ledger.tasks[A].awaits_worker == "gpu"
    tell(CallPlaced(A, CallId("c"), "gpu", 1, "w", "run"))
    tell(CallPlaced(A, CallId("d"), "gpu", 2, turn=True))
    assert ledger.tasks[A].awaits_worker == "", "its turn has no open call"
