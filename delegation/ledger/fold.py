"""The fold: applies each fact to the ledger.

A fact that contradicts the facts before it is refused, and changes nothing: every handler checks
first and changes then. Work per fact is O(depth), whatever the ledger holds.
"""

from typing import TYPE_CHECKING, assert_never

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


def fold_entry(ledger: "Ledger", entry: Entry) -> None:  # noqa: C901, PLR0912, PLR0915 (a case a fact)
    """Apply one fact, or raise `ImpossibleEventError` and change nothing."""
    event = entry.event
    # Numbers may be missing: facts of idle sessions are not folded.
    if entry.seq <= ledger.last_seq:
        raise ImpossibleEventError(entry, f"{ledger.last_seq} is the last number")
    match event:
        case ModelAnswered():
            fold_tasks.model_answered(ledger, event)
        case ToolAnswered():
            fold_tasks.tool_answered(ledger, event)
        case TaskRequested():
            fold_tasks.task_requested(ledger, event, entry.at)
        case TaskStarted():
            fold_tasks.task_started(ledger, event, entry.at)
        case TaskSettled():
            fold_tasks.task_settled(ledger, event, entry)
        case ModelCalled():
            fold_tasks.model_called(ledger, event)
        case ModelFailed():
            fold_tasks.model_failed(ledger, event, entry.seq)
        case CancelRequested():
            fold_tasks.cancel_requested(ledger, event)
        case Steered():
            fold_tasks.steered(ledger, event)
        case SteeringSeen():
            fold_tasks.steering_seen(ledger, event)
        case QuietChanged():
            fold_tasks.quiet_changed(ledger, event)
        case StartsPaused():
            fold_tasks.starts_paused(ledger, event)
        case ApprovalAsked():
            fold_approvals.approval_asked(ledger, event, entry.at)
        case ApprovalAnswered():
            fold_approvals.approval_answered(ledger, event)
        case ProcessStarted():
            fold_processes.process_started(ledger, event)
        case ProcessMatched():
            fold_processes.process_matched(ledger, event, entry.seq)
        case ProcessEnded():
            fold_processes.process_ended(ledger, event, entry.seq)
        case ProcessUnreachable():
            fold_processes.process_unreachable(ledger, event, entry.seq)
        case WorkspaceOpened():
            fold_processes.workspace_opened(ledger, event)
        case NetworkRequested():
            fold_processes.network_requested(ledger, event)
        case CallPlaced():
            fold_places.call_placed(ledger, event)
        case MessageReceived():
            fold_sessions.message_received(ledger, event, entry.seq)
        case TurnStarted():
            fold_sessions.turn_started(ledger, event, entry.at)
        case TurnResumed():
            fold_sessions.turn_resumed(ledger, event)
        case TurnEnded():
            fold_sessions.turn_ended(ledger, event, entry.at)
        case ReplyDelivered():
            fold_sessions.reply_delivered(ledger, event)
        case SessionOpened():
            fold_sessions.session_opened(ledger, event, entry.at)
        case DoorOpened():
            fold_sessions.door_opened(ledger, event)
        case DoorClosed():
            fold_sessions.door_closed(ledger, event)
        case KindChanged():
            fold_sessions.kind_changed(ledger, event)
        case MetadataChanged():
            fold_sessions.metadata_changed(ledger, event)
        case StateChanged():
            fold_sessions.state_changed(ledger, event)
        case SessionClosed():
            fold_sessions.session_closed(ledger, event)
        case DeliveryFailed():
            fold_sessions.delivery_failed(ledger, event)
        case ReplyPartDelivered():
            fold_sessions.reply_part_delivered(ledger, event)
        case JobSet():
            fold_jobs.job_set(ledger, event)
        case JobPaused():
            fold_jobs.job_paused(ledger, event)
        case JobRemoved():
            fold_jobs.job_removed(ledger, event)
        case JobOccurred():
            fold_jobs.job_occurred(ledger, event)
        case JournalOpened():
            fold_sessions.journal_opened(ledger, event)
        case _:
            assert_never(event)
    ledger.last_seq = entry.seq
    if (session := ledger.sessions.get(entry.session)) is not None:
        session.facts += 1
