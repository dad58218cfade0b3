"""How the facts of a task's life change what is true."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from agents import AssistantMessage, CallId, MessageId, UserMessage
from delegation import notices
from delegation.errors import ImpossibleEventError, require
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    Entry,
    ModelAnswered,
    ModelFailed,
    ProcessStarted,
    QuietChanged,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
)
from delegation.ledger.fold_accounts import book, open_accounts
from delegation.ledger.records import (
    NO_ASKS,
    NO_CHILDREN,
    Children,
    Envelope,
    Mail,
    SessionRecord,
    Steering,
    TaskRecord,
)
from delegation.notices import Completion
from delegation.task import Mode, Status, TaskId, TaskRequest

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger

OfATask: TypeAlias = (
    TaskStarted
    | ModelAnswered
    | ModelFailed
    | ToolAnswered
    | Steered
    | SteeringSeen
    | QuietChanged
    | ApprovalAsked
    | ApprovalAnswered
    | ProcessStarted
    | CancelRequested
    | TaskSettled
)


def live_task(ledger: "Ledger", event: OfATask) -> TaskRecord:
    record = ledger.tasks.get(event.task)
    if record is None:
        raise ImpossibleEventError(event, "there is no such task")
    if record.outcome is not None:
        raise ImpossibleEventError(event, "the task has ended already")
    return record


def acting_task(
    ledger: "Ledger",
    event: ModelAnswered
    | ModelFailed
    | ToolAnswered
    | SteeringSeen
    | QuietChanged
    | ApprovalAsked
    | ProcessStarted,
) -> TaskRecord:
    record = live_task(ledger, event)
    require(record.acting, event, "nobody works on it now")
    return record


def requested(ledger: "Ledger", event: TaskRequested, at: float) -> None:
    request = event.request
    parent = ledger.tasks.get(request.parent)
    if parent is None or not parent.acting:
        raise ImpossibleEventError(event, "nobody works on the task that asks")
    if problem := _problem_with(ledger, event, parent):
        raise ImpossibleEventError(event, problem)
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
        needs=request.needs,
    )
    if event.mode is Mode.DETACHED:
        session.outstanding[request.id] = record
    if parent.accounts or request.grants or request.budget is not None:
        open_accounts(ledger, record, parent, request, at)
    if request.needs:
        _look_at_needs(ledger, record, request)
    if not record.needs:
        record.transcript.append(_told(_brief(ledger, request), request.id))
        enter_room(ledger, session, record)


def _problem_with(ledger: "Ledger", event: TaskRequested, parent: TaskRecord) -> str:
    request = event.request
    if request.id in ledger.tasks:
        return "there is such a task already"
    if request.call in parent.children.asked:
        return "it was asked for already"
    if request.origin.session != parent.session:
        return "it is another's child"
    if event.mode is Mode.ROOT:
        return "a session is opened, not asked for"
    for need in request.needs:
        if need not in ledger.tasks or ledger.tasks[need].parent is not parent:
            return f"{need} is none of its siblings"
    return ""


def _look_at_needs(ledger: "Ledger", record: TaskRecord, request: TaskRequest) -> None:
    pending: set[TaskId] = set()
    for id_ in dict.fromkeys(request.needs):
        need = ledger.tasks[id_]
        if need.outcome is None:
            need.needed_by = [*need.needed_by, record]
        elif need.outcome.succeeded:
            continue
        else:
            ledger.hopeless[record.id] = need
        pending.add(id_)
    record.needs = pending


def _brief(ledger: "Ledger", request: TaskRequest) -> str:
    if not request.needs:
        return notices.brief(request)
    needs: list[tuple[str, str]] = []
    for id_ in dict.fromkeys(request.needs):
        need = ledger.tasks[id_]
        assert need.outcome is not None, "what it needs has succeeded"
        label = need.request.label if need.request is not None else ""
        needs.append((label or need.path, need.outcome.output))
    return notices.brief(request, needs)


def _told(text: str, about: TaskId | int) -> UserMessage:
    # Named by the fact that says it, so that whoever folds it again finds the same name.
    return UserMessage(text, id=MessageId(f"m_{about}"))


def read(mail: Mail, seq: int, share: int) -> UserMessage:
    """Return mail as the session reads it."""
    return mail if isinstance(mail, UserMessage) else _told(mail.text(share), seq)


def enter_room(ledger: "Ledger", session: SessionRecord, task: TaskRecord) -> None:
    """Let a task that is due wait for room, or have it at once."""
    _let_in(ledger, session.room.enter(task))
    if task.interrupted and not task.has_room:
        session.tree.mark(task.id, status=Status.QUEUED)


def _let_in(ledger: "Ledger", tasks: Iterable[TaskRecord]) -> None:
    for task in tasks:
        if task.mode is Mode.DETACHED:
            ledger.startable[task.id] = task
        else:
            ledger.joinable[task.id] = task


def enter_interrupted(ledger: "Ledger", parent: TaskRecord) -> None:
    """Let the joined children of a task that goes on after a crash wait for room again."""
    for child in parent.children.unsettled.values():
        if child.mode is Mode.JOINED and child.is_due:
            enter_room(ledger, ledger.sessions[parent.session], child)


def started(ledger: "Ledger", event: TaskStarted, at: float) -> None:
    record = live_task(ledger, event)
    require(record.mode is not Mode.ROOT, event, "a session takes turns instead")
    require(not record.acting, event, "somebody works on it already")
    require(not record.needs, event, "a task that it needs has not succeeded")
    is_clear = not (event.afresh and record.children.unsettled)
    require(is_clear, event, "tasks of its first beginning have not ended")
    session = ledger.sessions[record.session]
    if event.afresh:
        drop_asks(ledger, record)
        record.forget(1)
    if not record.has_room:
        # Written under other rules than these.
        session.room.take(record)
    session.tree.start(event.task, at, working_status(record))
    record.acting = True
    ledger.startable.pop(event.task, None)
    ledger.joinable.pop(event.task, None)
    if record.interrupted:
        record.interrupted = False
        enter_interrupted(ledger, record)


def model_answered(ledger: "Ledger", event: ModelAnswered) -> None:
    record = acting_task(ledger, event)
    record.transcript.append(event.message)
    if not event.copied:
        book(ledger, record, event.message.usage)


def model_failed(ledger: "Ledger", event: ModelFailed) -> None:
    book(ledger, acting_task(ledger, event), event.usage)


def tool_answered(ledger: "Ledger", event: ToolAnswered) -> None:
    record = acting_task(ledger, event)
    if event.mail:
        session = ledger.sessions[record.session]
        news = {seq for seq, _ in session.completions()}
        news |= {seq for seq, _ in session.ended_processes()}
        is_there = record is session.root and news >= {*event.mail}
        is_there = is_there and len({*event.mail}) == len(event.mail)
        require(is_there, event, f"the news it can be told is {sorted(news)}")
        for seq in event.mail:
            session.told[seq] = session.mail.pop(seq)
            del session.envelopes[seq]
    if event.message.call in record.asks:
        _drop_ask(ledger, record, event.message.call)
    record.transcript.append(event.message)


def _drop_ask(ledger: "Ledger", record: TaskRecord, call: CallId) -> None:
    """Ask nobody any more about a call that has been answered."""
    asks = dict(record.asks)
    ledger.asks.pop(asks.pop(call).id, None)
    record.asks = asks
    tree = ledger.sessions[record.session].tree
    tree.mark(record.id, status=working_status(record))


def steered(ledger: "Ledger", event: Steered) -> None:
    record = live_task(ledger, event)
    session = ledger.sessions[record.session]
    is_reachable = record.mode is not Mode.ROOT or session.turn is not None
    require(is_reachable, event, "a session between two turns is told by mail")
    require(event.id not in record.steering, event, "it was said already")
    record.steering = {**record.steering, event.id: Steering(event.text, event.by)}


def steering_seen(ledger: "Ledger", event: SteeringSeen) -> None:
    record = acting_task(ledger, event)
    unseen = {id_ for id_, said in record.steering.items() if said.is_unseen}
    is_unseen = unseen >= {*event.ids} and len({*event.ids}) == len(event.ids)
    require(is_unseen, event, f"what it has not seen is {sorted(unseen)}")
    at = 1 + sum(isinstance(said, AssistantMessage) for said in record.transcript)
    steering = dict(record.steering)
    for id_ in event.ids:
        said = steering[id_]
        steering[id_] = attrs.evolve(said, seen_at=at)
        text = notices.aside(said.text, said.by)
        record.transcript.append(UserMessage(text, aside=True, id=id_))
    record.steering = steering


def quiet_changed(ledger: "Ledger", event: QuietChanged) -> None:
    record = acting_task(ledger, event)
    require(record.mode is not Mode.ROOT, event, "a session is not watched")
    status = Status.QUIET if event.quiet else working_status(record)
    ledger.sessions[record.session].tree.mark(record.id, status=status)


def working_status(record: TaskRecord) -> Status:
    """Return what a task is doing that somebody works on."""
    return Status.WAITING if record.is_asking else Status.RUNNING


def cancel_requested(ledger: "Ledger", event: CancelRequested) -> None:
    record = live_task(ledger, event)
    is_under_way = record.mode is not Mode.ROOT or record.acting
    require(is_under_way, event, "a session between two turns has nothing to end")
    record.cancel_requested = True


def settled(ledger: "Ledger", event: TaskSettled, entry: Entry) -> SessionRecord | None:
    """End a task, and return its session if that has something new by it."""
    record = live_task(ledger, event)
    if record.parent is None or record.request is None:
        raise ImpossibleEventError(event, "a session ends its turns, and goes on")
    require(not record.children.unsettled, event, "tasks below it have not ended")
    session = ledger.sessions[record.session]
    outcome = event.outcome
    record.outcome = outcome
    record.acting = False
    # The journal keeps what was said; a task that has ended needs it no more.
    record.transcript.clear()
    record.children = NO_CHILDREN
    del record.parent.children.unsettled[event.task]
    ledger.startable.pop(event.task, None)
    ledger.joinable.pop(event.task, None)
    ledger.hopeless.pop(event.task, None)
    session.tree.mark(
        event.task,
        status=outcome.ending,
        ended=entry.at,
        error=outcome.error,
    )
    if record.asks:
        drop_asks(ledger, record)
    _let_in(ledger, session.room.leave(record))
    if record.needed_by:
        for waiting in record.needed_by:
            _tell_dependent(ledger, session, waiting, record)
        record.needed_by = ()
    if record.mode is Mode.DETACHED:
        del session.outstanding[event.task]
        if not session.closed:
            _send_news(session, record.request, record, entry)
    elif not session.processes:
        return None
    drop_processes(session, record)
    return session


def drop_asks(ledger: "Ledger", record: TaskRecord) -> None:
    """Ask nobody any more about the calls of a task that has ended."""
    for ask in record.asks.values():
        ledger.asks.pop(ask.id, None)
    record.asks = NO_ASKS


def drop_processes(session: SessionRecord, record: TaskRecord) -> None:
    """Take the commands of a task that has ended for ended, too.

    Whoever runs it says so before, unless it had no time to.
    """
    if session.processes:
        session.processes = {
            id_: it for id_, it in session.processes.items() if it.task != record.id
        }


def _send_news(
    session: SessionRecord, request: TaskRequest, record: TaskRecord, entry: Entry
) -> None:
    assert record.outcome is not None, "it has just ended"
    node = session.tree[record.id]
    # Whoever is told is where the message came from that the task was asked for.
    session.envelopes[entry.seq] = Envelope(record.context, ())
    session.mail[entry.seq] = Completion(
        request=request,
        outcome=record.outcome,
        path=record.path,
        asked_at=node["requested"],
        settled_at=entry.at,
        total=node["total"],
    )


def _tell_dependent(
    ledger: "Ledger", session: SessionRecord, waiting: TaskRecord, need: TaskRecord
) -> None:
    """Let a task that needs one that has ended go on, or see that it never will."""
    if waiting.outcome is not None:
        return
    assert need.outcome is not None, "it has just ended"
    assert waiting.request is not None, "only what was asked for can need something"
    if not need.outcome.succeeded:
        ledger.hopeless[waiting.id] = need
        return
    waiting.needs = set(waiting.needs) - {need.id}
    if waiting.needs:
        return
    waiting.transcript.append(_told(_brief(ledger, waiting.request), waiting.id))
    enter_room(ledger, session, waiting)
