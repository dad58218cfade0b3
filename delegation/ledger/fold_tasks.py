"""The fold of a task's facts: from its request to its outcome."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, Message, MessageId, Transcript, UserMessage
from orchestrator.delegation import notices
from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import (
    CancelRequested,
    Entry,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    QuietChanged,
    StartsPaused,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
)
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.ledger.fold_accounts import book, charge_open_call, open_accounts
from orchestrator.delegation.ledger.fold_approvals import drop_question, drop_questions
from orchestrator.delegation.ledger.fold_places import begin_anew, drop_placed
from orchestrator.delegation.ledger.fold_processes import drop_processes
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.session_record import Envelope, Mail, SessionRecord
from orchestrator.delegation.ledger.task_record import (
    NO_CHILDREN,
    NO_INCIDENTS,
    NO_MESSAGES,
    NO_STEERING,
    NOTHING_PLACED,
    Children,
    Steering,
    TaskRecord,
)
from orchestrator.delegation.ledger.task_state import (
    QUEUED,
    QUIET,
    READY,
    READY_TO_RESUME,
    RUNNING,
    Idle,
    Interrupted,
    Queued,
    Running,
)
from orchestrator.delegation.ledger.transitions import (
    change_state,
    end_task,
    refresh_session,
    refusal,
    require,
    require_transition,
    running_task,
    unsettled_task,
    update_state,
)
from orchestrator.delegation.notices import TaskNotice
from orchestrator.delegation.task import (
    CANCELLED,
    DETACHED,
    JOINED,
    ROOT,
    Status,
    TaskId,
    TaskRequest,
)
from orchestrator.delegation.tree.node import TaskNode

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger

# The class of an Enum answers slowly in Python 3.11.
_QUEUED: Final = Status.QUEUED
_RUNNING: Final = Status.RUNNING
STARTED: Final = (QUEUED, READY, RUNNING)
"""The states of a task that started with its request."""


def task_requested(ledger: "Ledger", event: TaskRequested, entry: Entry) -> None:
    request = event.request
    parent = ledger.tasks.get(request.parent)
    if parent is None or not parent.is_running:
        raise ImpossibleEventError(event, "its parent does not run")
    if problem := _problem_with(ledger, event, parent):
        raise ImpossibleEventError(event, problem)
    id_, agent, at = request.id, request.agent, entry.at
    children = parent.children
    if children is NO_CHILDREN:
        children = parent.children = Children()
    counts = children.counts_by_agent
    number = counts[agent] = counts[agent] + 1 if agent in counts else 1
    above, started = parent.node, event.started
    node = TaskNode(
        parent.id,
        agent,
        request.goal,
        request.label,
        f"{above.path}/{agent}[{number}]",
        event.mode,
        _RUNNING if started else _QUEUED,
        event.reason,
        at,
        at if started else None,
        chosen="" if request.chosen is msgspec.UNSET else str(request.chosen),
        level=above.level + 1,
    )
    task = TaskRecord(id_, parent.session, node, parent, request)
    children.by_call[request.call] = id_
    children.unsettled[id_] = ledger.tasks[id_] = task
    session = ledger.sessions[parent.session]
    session.tree.add_node(id_, node)
    if not isinstance(request.to_come, msgspec.UnsetType):
        session.tree.set_to_come(parent.id, request.to_come)
    if event.mode is DETACHED:
        session.unsettled_detached[id_] = task
    if parent.accounts or request.grants or request.budget is not None:
        open_accounts(ledger, task, parent, request, at)
    if request.needs:
        session.tree.set_needs(id_, request.needs)
        _set_dependencies(ledger, session, task, request)
        if task.pending_dependencies:
            return
    _give_messages(ledger, task, request)
    if not started:
        queue_for_slot(ledger, session, task)
        return
    session.slots.take(task)
    task.history = STARTED
    task.state = RUNNING
    task.is_running = task.has_slot = True


def _problem_with(  # noqa: PLR0911 (a problem each)
    ledger: "Ledger", event: TaskRequested, parent: TaskRecord
) -> str:
    request = event.request
    if request.id in ledger.tasks:
        return "there is such a task already"
    if request.call in parent.children.by_call:
        return "its call has requested it already"
    if request.origin.session != parent.session:
        return "its parent is in another session"
    if event.mode is ROOT:
        return "a root is opened with its session"
    for dependency in request.needs:
        if dependency not in ledger.tasks or ledger.tasks[dependency].parent is not parent:
            return f"{dependency} is none of its siblings"
    if request.fork is not msgspec.UNSET and request.fork > len(parent.transcript):
        return "it continues messages that its parent does not have"
    return "a task with dependencies starts later" if event.started and request.needs else ""


def _set_dependencies(
    ledger: "Ledger", session: SessionRecord, task: TaskRecord, request: TaskRequest
) -> None:
    pending: set[TaskId] = set()
    for id_ in dict.fromkeys(request.needs):
        dependency = ledger.tasks[id_]
        if dependency.outcome is None:
            dependency.dependents = [*dependency.dependents, task]
        elif dependency.outcome.succeeded:
            continue
        else:
            ledger.unstartable[task.id] = dependency
        pending.add(id_)
    update_state(session, task, Queued(frozenset(pending)))


def _give_messages(ledger: "Ledger", task: TaskRecord, request: TaskRequest) -> None:
    """Give a task that has all that it depends on its first messages."""
    is_new = request.handed is msgspec.UNSET and request.fork is msgspec.UNSET
    if is_new and not (request.context or request.needs):
        task.transcript = Transcript([_user_message(request.goal, request.id)])
        return
    # The conversation that a task is handed or continues, and its first message.
    messages: list[Message] = []
    text, shared = notices.first_message(
        request, _results_of_dependencies(ledger, request) if request.needs else ()
    )
    if request.fork is not msgspec.UNSET:
        # Imported late: most tasks are no forks.
        from orchestrator.delegation.ledger.forks import forked_messages, goal_of_fork

        messages += forked_messages(task, request, request.fork)
        text = goal_of_fork(request, text)
    if request.handed:
        messages += [earlier.message(number) for number, earlier in enumerate(request.handed)]
    messages.append(_user_message(text, request.id, shared))
    task.transcript = Transcript(messages)


def _results_of_dependencies(ledger: "Ledger", request: TaskRequest) -> list[tuple[str, str]]:
    """Return the names and outputs of the tasks that a task depends on."""
    dependencies: list[tuple[str, str]] = []
    for id_ in dict.fromkeys(request.needs):
        dependency = ledger.tasks[id_]
        assert dependency.outcome is not None, "a dependency has succeeded"
        name = dependency.label or dependency.path
        dependencies.append((name, dependency.outcome.output))
    return dependencies


def _user_message(text: str, about: TaskId | int, shared: int = 0) -> UserMessage:
    # Named by its fact, so that another fold gives it the same name.
    return UserMessage(text, id=MessageId(f"m_{about}"), shared=shared)


def as_message(mail: Mail, seq: int, share: int) -> UserMessage:
    """Return mail as the session reads it."""
    return mail if isinstance(mail, UserMessage) else _user_message(mail.text(share), seq)


def queue_for_slot(ledger: "Ledger", session: SessionRecord, task: TaskRecord) -> None:
    """Queue a task that is due; it gets its slot at once if one is free."""
    _mark_ready(ledger, session, session.slots.enter(task))
    if task.is_interrupted:
        change_state(session, task, QUEUED)


def _mark_ready(ledger: "Ledger", session: SessionRecord, tasks: Iterable[TaskRecord]) -> None:
    """Mark tasks that got a slot as ready, and index them for the loop or the parent."""
    for task in tasks:
        state = READY_TO_RESUME if task.is_interrupted else READY
        change_state(session, task, state)
        if task.mode is DETACHED:
            ledger.startable[task.id] = task
        else:
            ledger.joinable[task.id] = task


def _drop_due(ledger: "Ledger", task: TaskRecord) -> None:
    """Remove a task that starts or ends from the indexes of due work."""
    for due in (ledger.joinable, ledger.startable, ledger.unstartable):
        if task.id in due:
            del due[task.id]


def requeue_joined_children(ledger: "Ledger", parent: TaskRecord) -> None:
    """Queue the joined children of a task that goes on after a crash."""
    for child in parent.children.unsettled.values():
        is_due = child.is_interrupted and not child.pending_dependencies
        if child.mode is JOINED and is_due:
            queue_for_slot(ledger, ledger.sessions[parent.session], child)


def task_started(ledger: "Ledger", event: TaskStarted, entry: Entry) -> None:
    task = unsettled_task(ledger, event)
    if task.is_root:
        raise refusal(event, "a root takes turns instead", task)
    if event.afresh and task.is_running:
        begin_anew(ledger, task, event, start=task.first_step)
        update_state(ledger.sessions[task.session], task, RUNNING)
        return
    require_transition(task, Running, event)
    has_slot = task.has_slot
    if not has_slot and task.pending_dependencies:
        problem = "a task that it depends on has not succeeded"
        raise ImpossibleEventError(event, problem)
    session = ledger.sessions[task.session]
    if event.afresh:
        is_clear = not task.children.unsettled
        require(is_clear, event, "tasks of its first beginning have not ended", task)
        drop_questions(ledger, task)
        task.rewind(task.first_step)
    if len(task.history) > 2:
        # It was ready or has run before.
        task.drop_incomplete(task.first_step)
    if not has_slot:
        # The fact was written under other rules.
        session.slots.take(task)
    session.tree.start(event.task, entry.at)
    change_state(session, task, RUNNING)
    _drop_due(ledger, task)
    if task.children.unsettled:
        requeue_joined_children(ledger, task)


def model_called(ledger: "Ledger", event: ModelCalled, _: Entry) -> None:
    running_task(ledger, event).reserved = event.reserved


def model_answered(ledger: "Ledger", event: ModelAnswered, entry: Entry) -> None:
    task = running_task(ledger, event)
    task.reserved = None
    if event.message.calls and task.is_root:
        ledger.sessions[task.session].tree.calls_began = entry.at
    if event.left_out:
        _note(task, Incident(len(task.transcript), left_out=event.left_out))
    task.transcript = task.transcript.followed_by(event.message)
    if event.instructions is not msgspec.UNSET:
        task.made_instructions = event.instructions
    if not event.copied:
        book(ledger, task, event.message.usage, event.charged, event.waited)


def model_failed(ledger: "Ledger", event: ModelFailed, entry: Entry) -> None:
    task = running_task(ledger, event)
    task.reserved = None if event.reserved is msgspec.UNSET else event.reserved
    if event.reason is ModelFailure.ATTEMPT:
        _note(task, Incident(len(task.transcript), event.error, event.then))
    if event.reason is ModelFailure.CONVERSATION:
        _note(task, Incident(len(task.transcript), summary=event.text))
    elif event.text:
        said = AssistantMessage(
            event.text, usage=event.usage, incomplete=True, id=MessageId(f"m_{entry.seq}")
        )
        task.transcript = task.transcript.followed_by(said)
    book(ledger, task, event.usage, event.charged, event.waited)


def _note(task: TaskRecord, incident: Incident) -> None:
    if task.incidents is NO_INCIDENTS:
        task.incidents = []
    task.incidents.append(incident)


def tool_answered(ledger: "Ledger", event: ToolAnswered, _: Entry) -> None:
    task = running_task(ledger, event)
    if event.mail:
        session = ledger.sessions[task.session]
        readable = {seq for seq, _ in session.task_notices()}
        readable |= {seq for seq, _ in session.process_notices()}
        is_there = task.is_root and readable >= {*event.mail}
        is_there = is_there and len({*event.mail}) == len(event.mail)
        require(is_there, event, f"its notices are {sorted(readable)}", task)
        for seq in event.mail:
            session.consumed[seq] = notice = session.mail.pop(seq)
            del session.envelopes[seq]
            if isinstance(notice, TaskNotice) and notice.outcome.ending is not CANCELLED:
                session.tree.add_awaited(notice.request.id, notice.settled_at)
    if event.message.call in task.questions:
        drop_question(ledger, task, event.message.call)
    if event.message.call in task.placed:
        drop_placed(task, event.message.call)
    task.transcript = task.transcript.followed_by(event.message)


def steered(ledger: "Ledger", event: Steered, _: Entry) -> None:
    task = unsettled_task(ledger, event)
    is_reachable = not isinstance(task.state, Idle)
    require(is_reachable, event, "an idle session gets mail instead", task)
    require(event.id not in task.steering, event, "it was sent already", task)
    if task.steering is NO_STEERING:
        task.steering = {}
    task.steering[event.id] = Steering(event.text, event.by)
    task.unseen_steering = (*task.unseen_steering, event.id)


def steering_seen(ledger: "Ledger", event: SteeringSeen, _: Entry) -> None:
    task = running_task(ledger, event)
    unseen, seen_now = set(task.unseen_steering), set(event.ids)
    is_unseen = unseen >= seen_now and len(seen_now) == len(event.ids)
    require(is_unseen, event, f"what it has not seen is {sorted(unseen)}", task)
    calls = task.transcript.total(_is_answer)
    if task.request is not None:
        # The messages that the task was handed are from another agent.
        calls -= task.transcript[: task.first_step].total(_is_answer)
    for id_ in event.ids:
        message = task.steering[id_]
        task.steering[id_] = replace(message, seen_at=calls + 1)
        text = notices.steering_text(message.text, message.by)
        seen = UserMessage(text, aside=True, id=id_)
        task.transcript = task.transcript.followed_by(seen)
    left = (id_ for id_ in task.unseen_steering if id_ not in seen_now)
    task.unseen_steering = tuple(left)


def _is_answer(message: Message) -> int:
    return isinstance(message, AssistantMessage)


def quiet_changed(ledger: "Ledger", event: QuietChanged, _: Entry) -> None:
    task = running_task(ledger, event)
    require(not task.is_root, event, "a session is not watched", task)
    session = ledger.sessions[task.session]
    update_state(session, task, QUIET if event.quiet else RUNNING)


def starts_paused(ledger: "Ledger", event: StartsPaused, _: Entry) -> None:
    task = unsettled_task(ledger, event)
    session = ledger.sessions[task.session]
    is_paused = task.id in session.slots.paused
    require(is_paused is not event.paused, event, "it is so already", task)
    if event.paused:
        session.slots.pause(task)
    else:
        _mark_ready(ledger, session, session.slots.unpause(task))


def cancel_requested(ledger: "Ledger", event: CancelRequested, _: Entry) -> None:
    task = unsettled_task(ledger, event)
    is_under_way = not task.is_root or task.is_running
    require(is_under_way, event, "its session runs no turn", task)
    task.cancel_requested = True


def task_settled(  # noqa: C901 (a feature that the task does not use costs one `if`)
    ledger: "Ledger", event: TaskSettled, entry: Entry
) -> None:
    task = unsettled_task(ledger, event)
    if task.parent is None:
        raise ImpossibleEventError(event, "a root ends its turns, and goes on")
    if task.children.unsettled:
        raise refusal(event, "tasks below it have not ended", task)
    answer = event.answer
    if answer is not None:
        if answer.task != task.id or not task.is_running:
            raise refusal(event, "its last answer is of a task that does not run", task)
        task.reserved = None
        if not answer.copied:
            book(ledger, task, answer.message.usage, answer.charged, answer.waited)
    session = ledger.sessions[task.session]
    if not task.is_running:
        _drop_due(ledger, task)
    if task.reserved is not None:
        charge_open_call(session, task)
    admitted = session.slots.leave(task)
    end_task(session, task, event.outcome, entry.at)
    # The journal has the transcript; a task that has ended needs it no more.
    task.transcript = NO_MESSAGES
    task.incidents = NO_INCIDENTS
    task.children = NO_CHILDREN
    task.placed = NOTHING_PLACED
    del task.parent.children.unsettled[event.task]
    if task.questions:
        drop_questions(ledger, task)
    if admitted:
        _mark_ready(ledger, session, admitted)
    for dependent in task.dependents:
        _resolve_dependency(ledger, session, dependent, task.id, event)
    task.dependents = ()
    is_detached = task.node.mode is DETACHED
    if is_detached:
        del session.unsettled_detached[event.task]
        _add_task_notice(session, task, entry, event)
    if is_detached or session.processes:
        drop_processes(session, task)
        refresh_session(ledger, session)


def _add_task_notice(
    session: SessionRecord, task: TaskRecord, entry: Entry, event: TaskSettled
) -> None:
    if session.closed:
        return
    assert task.request is not None, "a root is not detached"
    node = session.tree[task.id]
    # The notice goes where the message came from that the task works for.
    session.envelopes[entry.seq] = Envelope(task.context, ())
    session.mail[entry.seq] = TaskNotice(
        request=task.request,
        outcome=event.outcome,
        path=task.path,
        asked_at=node.requested,
        settled_at=entry.at,
        total=node.total,
    )


def _resolve_dependency(
    ledger: "Ledger",
    session: SessionRecord,
    task: TaskRecord,
    dependency: TaskId,
    event: TaskSettled,
) -> None:
    """Queue a task whose last dependency has succeeded, or note that it never starts."""
    state = task.state
    if not isinstance(state, (Queued, Interrupted)):
        return
    if not event.outcome.succeeded:
        ledger.unstartable[task.id] = ledger.tasks[dependency]
        return
    pending = state.dependencies - {dependency}
    update_state(session, task, type(state)(pending))
    if not pending:
        assert task.request is not None, "a root depends on no task"
        _give_messages(ledger, task, task.request)
        queue_for_slot(ledger, session, task)


FOLDS: Final[tuple[FoldRow, ...]] = (
    fold_row(ModelAnswered, model_answered),
    fold_row(ToolAnswered, tool_answered),
    fold_row(TaskRequested, task_requested),
    fold_row(TaskStarted, task_started),
    fold_row(TaskSettled, task_settled),
    fold_row(ModelCalled, model_called),
    fold_row(ModelFailed, model_failed),
    fold_row(CancelRequested, cancel_requested),
    fold_row(Steered, steered),
    fold_row(SteeringSeen, steering_seen),
    fold_row(QuietChanged, quiet_changed),
    fold_row(StartsPaused, starts_paused),
)
