"""The change of a task's state: checked by the table, remembered, and shown in the tree.

Nothing else writes `TaskRecord.state` or the status of a node, so the two cannot differ.
"""

from typing import TYPE_CHECKING, Final, assert_never

from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import (
    ApprovalAsked,
    CallPlaced,
    Event,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ProcessStarted,
    QuietChanged,
    SteeringSeen,
    TaskEvent,
    ToolAnswered,
)
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.ledger.task_state import (
    IDLE,
    READY,
    TRANSITIONS,
    Ended,
    Idle,
    Interrupted,
    Queued,
    Ready,
    Running,
    TaskState,
    state_name,
)
from orchestrator.delegation.task import CANCELLED, WITH_CALLER, Ending, Outcome, Status

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


# The class of an Enum answers slowly in Python 3.11, and every change of a state asks for these.
_QUIET: Final = Status.QUIET
_WAITING: Final = Status.WAITING
_RUNNING: Final = Status.RUNNING
_QUEUED: Final = Status.QUEUED
_INTERRUPTED: Final = Status.INTERRUPTED


def require(condition: bool, event: Event, otherwise: str, task: TaskRecord | None = None) -> None:
    """Refuse a fact that contradicts those before it."""
    if not condition:
        raise refusal(event, otherwise, task)


def refusal(event: Event, otherwise: str, task: TaskRecord | None) -> ImpossibleEventError:
    """Return the error about a fact that contradicts those before it."""
    return ImpossibleEventError(event, otherwise, _history(task))


def require_transition(task: TaskRecord, to: type[TaskState], event: Event) -> None:
    """Refuse a fact that would lead to a state outside the table."""
    if to not in TRANSITIONS[type(task.state)]:
        now, then = state_name(task.state), to.__name__.lower()
        problem = f"a task that is {now} does not become {then}"
        raise ImpossibleEventError(event, problem, _history(task))


def _history(task: TaskRecord | None) -> tuple[str, ...]:
    return () if task is None else tuple(map(state_name, task.history))


def unsettled_task(ledger: "Ledger", event: TaskEvent) -> TaskRecord:
    """Return the task of a fact, which must not have ended."""
    task = ledger.tasks.get(event.task)
    if task is None:
        raise ImpossibleEventError(event, "there is no such task")
    if task.outcome is not None:
        problem = "the task has ended already"
        raise ImpossibleEventError(event, problem, _history(task))
    return task


def running_task(
    ledger: "Ledger",
    event: ModelCalled
    | ModelAnswered
    | ModelFailed
    | ToolAnswered
    | SteeringSeen
    | QuietChanged
    | ApprovalAsked
    | CallPlaced
    | ProcessStarted,
) -> TaskRecord:
    """Return the task of a fact, which must be running."""
    task = ledger.tasks.get(event.task)
    if task is None or not task.is_running:
        task = unsettled_task(ledger, event)
        raise ImpossibleEventError(event, "the task does not run", _history(task))
    return task


def change_state(session: SessionRecord, task: TaskRecord, state: TaskState) -> None:
    """Let a task enter another kind of state."""
    assert type(state) in TRANSITIONS[type(task.state)], "facts are checked before"
    # For a session it is the history of its turn: a change costs the same in its last turn.
    task.history = (state,) if state is IDLE else (*task.history, state)
    task.set_state(state)
    # Most are of new tasks, which are shown as queued until they run.
    if state is not READY:
        session.tree.set_status(task.id, status_of(session, task))


def end_task(session: SessionRecord, task: TaskRecord, outcome: Outcome, at: float) -> None:
    """Let a task end, for good."""
    state = Ended(outcome)
    assert Ended in TRANSITIONS[type(task.state)], "facts are checked before"
    task.history = (*task.history, state)
    task.state, task.outcome = state, outcome
    task.is_running = task.is_interrupted = task.has_slot = False
    is_abandoned = outcome.ending is CANCELLED and outcome.cause in WITH_CALLER
    session.tree.end(task.id, at, outcome.error, outcome.ending, abandoned=is_abandoned)
    if outcome.kept:
        task.node.kept = True


def update_state(session: SessionRecord, task: TaskRecord, state: TaskState) -> None:
    """Change the data of a task's state, or what else its status depends on."""
    task.set_state(state)
    session.tree.set_status(task.id, status_of(session, task))


def status_of(  # noqa: PLR0911 (a case a state)
    session: SessionRecord, task: TaskRecord
) -> Status | Ending:
    """Return the status that the tree shows for a task."""
    match state := task.state:
        case Running():
            if state.quiet:
                return _QUIET
            is_waiting = task.questions and task.awaits_approval
            return _WAITING if is_waiting else _RUNNING
        case Idle():
            if session.awaits_notices:
                return _WAITING
            if session.last_outcome is not None:
                return session.last_outcome.ending
            return _QUEUED
        case Ended():
            return state.outcome.ending
        case Queued():
            return _QUEUED
        case Ready():
            return _INTERRUPTED if state.resumes else _QUEUED
        case Interrupted():
            return _INTERRUPTED
        case _:
            assert_never(state)


def refresh_session(ledger: "Ledger", session: SessionRecord) -> None:
    """Bring the index of sessions to wake, and the root's status, up to date."""
    refresh_wakeable(ledger, session)
    session.tree.set_status(session.root.id, status_of(session, session.root))


def refresh_wakeable(ledger: "Ledger", session: SessionRecord) -> None:
    """Bring the index of sessions to wake up to date."""
    if session.door is not None and session.is_due:
        ledger.wakeable[session.id] = session
    else:
        ledger.wakeable.pop(session.id, None)
