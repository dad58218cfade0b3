"""The fold of a run that its own process interrupts, because its program has changed."""

import pytest

from orchestrator.delegation import (
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
)
from orchestrator.delegation.events import (
    DoorOpened,
    Entry,
    Event,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.ledger.fold import fold_entry

S = SessionId("r1")
NONE = DeliveryCapability.NONE
DONE = Outcome(Ending.SUCCEEDED, "done")
INTERRUPTED = TurnInterrupted(S, 1, "it has changed")


class Story:
    """A ledger that is told facts."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def tell(self, *events: Event) -> None:
        for event in events:
            seq = self.ledger.last_seq + 1
            fold_entry(self.ledger, Entry(seq, float(seq), S, event))


def request(task: str) -> TaskRequested:
    origin = Origin(session=S, turn=1, capability=NONE)
    asked = TaskRequest(
        id=TaskId(task), parent=TaskId(S), origin=origin, call=task, agent="worker", goal="work"
    )
    return TaskRequested(asked, Mode.JOINED, Reason.ASKED_TO_WAIT)


def running(capability: DeliveryCapability = NONE) -> Story:
    story = Story()
    story.tell(SessionOpened(S, "brief"))
    if capability is not NONE:
        story.tell(DoorOpened(S, capability))
    story.tell(MessageReceived(S, "go"))
    story.tell(TurnStarted(S, 1, capability, (story.ledger.last_seq,)))
    return story


def test_an_interrupted_run_holds_nothing_and_is_resumed() -> None:
    story = running()
    story.tell(request("t1"), TaskStarted(TaskId("t1")), request("t2"))
    assert TaskId("t2") in story.ledger.joinable
    story.tell(INTERRUPTED)
    session = story.ledger.sessions[S]

    assert session.awaits_resume
    assert session.is_at_rest
    assert session.root.was_interrupted
    assert session.turn is not None
    assert session.turn.change == "it has changed"
    assert not story.ledger.joinable
    assert session.slots.in_use == 0
    assert session.tree[TaskId(S)].status == "interrupted"

    story.tell(TurnResumed(S, 1, NONE, accepts_changes=True))
    assert session.turn is not None
    assert session.turn.accepts_changes
    assert session.turn.change == ""
    story.tell(*(TaskStarted(TaskId(it)) for it in ("t1", "t2")))
    story.tell(*(TaskSettled(TaskId(it), DONE) for it in ("t1", "t2")), TurnEnded(S, 1, DONE))
    assert session.has_nothing_pending


def test_only_the_running_turn_of_a_run_is_interrupted() -> None:
    at_rest = Story()
    at_rest.tell(SessionOpened(S, "brief"))
    interrupted = running()
    interrupted.tell(INTERRUPTED)
    for story, event in (
        (at_rest, INTERRUPTED),
        (interrupted, INTERRUPTED),
        (running(), TurnInterrupted(S, 2, "another turn")),
        (running(DeliveryCapability.PUSH), INTERRUPTED),
    ):
        with pytest.raises(ImpossibleEventError):
            story.tell(event)
