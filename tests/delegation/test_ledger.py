"""The state of the ledger after the facts, and the work that is due."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import msgspec
import pytest

from orchestrator.agents import (
    AssistantMessage,
    Budget,
    CallId,
    MessageId,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    Reply,
    SessionId,
    TaskId,
    UnwritableFactError,
    root_of,
)
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.delegation.events import (
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    EarlierMessage,
    Event,
    JournalOpened,
    KindChanged,
    MessageReceived,
    MetadataChanged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    QuietChanged,
    ReplyDelivered,
    SessionClosed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    change_state,
)
from orchestrator.delegation.ledger.transitions import status_of
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import (
    NO_ENTRIES,
    NO_STATES,
    Entries,
    SessionState,
    store_states,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

NONE, POLL, PUSH = DeliveryCapability
S = SessionId("s")
ROOT = root_of(S)
OTHER = SessionId("other")
A, B, C, D = map(TaskId, "abcd")
DONE = Outcome(Ending.SUCCEEDED, "42")
SAYS = AssistantMessage("hm")
ANSWERS = ToolMessage(CallId("call"), "yes")
RESTART = JournalOpened("1.0")


def test_the_same_call_of_two_tasks_asks_for_two(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Models number their calls anew in each transcript."""
    begin(PUSH)
    tell(requested(A, call="call_1"), TaskStarted(A))
    tell(requested(B, parent=A, call="call_1"))

    assert ledger.tasks[ROOT].children.by_call == {"call_1": A}
    assert ledger.tasks[A].children.by_call == {"call_1": B}


def test_every_fact_knows_its_tree(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The journal finds the facts of one session by it."""
    begin(PUSH)
    tell(requested(A))
    facts: list[Event] = [
        SessionOpened(S, "editor"),
        DoorOpened(S, PUSH),
        DoorClosed(S),
        SessionClosed(S),
        DeliveryFailed(S, 1, 1, "no"),
        MessageReceived(S, "go"),
        TurnStarted(S, 1, PUSH, ()),
        TurnResumed(S, 1, PUSH),
        TurnEnded(S, 1, DONE),
        ReplyDelivered(S, 1),
        requested(B, parent=A),
        TaskStarted(A),
        ModelAnswered(A, SAYS),
        ModelFailed(A, "no", Usage()),
        ToolAnswered(A, ANSWERS),
        Steered(A, MessageId("m"), "faster", "/editor"),
        SteeringSeen(A, (MessageId("m"),)),
        QuietChanged(A, True),
        CancelRequested(A),
        TaskSettled(A, DONE),
    ]

    assert {ledger.session_of(fact) for fact in facts} == {S}
    assert ledger.session_of(RESTART) == SessionId("")


def test_a_path_numbers_the_children_of_each_name(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), requested(B, agent="checker"), requested(C), requested(D))
    tell(TaskStarted(D), requested("below", parent=D, agent="checker"))

    assert [record.path for record in ledger.tasks.values()] == [
        "/editor",
        "/editor/researcher[1]",
        "/editor/checker[1]",
        "/editor/researcher[2]",
        "/editor/researcher[3]",
        "/editor/researcher[3]/checker[1]",
    ]
    assert [record.depth for record in ledger.tasks.values()] == [0, 1, 1, 1, 1, 2]


def test_a_task_keeps_its_transcript_until_it_settles(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It goes on from there after a crash; once it has ended only the journal needs it."""
    begin(PUSH)
    asks = AssistantMessage("", (ToolCall("look", id=CallId("call")),))
    tell(requested(A), TaskStarted(A))
    tell(ModelAnswered(A, asks), ToolAnswered(A, ANSWERS), RESTART)

    assert ledger.tasks[A].transcript == [UserMessage("find it"), asks, ANSWERS]

    tell(TaskSettled(A, DONE))
    assert ledger.tasks[A].transcript == []
    assert ledger.tasks[A].outcome == DONE


def test_a_session_remembers_all_its_turns(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    """It is one conversation, however many turns it takes."""
    begin(PUSH)
    tell(ModelAnswered(ROOT, SAYS), TurnEnded(S, 1, DONE), MessageReceived(S, "more"))
    tell(TurnStarted(S, 2, PUSH, (7,)))

    assert ledger.tasks[ROOT].transcript == [UserMessage("go"), SAYS, UserMessage("more")]
    assert ledger.tasks[ROOT].outcome is None


def test_the_fact_that_starts_a_turn_reads_the_mail(ledger: Ledger, tell: Tell) -> None:
    """So no mail is lost between reading and starting, and none is read twice."""
    tell(SessionOpened(S, "editor"), SessionOpened(OTHER, "editor"))
    tell(MessageReceived(S, "one"), MessageReceived(OTHER, "not yours"))
    tell(MessageReceived(S, "two"), TurnStarted(S, 1, PUSH, (3, 5)))
    tell(MessageReceived(S, "three"))
    session = ledger.sessions[S]

    assert session.root.transcript == [UserMessage("one"), UserMessage("two")]
    assert session.turn is not None
    assert session.turn.read == (3, 5)
    assert session.mail == {7: UserMessage("three")}
    assert ledger.sessions[OTHER].mail == {4: UserMessage("not yours")}


def test_the_next_turn_reads_the_mail_of_one_address(ledger: Ledger, tell: Tell) -> None:
    group = {"platform": "telegram", "chat_id": "-1", "message_id": "5"}
    private = {"platform": "telegram", "chat_id": "7"}
    tell(SessionOpened(S, "editor"), DoorOpened(S, PUSH))
    for context in (group, private, {**group, "message_id": "6"}):
        tell(MessageReceived(S, "go", context=context))
    session = ledger.sessions[S]
    assert session.next_mail == (3, 5)

    tell(TurnStarted(S, 1, PUSH, session.next_mail))
    assert session.root.context["chat_id"] == "-1"
    assert list(session.next_mail) == [4]


def test_the_status_of_a_settled_task_is_its_ending(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), TaskSettled(A, DONE))
    session = ledger.sessions[S]

    assert status_of(session, ledger.tasks[A]) is Ending.SUCCEEDED
    assert session.tree[A].status is Ending.SUCCEEDED


def test_only_a_settled_detached_task_becomes_mail(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """The call of a joined task already returns its result."""
    begin(PUSH)
    tell(requested(A), requested(B, mode=Mode.DETACHED))
    tell(TaskSettled(A, DONE), TaskSettled(B, DONE))
    news = ledger.last_seq
    session = ledger.sessions[S]
    assert list(session.mail) == [news]

    tell(MessageReceived(S, "more"))
    assert list(session.task_notices()) == [(news, B)]
    assert not session.unsettled_detached


def test_a_session_is_wakeable_with_mail_and_delivery(ledger: Ledger, tell: Tell) -> None:
    """One turn at a time, and none behind a closed door."""
    story: list[tuple[Event, bool]] = [
        (SessionOpened(S, "editor"), False),
        (MessageReceived(S, "one"), False),
        (DoorOpened(S, PUSH), True),
        (TurnStarted(S, 1, PUSH, (2,)), False),
        (MessageReceived(S, "two"), False),
        (TurnEnded(S, 1, DONE), True),
        (DoorClosed(S), False),
        (DoorOpened(S, POLL), True),
        (TurnStarted(S, 2, POLL, (5,)), False),
        (RESTART, False),
        (DoorOpened(S, PUSH), True),
        (TurnResumed(S, 2, PUSH), False),
        (TurnEnded(S, 2, DONE), False),
    ]
    for fact, woken in story:
        tell(fact)
        assert (S in ledger.wakeable) is woken, fact


def test_the_status_of_a_session_follows_its_turns_and_tasks(
    ledger: Ledger, tell: Tell, requested: Asked
) -> None:
    """A session never ends: between turns it waits, or shows how the last one ended."""
    story: list[tuple[Event, str]] = [
        (SessionOpened(S, "editor"), "queued"),
        (DoorOpened(S, PUSH), "queued"),
        (MessageReceived(S, "go"), "queued"),
        (TurnStarted(S, 1, PUSH, (3,)), "running"),
        (requested(A, mode=Mode.DETACHED), "running"),
        (TurnEnded(S, 1, DONE), "waiting"),
        (TaskStarted(A), "waiting"),
        (TaskSettled(A, DONE), "succeeded"),
        (TurnStarted(S, 2, PUSH, (8,)), "running"),
        (RESTART, "interrupted"),
        (DoorOpened(S, PUSH), "interrupted"),
        (TurnResumed(S, 2, PUSH), "running"),
        (TurnEnded(S, 2, Outcome(Ending.FAILED, error="no")), "failed"),
        (RESTART, "failed"),
    ]
    for fact, status in story:
        tell(fact)
        assert ledger.sessions[S].tree[ROOT].status == status, fact


def test_a_new_turn_does_not_show_the_error_of_the_last(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(TurnEnded(S, 1, Outcome(Ending.FAILED, error="no")))
    node = ledger.sessions[S].tree[ROOT]
    assert (node.ended, node.error) == (5.0, "no")

    tell(TurnStarted(S, 2, PUSH, ()))
    assert (node.started, node.ended, node.error) == (4.0, None, "")


def test_a_detached_task_is_startable_until_it_starts(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), *(requested(id_, mode=Mode.DETACHED) for id_ in (B, C, D)))
    assert list(ledger.startable) == [B, C, D]

    tell(TaskStarted(B), TaskSettled(C, DONE))
    assert list(ledger.startable) == [D]
    assert ledger.startable[D] is ledger.tasks[D]


def test_a_reply_waits_until_a_door_takes_it(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    """It names the mail that it answers, so that a door finds the caller."""
    begin(PUSH)
    tell(TurnEnded(S, 1, DONE), DoorClosed(S), RESTART)
    session = ledger.sessions[S]

    assert session.undelivered == {1: Reply(S, 1, (3,), DONE)}
    assert session.undelivered[1].text == "42"

    tell(ReplyDelivered(S, 1))
    assert not session.undelivered


def test_the_reply_of_a_failed_turn_holds_the_error() -> None:
    failed = Reply(S, 1, (3,), Outcome(Ending.FAILED, "half", "no more paper"))

    assert failed.text == "failed: no more paper"


def test_a_turn_without_async_delivery_leaves_no_reply(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    """The caller inside the turn already has the answer."""
    begin(NONE)
    tell(TurnEnded(S, 1, DONE))

    assert not ledger.sessions[S].undelivered
    assert ledger.sessions[S].last_outcome == DONE


def test_only_mail_turns_and_tasks_keep_a_session_pending(
    ledger: Ledger, tell: Tell, requested: Asked
) -> None:
    """Mail, a turn and a task in the background: each keeps it busy."""
    story: list[tuple[Event, bool]] = [
        (SessionOpened(S, "editor"), True),
        (MessageReceived(S, "go"), False),
        (TurnStarted(S, 1, PUSH, (2,)), False),
        (requested(A, mode=Mode.DETACHED), False),
        (TurnEnded(S, 1, DONE), False),
        (ReplyDelivered(S, 1), False),
        (TaskSettled(A, DONE), False),
        (TurnStarted(S, 2, PUSH, (7,)), False),
        (TurnEnded(S, 2, DONE), True),
        (ReplyDelivered(S, 2), True),
    ]
    for fact, idle in story:
        tell(fact)
        assert ledger.sessions[S].has_nothing_pending is idle, fact


def test_one_ending_only_is_success() -> None:
    """The ending comes from the events of the task, never from the presence of text."""
    outcomes = [Outcome(ending, "some text") for ending in Ending]

    assert [it.ending for it in outcomes if it.succeeded] == [Ending.SUCCEEDED]


def test_steering_is_read_before_the_next_model_call(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It says who said it, and the record before which call it was seen."""
    first, second = MessageId("m1"), MessageId("m2")
    begin(PUSH)
    tell(requested(A), Steered(A, first, "look in the drawer", "/editor"))
    tell(TaskStarted(A), ModelAnswered(A, SAYS), ToolAnswered(A, ANSWERS))
    tell(Steered(A, second, "hurry", "/editor"))
    assert len(ledger.tasks[A].transcript) == 3, "nobody has seen it yet"

    tell(SteeringSeen(A, (first,)), ModelAnswered(A, SAYS), SteeringSeen(A, (second,)))
    record = ledger.tasks[A]
    assert [said.seen_at for said in record.steering.values()] == [2, 3]
    assert record.transcript[3] == UserMessage(
        "Message from /editor, while you work:\nlook in the drawer", aside=True
    )
    assert record.transcript[3].id == first


def test_a_quiet_task_is_running_and_shown_as_quiet(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """It is a state and no failure: the next sign of life ends it."""
    begin(PUSH)
    tell(requested(A), TaskStarted(A))
    node = ledger.sessions[S].tree[A]
    for quiet, status in ((True, "quiet"), (False, "running"), (True, "quiet")):
        tell(QuietChanged(A, quiet))
        assert node.status == status
    assert ledger.tasks[A].is_running


def test_the_usage_of_a_failed_call_is_booked(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, budget=Budget(calls=5)), TaskStarted(A))
    tell(ModelFailed(A, "no", Usage(calls=2, input_tokens=7, micro_usd=3)))

    assert ledger.sessions[S].tree.total == Usage(calls=2, input_tokens=7, micro_usd=3)
    (account,) = ledger.tasks[A].accounts
    assert (account.used.calls, account.used.tokens, account.used.micro_usd) == (2, 7, 3)
    assert len(ledger.tasks[A].transcript) == 1


MOST = Usage(calls=1, input_tokens=7, output_tokens=90, micro_usd=30)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(RESTART, id="its process dies"),
        pytest.param(TaskSettled(A, DONE), id="its task ends without it"),
        pytest.param(
            ModelFailed(A, "cut", Usage(calls=1, estimated=1), charged=MOST), id="it is broken off"
        ),
    ],
)
def test_a_call_without_a_known_usage_is_charged_its_upper_bound(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, ends: Event
) -> None:
    begin(PUSH)
    tell(requested(A, budget=Budget(calls=5)), TaskStarted(A), ModelCalled(A, MOST))
    (account,) = ledger.tasks[A].accounts
    assert account.used == NOTHING

    tell(ends)

    assert account.used == Amounts(calls=1, tokens=97, micro_usd=30)
    assert ledger.sessions[S].tree.total.micro_usd == 0


def test_a_turn_that_ends_during_a_call_has_paid_for_it(ledger: Ledger, tell: Tell) -> None:
    opened = SessionOpened(S, "editor", budget=Budget(calls=5))
    tell(opened, MessageReceived(S, "go"), TurnStarted(S, 1, NONE, (2,)))
    tell(ModelCalled(ROOT, MOST), TurnEnded(S, 1, DONE))

    (account,) = ledger.tasks[ROOT].accounts
    assert account.used == Amounts(calls=1, tokens=97, micro_usd=30)


def test_a_call_that_was_not_made_is_not_booked(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, budget=Budget(calls=5)), TaskStarted(A), ModelCalled(A, MOST))
    tell(ModelFailed(A, "not made", Usage(), charged=Usage()))
    tell(ModelCalled(A, MOST), ModelAnswered(A, SAYS), RESTART)

    (account,) = ledger.tasks[A].accounts
    assert account.used.calls == 1


def test_a_closed_session_receives_no_more_mail(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), TaskStarted(A))
    tell(TurnEnded(S, 1, DONE), MessageReceived(S, "more"), DoorClosed(S))
    session = ledger.sessions[S]
    assert list(session.undelivered) == [1]

    tell(SessionClosed(S, tuple(session.mail)), TaskSettled(A, DONE))
    assert session.closed
    assert session.is_idle
    assert not session.mail
    assert not ledger.wakeable


def test_a_closed_session_that_still_takes_a_turn_has_no_reply_to_deliver(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(SessionClosed(S), TurnEnded(S, 1, DONE))

    assert not ledger.sessions[S].undelivered


def test_a_reply_that_could_not_be_delivered_waits_for_the_next_attempt(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    tell(TurnEnded(S, 1, DONE), DeliveryFailed(S, 1, 1, "the line is busy"))

    assert list(ledger.sessions[S].undelivered) == [1]


def test_a_turn_and_its_tasks_take_the_context_of_its_message(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Of the message that the turn has read, not of one that has come meanwhile."""
    begin(PUSH)
    tell(TurnEnded(S, 1, DONE), MessageReceived(S, "one", context={"chat_id": "1"}))
    tell(TurnStarted(S, 2, PUSH, tuple(ledger.sessions[S].mail)))
    tell(MessageReceived(S, "two", context={"chat_id": "2"}), requested(A))

    assert ledger.tasks[ROOT].context == {"chat_id": "1"}
    assert ledger.tasks[A].context == {"chat_id": "1"}


@pytest.mark.parametrize(
    ("characters", "shown"), [(None, 25_000), (50_000, 25_000), (10_000, 5_000)]
)
def test_notices_read_together_share_the_readable_characters(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked, *, characters: int | None, shown: int
) -> None:
    """Each is cut alike, and says how the rest is read; letters are never cut."""
    begin(PUSH)
    for task in (A, B):
        tell(requested(task, mode=Mode.DETACHED))
        tell(TaskSettled(task, Outcome(Ending.SUCCEEDED, "#" * 60_000)))
    tell(MessageReceived(S, "#" * 60_000), TurnEnded(S, 1, DONE))
    mail = tuple(ledger.sessions[S].mail)
    tell(TurnStarted(S, 2, PUSH, mail, characters))

    sizes = [it.text.count("#") for it in ledger.tasks[ROOT].transcript[1:]]
    assert sizes == [shown, shown, 60_000]


def test_a_task_that_starts_afresh_knows_only_its_brief(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """And asks anew under the names that it has used before."""
    begin(PUSH)
    tell(ModelAnswered(ROOT, SAYS), requested(A), TaskStarted(A))
    tell(ModelAnswered(A, SAYS), requested(B, parent=A, call="c"), TaskSettled(B, DONE))
    tell(RESTART, TaskStarted(A, afresh=True))
    assert ledger.tasks[A].transcript == [UserMessage("find it")]
    tell(requested(C, parent=A, call="c"))

    tell(TaskSettled(C, DONE), TaskSettled(A, DONE), TurnResumed(S, 1, PUSH, True))
    assert ledger.tasks[ROOT].transcript == [UserMessage("go")]
    assert ledger.tasks[ROOT].children.by_call == {f"call of {A}~": A}


def test_a_task_without_children_can_start_afresh(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), TaskStarted(A), ModelAnswered(A, SAYS), RESTART)
    tell(TaskStarted(A, afresh=True))

    assert ledger.tasks[A].transcript == [UserMessage("find it")]


def test_the_history_of_a_session_precedes_its_messages(ledger: Ledger, tell: Tell) -> None:
    call = ToolCall("look", id=CallId("c"))
    history = (
        EarlierMessage(role="user", text="look"),
        EarlierMessage(role="assistant", calls=(call,)),
        EarlierMessage(role="tool", call="c", text="seen"),
    )
    tell(SessionOpened(S, "editor", history=history, kind=SessionKind.RESPONSE))
    tell(MessageReceived(S, "well?"), TurnStarted(S, 1, NONE, (2,)))

    assert ledger.tasks[ROOT].transcript == [
        UserMessage("look"),
        AssistantMessage(calls=(call,)),
        ToolMessage(CallId("c"), "seen"),
        UserMessage("well?"),
    ]
    assert ledger.sessions[S].kind is SessionKind.RESPONSE


def test_a_silent_message_begins_a_turn(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor", history=(EarlierMessage(role="user", text="go"),)))
    tell(MessageReceived(S, "", context={"platform": "http"}, silent=True))
    tell(TurnStarted(S, 1, NONE, (2,)))

    assert ledger.tasks[ROOT].transcript == [UserMessage("go")]
    assert ledger.tasks[ROOT].context == {"platform": "http"}


def test_instructions_apply_to_the_turn_that_reads_them(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), DoorOpened(S, POLL))
    tell(
        MessageReceived(S, "go", instructions="Be brief."),
        MessageReceived(S, "on"),
        MessageReceived(S, "and on", instructions="In French."),
    )
    tell(TurnStarted(S, 1, POLL, (3, 4, 5)), RESTART, DoorOpened(S, POLL))
    tell(TurnResumed(S, 1, POLL))

    assert ledger.tasks[ROOT].instructions == "Be brief.\n\nIn French."

    tell(TurnEnded(S, 1, DONE))

    assert ledger.tasks[ROOT].instructions == ""


def test_metadata_is_replaced_until_its_session_is_deleted(ledger: Ledger, tell: Tell) -> None:
    opened = SessionOpened(S, "editor", metadata={"note": "old"})
    tell(opened, MetadataChanged(S, {"title": "Tea"}))

    assert ledger.sessions[S].metadata == {"title": "Tea"}
    assert opened.metadata == {"note": "old"}, "a fact does not change"
    tell(SessionClosed(S), MetadataChanged(S, {"title": "Coffee"}))
    assert ledger.sessions[S].metadata == {"title": "Coffee"}
    tell(SessionClosed(S, deleted=True))
    with pytest.raises(ImpossibleEventError, match="it was deleted"):
        tell(MetadataChanged(S, {"title": "Milk"}))


def test_a_session_of_a_program_becomes_one_of_another_kind_once(
    ledger: Ledger, tell: Tell
) -> None:
    tell(SessionOpened(S, "editor"), KindChanged(S, SessionKind.RUN))

    assert ledger.sessions[S].kind is SessionKind.RUN
    with pytest.raises(ImpossibleEventError, match="it is of that kind already"):
        tell(KindChanged(S, SessionKind.RUN))


def test_only_jobs_and_records_are_sessions_without_an_agent() -> None:
    without = {it for it in SessionKind if not it.is_run}

    assert without == {SessionKind.JOB, SessionKind.RECORD}


class Drink(msgspec.Struct, frozen=True):
    name: str
    hot: bool = True


class OrderState(SessionState, frozen=True):
    NAME: ClassVar[str] = "order"
    table: int = 0
    guest: str = ""
    drinks: Entries[Drink] = NO_ENTRIES


def test_a_session_without_state_has_the_default_one(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"))

    assert ledger.sessions[S].state(OrderState) == OrderState()
    assert ledger.sessions[S].states is NO_STATES, "nothing is kept for it"


def test_a_state_with_its_default_values_is_not_stored() -> None:
    assert store_states([OrderState(), OrderState(guest="")]) == {}


def test_fields_of_a_state_change_one_by_one_until_its_session_is_deleted(
    ledger: Ledger, tell: Tell
) -> None:
    opened = SessionOpened(S, "editor", states=store_states([OrderState(table=7, guest="Ann")]))
    tell(opened, change_state(S, OrderState, guest=""))

    session = ledger.sessions[S]
    assert session.state(OrderState) == OrderState(table=7)
    assert session.state(OrderState) is session.state(OrderState), "it is decoded once"
    assert opened.states == {"order": {"table": 7, "guest": "Ann"}}, "a fact does not change"
    tell(SessionClosed(S), change_state(S, OrderState, table=8))
    assert session.state(OrderState) == OrderState(table=8)
    tell(SessionClosed(S, deleted=True))
    with pytest.raises(ImpossibleEventError, match="it was deleted"):
        tell(change_state(S, OrderState, table=9))


def test_entries_of_a_state_are_added_and_removed_without_the_others(
    ledger: Ledger, tell: Tell
) -> None:
    tell(SessionOpened(S, "editor"))
    tell(change_state(S, OrderState, drinks={"1": Drink("tea"), "2": Drink("milk", hot=False)}))
    change = change_state(S, OrderState, drinks={"1": None, "3": Drink("coffee")})
    tell(change)

    assert change.changes == {"drinks": {"1": None, "3": {"name": "coffee", "hot": True}}}
    drinks = ledger.sessions[S].state(OrderState).drinks
    assert drinks == {"2": Drink("milk", hot=False), "3": Drink("coffee")}


def test_a_state_that_json_cannot_carry_is_refused_before_it_is_posted() -> None:
    with pytest.raises(UnwritableFactError, match="a state holds what JSON cannot carry"):
        change_state(S, OrderState, guest="\ud800")


def test_states_of_several_products_change_apart(ledger: Ledger, tell: Tell) -> None:
    class BillState(SessionState, frozen=True):
        NAME: ClassVar[str] = "bill"
        cents: int = 0

    tell(SessionOpened(S, "editor", states=store_states([OrderState(table=7)])))
    tell(change_state(S, BillState, cents=420))

    session = ledger.sessions[S]
    assert (session.state(OrderState), session.state(BillState)) == (
        OrderState(table=7),
        BillState(cents=420),
    )


def test_a_closed_session_can_be_deleted_once(ledger: Ledger, tell: Tell) -> None:
    tell(SessionOpened(S, "editor"), SessionClosed(S), SessionClosed(S, deleted=True))

    assert ledger.sessions[S].deleted
    with pytest.raises(ImpossibleEventError, match="closed already"):
        tell(SessionClosed(S, deleted=True))
