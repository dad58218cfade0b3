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
    NO_CHILDREN,
    NO_QUESTIONS,
    Children,
    Envelope,
    Mail,
    SessionRecord,
    Steering,
    TaskRecord,
)
from delegation.notices import TaskNotice
from delegation.task import Mode, Status, TaskId, TaskRequest

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger

TaskEvent: TypeAlias = (
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


def live_task(ledger: "Ledger", event: TaskEvent) -> TaskRecord:
    record = ledger.tasks.get(event.task)
    if record is None:
        raise ImpossibleEventError(event, "there is no such task")
    if record.outcome is not None:
        raise ImpossibleEventError(event, "the task has ended already")
    return record


def running_task(
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
    require(record.is_running, event, "nobody works on it now")
    return record


def requested(ledger: "Ledger", event: TaskRequested, at: float) -> None:
    request = event.request
    parent = ledger.tasks.get(request.parent)
    if parent is None or not parent.is_running:
        raise ImpossibleEventError(event, "nobody works on the task that asks")
    if problem := _problem_with(ledger, event, parent):
        raise ImpossibleEventError(event, problem)
    if parent.children is NO_CHILDREN:
        parent.children = Children()
    children = parent.children
    number = children.counts_by_agent[request.agent] = (
        children.counts_by_agent.get(request.agent, 0) + 1
    )
    record = TaskRecord(
        request.id,
        session=parent.session,
        agent=request.agent,
        path=f"{parent.path}/{request.agent}[{number}]",
        mode=event.mode,
        parent=parent,
        request=request,
    )
    children.by_call[request.call] = request.id
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
        session.unsettled_detached[request.id] = record
    if parent.accounts or request.grants or request.budget is not None:
        open_accounts(ledger, record, parent, request, at)
    if request.needs:
        _set_dependencies(ledger, record, request)
    if not record.pending_dependencies:
        record.transcript.append(
            _user_message(_first_message(ledger, request), request.id)
        )
        queue_for_slot(ledger, session, record)


def _problem_with(ledger: "Ledger", event: TaskRequested, parent: TaskRecord) -> str:
    request = event.request
    if request.id in ledger.tasks:
        return "there is such a task already"
    if request.call in parent.children.by_call:
        return "it was asked for already"
    if request.origin.session != parent.session:
        return "it is another's child"
    if event.mode is Mode.ROOT:
        return "a session is opened, not asked for"
    for need in request.needs:
        if need not in ledger.tasks or ledger.tasks[need].parent is not parent:
            return f"{need} is none of its siblings"
    return ""


def _set_dependencies(
    ledger: "Ledger", record: TaskRecord, request: TaskRequest
) -> None:
    pending: set[TaskId] = set()
    for id_ in dict.fromkeys(request.needs):
        need = ledger.tasks[id_]
        if need.outcome is None:
            need.dependents = [*need.dependents, record]
        elif need.outcome.succeeded:
            continue
        else:
            ledger.unstartable[record.id] = need
        pending.add(id_)
    record.pending_dependencies = pending


def _first_message(ledger: "Ledger", request: TaskRequest) -> str:
    if not request.needs:
        return notices.first_message(request)
    needs: list[tuple[str, str]] = []
    for id_ in dict.fromkeys(request.needs):
        need = ledger.tasks[id_]
        assert need.outcome is not None, "what it needs has succeeded"
        label = need.request.label if need.request is not None else ""
        needs.append((label or need.path, need.outcome.output))
    return notices.first_message(request, needs)


def _user_message(text: str, about: TaskId | int) -> UserMessage:
    # Named by the fact that says it, so that whoever folds it again finds the same name.
    return UserMessage(text, id=MessageId(f"m_{about}"))


def as_message(mail: Mail, seq: int, share: int) -> UserMessage:
    """Return mail as the session reads it."""
    return (
        mail if isinstance(mail, UserMessage) else _user_message(mail.text(share), seq)
    )


def queue_for_slot(ledger: "Ledger", session: SessionRecord, task: TaskRecord) -> None:
    """Let a task that is due wait for room, or have it at once."""
    _mark_ready(ledger, session.slots.enter(task))
    if task.interrupted and not task.has_slot:
        session.tree.mark(task.id, status=Status.QUEUED)


def _mark_ready(ledger: "Ledger", tasks: Iterable[TaskRecord]) -> None:
    for task in tasks:
        if task.mode is Mode.DETACHED:
            ledger.startable[task.id] = task
        else:
            ledger.joinable[task.id] = task


def requeue_joined_children(ledger: "Ledger", parent: TaskRecord) -> None:
    """Let the joined children of a task that goes on after a crash wait for room again."""
    for child in parent.children.unsettled.values():
        if child.mode is Mode.JOINED and child.is_ready:
            queue_for_slot(ledger, ledger.sessions[parent.session], child)


def started(ledger: "Ledger", event: TaskStarted, at: float) -> None:
    record = live_task(ledger, event)
    require(record.mode is not Mode.ROOT, event, "a session takes turns instead")
    require(not record.is_running, event, "somebody works on it already")
    require(
        not record.pending_dependencies, event, "a task that it needs has not succeeded"
    )
    is_clear = not (event.afresh and record.children.unsettled)
    require(is_clear, event, "tasks of its first beginning have not ended")
    session = ledger.sessions[record.session]
    if event.afresh:
        drop_questions(ledger, record)
        record.rewind(1)
    if not record.has_slot:
        # Written under other rules than these.
        session.slots.take(record)
    session.tree.start(event.task, at, working_status(record))
    record.is_running = True
    ledger.startable.pop(event.task, None)
    ledger.joinable.pop(event.task, None)
    if record.interrupted:
        record.interrupted = False
        requeue_joined_children(ledger, record)


def model_answered(ledger: "Ledger", event: ModelAnswered) -> None:
    record = running_task(ledger, event)
    record.transcript.append(event.message)
    if not event.copied:
        book(ledger, record, event.message.usage)


def model_failed(ledger: "Ledger", event: ModelFailed) -> None:
    book(ledger, running_task(ledger, event), event.usage)


def tool_answered(ledger: "Ledger", event: ToolAnswered) -> None:
    record = running_task(ledger, event)
    if event.mail:
        session = ledger.sessions[record.session]
        news = {seq for seq, _ in session.task_notices()}
        news |= {seq for seq, _ in session.process_notices()}
        is_there = record is session.root and news >= {*event.mail}
        is_there = is_there and len({*event.mail}) == len(event.mail)
        require(is_there, event, f"the news it can be told is {sorted(news)}")
        for seq in event.mail:
            session.told[seq] = session.mail.pop(seq)
            del session.envelopes[seq]
    if event.message.call in record.questions:
        _drop_question(ledger, record, event.message.call)
    record.transcript.append(event.message)


def _drop_question(ledger: "Ledger", record: TaskRecord, call: CallId) -> None:
    """Ask nobody any more about a call that has been answered."""
    asks = dict(record.questions)
    ledger.open_questions.pop(asks.pop(call).id, None)
    record.questions = asks
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
    record = running_task(ledger, event)
    unseen = {id_ for id_, said in record.steering.items() if said.is_unseen}
    is_unseen = unseen >= {*event.ids} and len({*event.ids}) == len(event.ids)
    require(is_unseen, event, f"what it has not seen is {sorted(unseen)}")
    at = 1 + sum(isinstance(said, AssistantMessage) for said in record.transcript)
    steering = dict(record.steering)
    for id_ in event.ids:
        said = steering[id_]
        steering[id_] = attrs.evolve(said, seen_at=at)
        text = notices.steering_text(said.text, said.by)
        record.transcript.append(UserMessage(text, aside=True, id=id_))
    record.steering = steering


def quiet_changed(ledger: "Ledger", event: QuietChanged) -> None:
    record = running_task(ledger, event)
    require(record.mode is not Mode.ROOT, event, "a session is not watched")
    status = Status.QUIET if event.quiet else working_status(record)
    ledger.sessions[record.session].tree.mark(record.id, status=status)


def working_status(record: TaskRecord) -> Status:
    """Return what a task is doing that somebody works on."""
    return Status.WAITING if record.awaits_approval else Status.RUNNING


def cancel_requested(ledger: "Ledger", event: CancelRequested) -> None:
    record = live_task(ledger, event)
    is_under_way = record.mode is not Mode.ROOT or record.is_running
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
    record.is_running = False
    # The journal keeps what was said; a task that has ended needs it no more.
    record.transcript.clear()
    record.children = NO_CHILDREN
    del record.parent.children.unsettled[event.task]
    ledger.startable.pop(event.task, None)
    ledger.joinable.pop(event.task, None)
    ledger.unstartable.pop(event.task, None)
    session.tree.mark(
        event.task,
        status=outcome.ending,
        ended=entry.at,
        error=outcome.error,
    )
    if record.questions:
        drop_questions(ledger, record)
    _mark_ready(ledger, session.slots.leave(record))
    if record.dependents:
        for waiting in record.dependents:
            _resolve_dependency(ledger, session, waiting, record)
        record.dependents = ()
    if record.mode is Mode.DETACHED:
        del session.unsettled_detached[event.task]
        if not session.closed:
            _add_task_notice(session, record.request, record, entry)
    elif not session.processes:
        return None
    drop_processes(session, record)
    return session


def drop_questions(ledger: "Ledger", record: TaskRecord) -> None:
    """Ask nobody any more about the calls of a task that has ended."""
    for ask in record.questions.values():
        ledger.open_questions.pop(ask.id, None)
    record.questions = NO_QUESTIONS


def drop_processes(session: SessionRecord, record: TaskRecord) -> None:
    """Take the commands of a task that has ended for ended, too.

    Whoever runs it says so before, unless it had no time to.
    """
    if session.processes:
        session.processes = {
            id_: it for id_, it in session.processes.items() if it.task != record.id
        }


def _add_task_notice(
    session: SessionRecord, request: TaskRequest, record: TaskRecord, entry: Entry
) -> None:
    assert record.outcome is not None, "it has just ended"
    node = session.tree[record.id]
    # Whoever is told is where the message came from that the task was asked for.
    session.envelopes[entry.seq] = Envelope(record.context, ())
    session.mail[entry.seq] = TaskNotice(
        request=request,
        outcome=record.outcome,
        path=record.path,
        asked_at=node["requested"],
        settled_at=entry.at,
        total=node["total"],
    )


def _resolve_dependency(
    ledger: "Ledger", session: SessionRecord, waiting: TaskRecord, need: TaskRecord
) -> None:
    """Let a task that needs one that has ended go on, or see that it never will."""
    if waiting.outcome is not None:
        return
    assert need.outcome is not None, "it has just ended"
    assert waiting.request is not None, "only what was asked for can need something"
    if not need.outcome.succeeded:
        ledger.unstartable[waiting.id] = need
        return
    waiting.pending_dependencies = set(waiting.pending_dependencies) - {need.id}
    if waiting.pending_dependencies:
        return
    waiting.transcript.append(
        _user_message(_first_message(ledger, waiting.request), waiting.id)
    )
    queue_for_slot(ledger, session, waiting)
