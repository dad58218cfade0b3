"""How each fact changes what is true.

A fact that contradicts the facts before it is refused, and changes nothing. Work per fact is
O(depth), whatever the ledger holds.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

import attrs

from agents import MessageId, UserMessage
from delegation import news
from delegation.errors import ImpossibleEventError
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
from delegation.records import (
    NO_CHILDREN,
    Children,
    Reply,
    SessionRecord,
    TaskRecord,
    Turn,
)
from delegation.task import (
    DeliveryCapability,
    Mode,
    Status,
    TaskId,
    root_of,
)

if TYPE_CHECKING:
    from delegation.ledger import Ledger


def learn(ledger: "Ledger", entry: Entry) -> None:  # noqa: C901, PLR0912 (a case a fact)
    """Fold one fact, or raise `ImpossibleEventError` and leave everything as it was."""
    event = entry.event
    if entry.seq != ledger.last_seq + 1:
        raise ImpossibleEventError(entry, f"{ledger.last_seq + 1} is the next number")
    match event:
        case ModelAnswered():
            _model_answered(ledger, event)
        case ToolAnswered():
            _acting_task(ledger, event).transcript.append(event.message)
        case TaskRequested():
            _task_requested(ledger, event, entry.at)
        case TaskStarted():
            _task_started(ledger, event, entry.at)
        case TaskSettled():
            _task_settled(ledger, event, entry)
        case CancelRequested():
            _cancel_requested(ledger, event)
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
        case JournalOpened():
            _journal_opened(ledger)
        case _:
            assert_never(event)
    ledger.last_seq = entry.seq


def _require(condition: bool, event: Event, otherwise: str) -> None:
    if not condition:
        raise ImpossibleEventError(event, otherwise)


def _live_task(
    ledger: "Ledger",
    event: ModelAnswered | ToolAnswered | TaskStarted | TaskSettled | CancelRequested,
) -> TaskRecord:
    _require(event.task in ledger.tasks, event, "there is no such task")
    record = ledger.tasks[event.task]
    _require(record.outcome is None, event, "the task has ended already")
    return record


def _acting_task(ledger: "Ledger", event: ModelAnswered | ToolAnswered) -> TaskRecord:
    record = _live_task(ledger, event)
    _require(record.acting, event, "nobody works on it now")
    return record


def _session(
    ledger: "Ledger",
    event: DoorOpened
    | DoorClosed
    | MessageReceived
    | TurnStarted
    | TurnResumed
    | TurnEnded
    | ReplyDelivered,
) -> SessionRecord:
    _require(event.session in ledger.sessions, event, "there is no such session")
    return ledger.sessions[event.session]


def _task_requested(ledger: "Ledger", event: TaskRequested, at: float) -> None:
    request = event.request
    parent = ledger.tasks.get(request.parent)
    if parent is None or not parent.acting:
        raise ImpossibleEventError(event, "nobody works on the task that asks")
    _require(request.id not in ledger.tasks, event, "there is such a task already")
    _require(
        request.call not in parent.children.asked, event, "it was asked for already"
    )
    _require(request.origin.session == parent.session, event, "it is another's child")
    _require(event.mode is not Mode.ROOT, event, "a session is opened, not asked for")
    if parent.children is NO_CHILDREN:
        parent.children = Children()
    children = parent.children
    number = children.names[request.agent] = children.names.get(request.agent, 0) + 1
    record = TaskRecord(
        request.id,
        session=parent.session,
        agent=request.agent,
        path=f"{parent.path}/{request.agent}[{number}]",
        mode=event.mode,
        parent=parent,
        request=request,
    )
    record.transcript.append(_told(news.brief(request), request.id))
    children.asked[request.call] = request.id
    children.unsettled[request.id] = record
    ledger.tasks[request.id] = record
    session = ledger.sessions[parent.session]
    session.tree.add(
        request.id,
        parent=parent.id,
        agent=request.agent,
        path=record.path,
        mode=event.mode,
        at=at,
        goal=request.goal,
        label=request.label,
        reason=event.reason,
    )
    if event.mode is Mode.DETACHED:
        session.outstanding[request.id] = record
        ledger.startable[request.id] = request


def _told(text: str, about: TaskId | int) -> UserMessage:
    # Named by the fact that says it, so that whoever folds it again finds the same name.
    return UserMessage(text, id=MessageId(f"m_{about}"))


def _task_started(ledger: "Ledger", event: TaskStarted, at: float) -> None:
    record = _live_task(ledger, event)
    _require(record.mode is not Mode.ROOT, event, "a session takes turns instead")
    _require(not record.acting, event, "somebody works on it already")
    tree = ledger.sessions[record.session].tree
    first_start = tree[event.task]["started"]
    tree.mark(
        event.task,
        status=Status.RUNNING,
        started=at if first_start is None else first_start,
    )
    record.acting = True
    record.interrupted = False
    ledger.startable.pop(event.task, None)


def _model_answered(ledger: "Ledger", event: ModelAnswered) -> None:
    record = _acting_task(ledger, event)
    record.transcript.append(event.message)
    ledger.sessions[record.session].tree.spend(event.task, event.message.usage)


def _task_settled(ledger: "Ledger", event: TaskSettled, entry: Entry) -> None:
    record = _live_task(ledger, event)
    if record.parent is None or record.request is None:
        raise ImpossibleEventError(event, "a session ends its turns, and goes on")
    _require(not record.children.unsettled, event, "tasks below it have not ended")
    session = ledger.sessions[record.session]
    outcome = event.outcome
    record.outcome = outcome
    record.acting = False
    # The journal keeps what was said; a task that has ended needs it no more.
    record.transcript.clear()
    record.children = NO_CHILDREN
    del record.parent.children.unsettled[event.task]
    ledger.startable.pop(event.task, None)
    session.tree.mark(
        event.task,
        status=outcome.ending,
        ended=entry.at,
        error=outcome.error,
    )
    if record.mode is Mode.DETACHED:
        del session.outstanding[event.task]
        node = session.tree[event.task]
        completion = news.completion(
            record.request,
            outcome,
            path=record.path,
            asked_at=node["requested"],
            settled_at=entry.at,
            total=node["total"],
        )
        session.mail[entry.seq] = _told(completion, entry.seq)
        _review(ledger, session)


def _session_opened(ledger: "Ledger", event: SessionOpened, at: float) -> None:
    free = root_of(event.session) not in ledger.tasks
    _require(free, event, "there is such a session or task already")
    root = TaskRecord(
        root_of(event.session),
        session=event.session,
        agent=event.agent,
        path=f"/{event.agent}",
        mode=Mode.ROOT,
    )
    session = SessionRecord(event.session, root)
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


def _door_opened(ledger: "Ledger", event: DoorOpened) -> None:
    session = _session(ledger, event)
    _require(session.door is None, event, "a door is open already")
    session.door = event.capability
    # Tasks of an earlier process start again now that their session is back: with it come
    # the agents that can do them.
    for task in session.outstanding.values():
        if task.interrupted and task.request is not None:
            ledger.startable[task.id] = task.request
    _review(ledger, session)


def _door_closed(ledger: "Ledger", event: DoorClosed) -> None:
    session = _session(ledger, event)
    _require(session.door is not None, event, "no door is open")
    session.door = None
    _review(ledger, session)


def _message_received(ledger: "Ledger", event: MessageReceived, seq: int) -> None:
    session = _session(ledger, event)
    message = UserMessage(event.text, event.parts, id=event.id or MessageId(f"m_{seq}"))
    session.mail[seq] = message
    if not session.tree[session.root.id]["goal"]:
        session.tree.mark(session.root.id, goal=event.text)
    _review(ledger, session)


def _turn_started(ledger: "Ledger", event: TurnStarted, at: float) -> None:
    session = _session(ledger, event)
    is_next = session.turn is None and event.turn == session.turns + 1
    _require(is_next, event, f"turn {session.turns} is the last one so far")
    is_there = len(set(event.mail)) == len(event.mail) and session.mail.keys() >= {
        *event.mail
    }
    _require(is_there, event, f"the mail is {list(session.mail)}")
    for seq in event.mail:
        session.root.transcript.append(session.mail.pop(seq))
    session.turns = event.turn
    session.turn = Turn(event.turn, event.capability, event.mail)
    session.root.acting = True
    node = session.tree[session.root.id]
    node.update(ended=None, error="")
    if node["started"] is None:
        node["started"] = at
    _review(ledger, session)


def _turn_resumed(ledger: "Ledger", event: TurnResumed) -> None:
    session = _session(ledger, event)
    turn = session.turn
    if turn is None or not turn.interrupted or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn was not interrupted")
    session.turn = attrs.evolve(turn, capability=event.capability, interrupted=False)
    session.root.acting = True
    _review(ledger, session)


def _turn_ended(ledger: "Ledger", event: TurnEnded, at: float) -> None:
    session = _session(ledger, event)
    turn, root = session.turn, session.root
    if turn is None or turn.number != event.turn:
        raise ImpossibleEventError(event, "that turn is not under way")
    joined = root.children.unsettled.keys() - session.outstanding.keys()
    _require(not joined, event, "tasks joined to it have not ended")
    session.turn = None
    root.acting = root.cancel_requested = False
    session.last_outcome = event.outcome
    # Whoever asked within a turn has the answer from there.
    if turn.capability is not DeliveryCapability.NONE:
        session.undelivered[event.turn] = Reply(
            session.id, event.turn, turn.read, event.outcome
        )
    session.tree.mark(root.id, ended=at, error=event.outcome.error)
    _review(ledger, session)


def _reply_delivered(ledger: "Ledger", event: ReplyDelivered) -> None:
    session = _session(ledger, event)
    _require(
        event.turn in session.undelivered, event, "it has no such reply to deliver"
    )
    del session.undelivered[event.turn]


def _cancel_requested(ledger: "Ledger", event: CancelRequested) -> None:
    record = _live_task(ledger, event)
    is_under_way = record.mode is not Mode.ROOT or record.acting
    _require(is_under_way, event, "a session between two turns has nothing to end")
    record.cancel_requested = True


def _journal_opened(
    ledger: "Ledger",
) -> None:
    ledger.startable.clear()
    for session in ledger.sessions.values():
        session.door = None
        if session.turn is not None:
            session.turn = attrs.evolve(session.turn, interrupted=True)
            session.root.acting = False
        for task in _running_below(ledger, session.root):
            task.interrupted, task.acting = True, False
            session.tree.mark(task.id, status=Status.INTERRUPTED)
        _review(ledger, session)


def _running_below(ledger: "Ledger", task: TaskRecord) -> Iterator[TaskRecord]:
    for child in task.children.unsettled.values():
        yield child
        yield from _running_below(ledger, child)


def _review(ledger: "Ledger", session: SessionRecord) -> None:
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
        return Status.RUNNING
    if session.outstanding:
        return Status.WAITING
    if session.last_outcome is not None:
        return session.last_outcome.ending
    return Status.QUEUED
