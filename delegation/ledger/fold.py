"""How each fact changes what is true: here those of a session's life.

A fact that contradicts the facts before it is refused, and changes nothing. Work per fact is
O(depth), whatever the ledger holds.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, assert_never

import attrs

from agents import MessageId, UserMessage
from delegation.errors import ImpossibleEventError, require
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
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
)
from delegation.ledger import fold_approvals as machine
from delegation.ledger import fold_tasks as tasks
from delegation.ledger.fold_accounts import accounts_under
from delegation.ledger.records import (
    NOTHING_APPROVED,
    Envelope,
    Reply,
    SessionRecord,
    TaskRecord,
    Turn,
)
from delegation.ledger.slots import Slots
from delegation.notices import MAX_RESULT_CHARACTERS, share_per_result
from delegation.task import DeliveryCapability, Grant, Mode, Status, root_of

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def fold_entry(ledger: "Ledger", entry: Entry) -> None:  # noqa: C901, PLR0912, PLR0915 (a case a fact)
    """Fold one fact, or raise `ImpossibleEventError` and leave everything as it was."""
    event = entry.event
    # Not every number: what belongs to a session at rest is not folded.
    if entry.seq <= ledger.last_seq:
        raise ImpossibleEventError(entry, f"{ledger.last_seq} is the last number")
    match event:
        case ModelAnswered():
            tasks.model_answered(ledger, event)
        case ToolAnswered():
            tasks.tool_answered(ledger, event)
        case TaskRequested():
            tasks.requested(ledger, event, entry.at)
        case TaskStarted():
            tasks.started(ledger, event, entry.at)
        case TaskSettled():
            if (session := tasks.settled(ledger, event, entry)) is not None:
                _refresh(ledger, session)
        case ModelFailed():
            tasks.model_failed(ledger, event)
        case CancelRequested():
            tasks.cancel_requested(ledger, event)
        case Steered():
            tasks.steered(ledger, event)
        case SteeringSeen():
            tasks.steering_seen(ledger, event)
        case QuietChanged():
            tasks.quiet_changed(ledger, event)
        case ApprovalAsked():
            _refresh(ledger, machine.approval_asked(ledger, event, entry))
        case ApprovalAnswered():
            _refresh(ledger, machine.approval_answered(ledger, event))
        case ProcessStarted():
            _refresh(ledger, machine.process_started(ledger, event))
        case ProcessMatched():
            _refresh(ledger, machine.process_matched(ledger, event, entry))
        case ProcessEnded():
            _refresh(ledger, machine.process_ended(ledger, event, entry))
        case MessageReceived():
            _message_received(ledger, event, entry.seq)
        case TurnStarted():
            _turn_started(ledger, event, entry.at)
        case TurnResumed():
            _turn_resumed(ledger, event)
        case TurnEnded():
            _turn_ended(ledger, event, entry.at)
        case ReplyDelivered():
            _reply_delivered(ledger, event)
        case SessionOpened():
            _session_opened(ledger, event, entry.at)
        case DoorOpened():
            _door_opened(ledger, event)
        case DoorClosed():
            _door_closed(ledger, event)
        case SessionClosed():
            _session_closed(ledger, event)
        case DeliveryFailed():
            _delivery_failed(ledger, event)
        case JournalOpened():
            _journal_opened(ledger)
        case _:
            assert_never(event)
    ledger.last_seq = entry.seq


def _session(
    ledger: "Ledger",
    event: DoorOpened
    | DoorClosed
    | SessionClosed
    | DeliveryFailed
    | MessageReceived
    | TurnStarted
    | TurnResumed
    | TurnEnded
    | ReplyDelivered,
) -> SessionRecord:
    require(event.session in ledger.sessions, event, "there is no such session")
    return ledger.sessions[event.session]


def _session_opened(ledger: "Ledger", event: SessionOpened, at: float) -> None:
    free = root_of(event.session) not in ledger.tasks
    require(free, event, "there is such a session or task already")
    root = TaskRecord(
        root_of(event.session),
        session=event.session,
        agent=event.agent,
        path=f"/{event.agent}",
        mode=Mode.ROOT,
    )
    session = SessionRecord(event.session, root, ledger.rules)
    session.forked_from = event.forked_from
    session.attended = event.attended
    session.labels = event.labels
    root.transcript += [said.message(at) for at, said in enumerate(event.history)]
    session.tree.add(
        root.id,
        parent=None,
        agent=event.agent,
        path=root.path,
        mode=Mode.ROOT,
        at=at,
    )
    ledger.tasks[root.id] = root
    ledger.sessions[event.session] = session
    ledger.all_sessions[event.session] = None
    grants = event.grants
    if event.budget is not None:
        grants = (*grants, Grant(event.session, event.budget))
    root.accounts = session.accounts = accounts_under(ledger, root, grants, at)


def _door_opened(ledger: "Ledger", event: DoorOpened) -> None:
    session = _session(ledger, event)
    require(session.door is None, event, "a door is open already")
    require(not session.closed, event, "it was closed for good")
    session.door = event.capability
    # Tasks of an earlier process start again now that their session is back: with it come
    # the agents that can do them.
    for task in session.unsettled_detached.values():
        if task.is_ready and task.interrupted:
            tasks.queue_for_slot(ledger, session, task)
    _refresh(ledger, session)


def _door_closed(ledger: "Ledger", event: DoorClosed) -> None:
    session = _session(ledger, event)
    require(session.door is not None, event, "no door is open")
    session.door = None
    _refresh(ledger, session)


def _session_closed(ledger: "Ledger", event: SessionClosed) -> None:
    session = _session(ledger, event)
    is_new = event.deleted and not session.deleted
    require(is_new or not session.closed, event, "it was closed already")
    is_all = event.dropped == tuple(session.mail)
    require(is_all, event, f"the mail is {list(session.mail)}")
    session.closed = True
    session.deleted = event.deleted
    session.mail.clear()
    session.envelopes.clear()
    session.undelivered.clear()
    _refresh(ledger, session)


def _message_received(ledger: "Ledger", event: MessageReceived, seq: int) -> None:
    session = _session(ledger, event)
    require(not session.closed, event, "it was closed for good")
    message = UserMessage(event.text, event.parts, id=event.id or MessageId(f"m_{seq}"))
    session.mail[seq] = message
    session.envelopes[seq] = Envelope(
        event.context, event.grants, event.instructions, event.silent
    )
    if not session.tree[session.root.id]["goal"]:
        session.tree.mark(session.root.id, goal=event.text)
    _refresh(ledger, session)


def _turn_started(ledger: "Ledger", event: TurnStarted, at: float) -> None:
    session = _session(ledger, event)
    is_next = session.turn is None and event.turn == session.turns + 1
    require(is_next, event, f"turn {session.turns} is the last one so far")
    is_there = len(set(event.mail)) == len(event.mail) and session.mail.keys() >= {
        *event.mail
    }
    require(is_there, event, f"the mail is {list(session.mail)}")
    _read_mail(ledger, session, event, at)
    session.turns = event.turn
    session.turn = Turn(
        event.turn,
        event.capability,
        event.mail,
        transcript_start=len(session.root.transcript),
    )
    session.root.is_running = True
    session.tree.begin_turn(at)
    _refresh(ledger, session)


def _read_mail(
    ledger: "Ledger", session: SessionRecord, event: TurnStarted, at: float
) -> None:
    root = session.root
    news = sum(not isinstance(session.mail[seq], UserMessage) for seq in event.mail)
    share = share_per_result(news, event.characters or MAX_RESULT_CHARACTERS)
    # A message says better than news where the answer goes.
    contexts: dict[bool, Mapping[str, str]] = {}
    instructions: list[str] = []
    for seq in event.mail:
        mail, envelope = session.mail.pop(seq), session.envelopes.pop(seq)
        if not envelope.silent:
            root.transcript.append(tasks.as_message(mail, seq, share))
        contexts[not isinstance(mail, UserMessage)] = envelope.context
        root.accounts = accounts_under(ledger, root, envelope.grants, at)
        if envelope.instructions:
            instructions.append(envelope.instructions)
    root.instructions = "\n\n".join(instructions)
    root.context = contexts.get(False, contexts.get(True, root.context))


def _turn_resumed(ledger: "Ledger", event: TurnResumed) -> None:
    session = _session(ledger, event)
    turn = session.turn
    if turn is None or not turn.interrupted or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn was not interrupted")
    if event.afresh:
        _require_joined_ended(session, event)
        tasks.drop_questions(ledger, session.root)
        session.root.rewind(turn.transcript_start)
        session.mail |= session.told
        session.envelopes |= dict.fromkeys(
            session.told, Envelope(session.root.context, ())
        )
        session.told.clear()
    session.turn = attrs.evolve(turn, capability=event.capability, interrupted=False)
    session.root.is_running = True
    tasks.requeue_joined_children(ledger, session.root)
    _refresh(ledger, session)


def _turn_ended(ledger: "Ledger", event: TurnEnded, at: float) -> None:
    session = _session(ledger, event)
    turn, root = session.turn, session.root
    if turn is None or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn is not under way")
    _require_joined_ended(session, event)
    session.turn = None
    session.told.clear()
    if root.steering:
        root.steering = {
            id_: attrs.evolve(said, too_late=True) if said.is_unseen else said
            for id_, said in root.steering.items()
        }
    root.is_running = root.cancel_requested = False
    root.accounts = session.accounts
    root.instructions = ""
    root.approved = NOTHING_APPROVED
    tasks.drop_questions(ledger, root)
    if turn.capability is DeliveryCapability.NONE:
        tasks.drop_processes(session, root)
    session.last_outcome = event.outcome
    # Whoever asked within a turn has the answer from there.
    if turn.capability is not DeliveryCapability.NONE and not session.closed:
        session.undelivered[event.turn] = Reply(
            session.id, event.turn, turn.read, event.outcome
        )
    session.tree.end_turn(at, event.outcome.error)
    _refresh(ledger, session)


def _require_joined_ended(session: SessionRecord, event: object) -> None:
    joined = session.root.children.unsettled.keys() - session.unsettled_detached.keys()
    require(not joined, event, "tasks joined to it have not ended")


def _reply_delivered(ledger: "Ledger", event: ReplyDelivered) -> None:
    session = _session(ledger, event)
    require(event.turn in session.undelivered, event, "it has no such reply to deliver")
    del session.undelivered[event.turn]


def _delivery_failed(ledger: "Ledger", event: DeliveryFailed) -> None:
    session = _session(ledger, event)
    require(event.turn in session.undelivered, event, "it has no such reply to deliver")


def _journal_opened(ledger: "Ledger") -> None:
    ledger.startable.clear()
    ledger.joinable.clear()
    for session in ledger.sessions.values():
        session.door = None
        session.slots = Slots(ledger.rules)
        _release_slot(session.root)
        if session.turn is not None:
            session.turn = attrs.evolve(session.turn, interrupted=True)
            machine.assume_answers_received(session.root)
            session.root.is_running = False
        for task in _running_below(ledger, session.root):
            machine.assume_answers_received(task)
            task.interrupted, task.is_running = True, False
            _release_slot(task)
            session.tree.mark(task.id, status=Status.INTERRUPTED)
        _refresh(ledger, session)


def _release_slot(task: TaskRecord) -> None:
    task.has_slot = False
    if task.children.unsettled:
        task.children.slots_used = task.children.joined_slots_used = 0


def _running_below(ledger: "Ledger", task: TaskRecord) -> Iterator[TaskRecord]:
    for child in task.children.unsettled.values():
        yield child
        yield from _running_below(ledger, child)


def _refresh(ledger: "Ledger", session: SessionRecord) -> None:
    """Bring the index and the root's status up to date after a change to a session."""
    turn = session.turn
    if session.door is not None and (turn.interrupted if turn else session.mail):
        ledger.wakeable[session.id] = session
    else:
        ledger.wakeable.pop(session.id, None)
    session.tree.mark(session.root.id, status=_status(session))


def _status(session: SessionRecord) -> str:
    if session.turn is not None and session.turn.interrupted:
        return Status.INTERRUPTED
    if session.turn is not None:
        return tasks.working_status(session.root)
    if session.awaits_notices:
        return Status.WAITING
    if session.last_outcome is not None:
        return session.last_outcome.ending
    return Status.QUEUED
