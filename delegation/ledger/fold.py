"""The fold: applies each fact to the ledger.

A fact that contradicts the facts before it is refused, and changes nothing: every handler checks
first and changes then. Work per fact is O(depth), whatever the ledger holds.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
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
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
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
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    WorkspaceOpened,
)
from orchestrator.delegation.ledger import (
    fold_approvals,
    fold_jobs,
    fold_places,
    fold_processes,
    fold_sessions,
    fold_tasks,
)

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


EventT = TypeVar("EventT", bound=Event)
Fold: TypeAlias = Callable[["Ledger", EventT, Entry], None]
"""Applies a fact, the event of an entry, or raises `ImpossibleEventError` and changes nothing."""


def _fold(kind: type[EventT], fold: Fold[EventT]) -> tuple[type[object], Fold[Any]]:
    """Return a row of the table; the type checker compares the kind with the function."""
    return kind, fold


FOLDS: Final[Mapping[type[object], Fold[Any]]] = dict(
    [
        _fold(ModelAnswered, fold_tasks.model_answered),
        _fold(ToolAnswered, fold_tasks.tool_answered),
        _fold(TaskRequested, fold_tasks.task_requested),
        _fold(TaskStarted, fold_tasks.task_started),
        _fold(TaskSettled, fold_tasks.task_settled),
        _fold(ModelCalled, fold_tasks.model_called),
        _fold(ModelFailed, fold_tasks.model_failed),
        _fold(CancelRequested, fold_tasks.cancel_requested),
        _fold(Steered, fold_tasks.steered),
        _fold(SteeringSeen, fold_tasks.steering_seen),
        _fold(QuietChanged, fold_tasks.quiet_changed),
        _fold(StartsPaused, fold_tasks.starts_paused),
        _fold(ApprovalAsked, fold_approvals.approval_asked),
        _fold(ApprovalAnswered, fold_approvals.approval_answered),
        _fold(ProcessStarted, fold_processes.process_started),
        _fold(ProcessMatched, fold_processes.process_matched),
        _fold(ProcessEnded, fold_processes.process_ended),
        _fold(ProcessUnreachable, fold_processes.process_unreachable),
        _fold(WorkspaceOpened, fold_processes.workspace_opened),
        _fold(NetworkRequested, fold_processes.network_requested),
        _fold(CallPlaced, fold_places.call_placed),
        _fold(MessageReceived, fold_sessions.message_received),
        _fold(TurnStarted, fold_sessions.turn_started),
        _fold(TurnResumed, fold_sessions.turn_resumed),
        _fold(TurnEnded, fold_sessions.turn_ended),
        _fold(TurnInterrupted, fold_sessions.turn_interrupted),
        _fold(ReplyDelivered, fold_sessions.reply_delivered),
        _fold(SessionOpened, fold_sessions.session_opened),
        _fold(DoorOpened, fold_sessions.door_opened),
        _fold(DoorClosed, fold_sessions.door_closed),
        _fold(KindChanged, fold_sessions.kind_changed),
        _fold(MetadataChanged, fold_sessions.metadata_changed),
        _fold(StateChanged, fold_sessions.state_changed),
        _fold(SessionClosed, fold_sessions.session_closed),
        _fold(DeliveryFailed, fold_sessions.delivery_failed),
        _fold(ReplyPartDelivered, fold_sessions.reply_part_delivered),
        _fold(JobSet, fold_jobs.job_set),
        _fold(JobPaused, fold_jobs.job_paused),
        _fold(JobRemoved, fold_jobs.job_removed),
        _fold(JobOccurred, fold_jobs.job_occurred),
        _fold(JournalOpened, fold_sessions.journal_opened),
    ]
)
"""How each kind of fact is applied."""


def fold_entry(ledger: "Ledger", entry: Entry) -> None:
    """Apply one fact, or raise `ImpossibleEventError` and change nothing."""
    event = entry.event
    # Numbers may be missing: facts of idle sessions are not folded.
    if entry.seq <= ledger.last_seq:
        raise ImpossibleEventError(entry, f"{ledger.last_seq} is the last number")
    FOLDS[type(event)](ledger, event, entry)
    ledger.last_seq = entry.seq
    if (session := ledger.sessions.get(entry.session)) is not None:
        session.facts += 1
