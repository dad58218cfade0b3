"""The fold of a session's facts: its doors, its mail, its turns and their replies."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import MessageId, Transcript, UserMessage
from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import (
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    JournalOpened,
    KindChanged,
    MessageReceived,
    MetadataChanged,
    ReplyDelivered,
    ReplyPartDelivered,
    SessionClosed,
    SessionEvent,
    SessionOpened,
    StateChanged,
    TurnEnded,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.ledger.fold_accounts import (
    accounts_under,
    charge_open_call,
    postpone_deadlines,
)
from orchestrator.delegation.ledger.fold_approvals import (
    assume_answers_received,
    drop_questions,
    hide_questions,
    show_questions,
)
from orchestrator.delegation.ledger.fold_jobs import refresh_scheduled
from orchestrator.delegation.ledger.fold_places import begin_anew
from orchestrator.delegation.ledger.fold_processes import drop_processes
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.fold_tasks import (
    as_message,
    queue_for_slot,
    requeue_joined_children,
)
from orchestrator.delegation.ledger.session_record import (
    NOTHING_DECODED,
    Envelope,
    PastTurn,
    Reply,
    SessionRecord,
    Turn,
)
from orchestrator.delegation.ledger.slots import Slots
from orchestrator.delegation.ledger.task_record import NOTHING_APPROVED, NOTHING_PLACED, TaskRecord
from orchestrator.delegation.ledger.task_state import (
    IDLE,
    INTERRUPTED,
    RUNNING,
    Idle,
    Interrupted,
    Queued,
    Ready,
    Running,
)
from orchestrator.delegation.ledger.transitions import (
    change_state,
    refresh_session,
    refresh_wakeable,
    refusal,
    require,
    require_transition,
)
from orchestrator.delegation.notices import MAX_RESULT_CHARACTERS, share_per_result
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import merge_changes
from orchestrator.delegation.task import NO_DELIVERY, ROOT, Ending, Grant, Status, root_of
from orchestrator.delegation.tree.node import TaskNode

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def _known_session(ledger: "Ledger", event: SessionEvent) -> SessionRecord:
    session = ledger.sessions.get(event.session)
    if session is None:
        raise ImpossibleEventError(event, "there is no such session")
    return session


def session_opened(ledger: "Ledger", event: SessionOpened, entry: Entry) -> None:
    id_ = root_of(event.session)
    require(id_ not in ledger.tasks, event, "there is such a session or task already")
    node = TaskNode(None, event.agent, "", "", f"/{event.agent}", ROOT, Status.QUEUED, "", entry.at)
    root = TaskRecord(id_, event.session, node)
    session = SessionRecord(event.session, root, ledger.rules)
    session.forked_from = event.forked_from
    session.attended = event.attended
    session.kind = event.kind
    session.metadata = event.metadata
    session.states = event.states
    session.owner = event.owner
    if event.history:
        root.transcript = Transcript(
            earlier.message(index) for index, earlier in enumerate(event.history)
        )
    session.tree.add_node(id_, node)
    ledger.tasks[root.id] = root
    ledger.sessions[event.session] = session
    ledger.all_sessions[event.session] = None
    grants = event.grants
    if event.budget is not None:
        grants = (*grants, Grant(event.session, event.budget))
    if grants:
        root.accounts = session.accounts = accounts_under(ledger, root, grants, entry.at)


def kind_changed(ledger: "Ledger", event: KindChanged, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(session.kind is not event.kind, event, "it is of that kind already")
    session.kind = event.kind


def metadata_changed(ledger: "Ledger", event: MetadataChanged, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(not session.deleted, event, "it was deleted")
    session.metadata = event.metadata


def state_changed(ledger: "Ledger", event: StateChanged, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(not session.deleted, event, "it was deleted")
    fields = merge_changes(session.states.get(event.state, {}), event.changes)
    session.states = {**session.states, event.state: fields}
    session.decoded_states = NOTHING_DECODED


def door_opened(ledger: "Ledger", event: DoorOpened, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(session.door is None, event, "a door is open already")
    require(not session.closed, event, "it was closed for good")
    session.door = event.capability
    # Interrupted tasks go on now that their session is open: with it come their agents.
    for task in session.unsettled_detached.values():
        if task.is_interrupted and not task.pending_dependencies:
            queue_for_slot(ledger, session, task)
    refresh_session(ledger, session)


def door_closed(ledger: "Ledger", event: DoorClosed, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(session.door is not None, event, "no door is open")
    session.door = None
    refresh_session(ledger, session)


def session_closed(ledger: "Ledger", event: SessionClosed, _: Entry) -> None:
    session = _known_session(ledger, event)
    is_new = event.deleted and not session.deleted
    require(is_new or not session.closed, event, "it was closed already")
    is_all = event.dropped == tuple(session.mail)
    require(is_all, event, f"the mail is {list(session.mail)}")
    session.closed = True
    session.deleted = event.deleted
    session.mail.clear()
    session.envelopes.clear()
    session.undelivered.clear()
    session.jobs.clear()
    refresh_scheduled(ledger, session)
    if event.deleted:
        # Processes on unreachable machines go with it, so that they do not keep it in memory.
        session.processes = {
            id_: process for id_, process in session.processes.items() if not process.is_unreachable
        }
    refresh_session(ledger, session)


def message_received(ledger: "Ledger", event: MessageReceived, entry: Entry) -> None:
    session = _known_session(ledger, event)
    require(not session.closed, event, "it was closed for good")
    message = UserMessage(event.text, event.parts, id=event.id or MessageId(f"m_{entry.seq}"))
    session.mail[entry.seq] = message
    session.envelopes[entry.seq] = Envelope(
        event.context,
        event.grants,
        event.instructions,
        event.silent,
        event.async_delivery,
        event.terms,
    )
    session.tree.set_first_goal(event.text)
    refresh_session(ledger, session)


def turn_started(ledger: "Ledger", event: TurnStarted, entry: Entry) -> None:
    session = _known_session(ledger, event)
    if session.turn is not None or event.turn != session.turns + 1:
        raise refusal(event, f"turn {session.turns} is the last one so far", None)
    read = {*event.mail}
    if len(read) != len(event.mail) or not session.mail.keys() >= read:
        raise refusal(event, f"the mail is {list(session.mail)}", None)
    async_delivery = _read_mail(ledger, session, event, entry.at)
    session.turns = event.turn
    session.turn = Turn(
        event.turn,
        event.capability,
        event.mail,
        transcript_start=len(session.root.transcript),
        async_delivery=async_delivery,
        version=event.version,
        trace=event.trace,
    )
    change_state(session, session.root, RUNNING)
    session.tree.begin_turn(entry.at)
    refresh_wakeable(ledger, session)


def _read_mail(ledger: "Ledger", session: SessionRecord, event: TurnStarted, at: float) -> bool:
    """Move mail into the transcript; return whether all its senders can be told later."""
    root = session.root
    notices, async_delivery = 0, True
    # The context of a message is preferred to the context of a notice.
    contexts: dict[bool, Mapping[str, str]] = {}
    instructions: list[str] = []
    standing: list[Grant] = []
    for seq in event.mail:
        envelope = session.envelopes[seq]
        async_delivery = async_delivery and envelope.async_delivery
        notices += not isinstance(session.mail[seq], UserMessage)
        if envelope.grants:
            standing += [grant for grant in envelope.grants if grant.is_standing]
    share = share_per_result(notices, event.characters or MAX_RESULT_CHARACTERS)
    if standing:
        root.accounts = tuple(it for it in root.accounts if not it.is_standing)
        root.accounts = session.accounts = accounts_under(ledger, root, standing, at)
    for seq in event.mail:
        mail, envelope = session.mail.pop(seq), session.envelopes.pop(seq)
        if not envelope.silent:
            message = as_message(mail, seq, share)
            root.transcript = root.transcript.followed_by(message)
        contexts[not isinstance(mail, UserMessage)] = envelope.context
        if envelope.grants:
            root.accounts = accounts_under(ledger, root, envelope.grants, at)
        if envelope.instructions:
            instructions.append(envelope.instructions)
        if isinstance(mail, UserMessage):
            session.terms = envelope.terms
    root.instructions = "\n\n".join(instructions)
    root.made_instructions = None
    root.context = contexts.get(False, contexts.get(True, root.context))
    return async_delivery


def turn_resumed(ledger: "Ledger", event: TurnResumed, _: Entry) -> None:
    session = _known_session(ledger, event)
    turn, root = session.turn, session.root
    if turn is not None and turn.number == event.turn and root.is_running:
        require(event.afresh, event, "that turn was not interrupted", root)
        begin_anew(ledger, root, event, start=turn.transcript_start)
        _unread_consumed(session)
        return
    if turn is None or not root.is_interrupted or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn was not interrupted")
    if event.afresh:
        _require_joined_ended(session, event)
        drop_questions(ledger, root)
        root.rewind(turn.transcript_start)
        _unread_consumed(session)
    root.drop_incomplete(turn.transcript_start)
    if session.awaits_resume:
        show_questions(ledger, _unsettled_in(session))
    if event.paused:
        postpone_deadlines(session, _unsettled_in(session), event.paused)
    session.turn = replace(
        turn,
        capability=event.capability,
        accepts_changes=turn.accepts_changes or event.accepts_changes,
        change="",
    )
    change_state(session, root, RUNNING)
    requeue_joined_children(ledger, root)
    refresh_wakeable(ledger, session)


def turn_interrupted(ledger: "Ledger", event: TurnInterrupted, _: Entry) -> None:
    session = _known_session(ledger, event)
    turn = session.turn
    if turn is None or turn.number != event.turn or not session.is_interruptible:
        raise ImpossibleEventError(event, "that turn is not the run of a caller")
    session.turn = replace(turn, change=event.reason)
    _interrupt_all(ledger, session)


def _unread_consumed(session: SessionRecord) -> None:
    """Turn the mail that the forgotten steps of a turn had read into unread mail."""
    session.mail |= session.consumed
    envelope = Envelope(session.root.context, ())
    session.envelopes |= dict.fromkeys(session.consumed, envelope)
    session.consumed.clear()


def turn_ended(ledger: "Ledger", event: TurnEnded, entry: Entry) -> None:
    session = _known_session(ledger, event)
    turn, root = session.turn, session.root
    if turn is None or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn is not under way")
    require_transition(root, Idle, event)
    _require_joined_ended(session, event)
    if session.awaits_resume:
        # A detached task goes on without the turn, and its question waits for an answer again.
        show_questions(ledger, _unsettled_in(session))
    session.turn = None
    session.consumed.clear()
    for id_ in root.unseen_steering:
        root.steering[id_] = replace(root.steering[id_], too_late=True)
    root.unseen_steering = ()
    root.cancel_requested = False
    if root.reserved is not None:
        charge_open_call(session, root)
    root.accounts = session.accounts
    root.instructions = ""
    root.made_instructions = None
    root.approved = NOTHING_APPROVED
    root.placed = NOTHING_PLACED
    if root.questions:
        drop_questions(ledger, root)
    if turn.promises is NO_DELIVERY:
        drop_processes(session, root)
    session.last_outcome = outcome = event.outcome
    if session.kind is SessionKind.CONVERSATION or session.kind is SessionKind.CHAT:
        failure = None if outcome.ending is Ending.SUCCEEDED else outcome
        if failure is not None:
            failure = replace(failure, output="", recorded_evidence=UNSET)
        session.past_turns.append(PastTurn(len(root.transcript), failure))
    # The caller of a turn without delivery gets the outcome as its result.
    if turn.capability is not NO_DELIVERY and not session.closed:
        session.undelivered[event.turn] = Reply(
            session.id, event.turn, turn.read, outcome, root.context, trace=turn.trace
        )
    change_state(session, root, IDLE)
    session.tree.end_turn(entry.at, outcome.error)
    refresh_wakeable(ledger, session)


def _require_joined_ended(session: SessionRecord, event: TurnResumed | TurnEnded) -> None:
    if session.root.children.unsettled.keys() - session.unsettled_detached.keys():
        raise refusal(event, "tasks joined to it have not ended", session.root)


def reply_delivered(ledger: "Ledger", event: ReplyDelivered, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(event.turn in session.undelivered, event, "it has no such reply to deliver")
    del session.undelivered[event.turn]


def delivery_failed(ledger: "Ledger", event: DeliveryFailed, _: Entry) -> None:
    session = _known_session(ledger, event)
    require(event.turn in session.undelivered, event, "it has no such reply to deliver")


def reply_part_delivered(ledger: "Ledger", event: ReplyPartDelivered, _: Entry) -> None:
    session = _known_session(ledger, event)
    reply = session.undelivered.get(event.turn)
    if reply is None or event.part in reply.parts:
        raise ImpossibleEventError(event, "it has no such part to deliver")
    parts = {**reply.parts, event.part: event.receipt}
    session.undelivered[event.turn] = replace(reply, parts=parts)


def journal_opened(ledger: "Ledger", event: JournalOpened, _: Entry) -> None:
    ledger.host = event.host
    ledger.startable.clear()
    ledger.joinable.clear()
    for session in ledger.sessions.values():
        session.door = None
        _interrupt_all(ledger, session)


def _interrupt_all(ledger: "Ledger", session: SessionRecord) -> None:
    """Take the tasks of a session for ones whose process is gone."""
    session.slots = Slots(ledger.rules, session.slots.paused)
    for task in _unsettled_in(session):
        ledger.joinable.pop(task.id, None)
        _interrupt(session, task)
    if session.awaits_resume:
        # Until then no call of it waits for an answer.
        hide_questions(ledger, _unsettled_in(session))
    refresh_session(ledger, session)


def _interrupt(session: SessionRecord, task: TaskRecord) -> None:
    """Take a task for one whose process is gone."""
    if task.children.unsettled:
        task.children.slots_used = task.children.joined_slots_used = 0
    state = task.state
    if isinstance(state, Queued):
        change_state(session, task, Interrupted(state.dependencies))
    elif isinstance(state, (Ready, Running)):
        # A task that was not running has run nothing that was approved meanwhile.
        if isinstance(state, Running):
            assume_answers_received(task)
            if task.reserved is not None:
                charge_open_call(session, task)
        change_state(session, task, INTERRUPTED)


def _unsettled_in(session: SessionRecord) -> Iterator[TaskRecord]:
    yield session.root
    yield from _unsettled_below(session.root)


def _unsettled_below(task: TaskRecord) -> Iterator[TaskRecord]:
    for child in task.children.unsettled.values():
        yield child
        yield from _unsettled_below(child)


FOLDS: Final[tuple[FoldRow, ...]] = (
    fold_row(MessageReceived, message_received),
    fold_row(TurnStarted, turn_started),
    fold_row(TurnResumed, turn_resumed),
    fold_row(TurnEnded, turn_ended),
    fold_row(TurnInterrupted, turn_interrupted),
    fold_row(ReplyDelivered, reply_delivered),
    fold_row(SessionOpened, session_opened),
    fold_row(DoorOpened, door_opened),
    fold_row(DoorClosed, door_closed),
    fold_row(KindChanged, kind_changed),
    fold_row(MetadataChanged, metadata_changed),
    fold_row(StateChanged, state_changed),
    fold_row(SessionClosed, session_closed),
    fold_row(DeliveryFailed, delivery_failed),
    fold_row(ReplyPartDelivered, reply_part_delivered),
    fold_row(JournalOpened, journal_opened),
)
