"""The fold of commands: those in the background, and what any of them asks of the network."""

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orchestrator.delegation.events import (
    Entry,
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
    WorkspaceOpened,
)
from orchestrator.delegation.events.processes import (
    ProcessNotice,
    ProcessRecord,
    describe_unreachable,
)
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.session_record import Envelope, SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.ledger.transitions import refresh_session, require, running_task
from orchestrator.delegation.task import DeliveryCapability

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def process_started(ledger: "Ledger", event: ProcessStarted, _: Entry) -> None:
    task = running_task(ledger, event)
    session = ledger.sessions[task.session]
    is_new = event.id not in session.processes
    require(is_new, event, "there is such a command already", task)
    turn = session.turn if task.is_root else None
    gets_notices = turn is not None and turn.promises is not DeliveryCapability.NONE
    is_possible = gets_notices or not event.notify
    require(is_possible, event, "only a session gets notices", task)
    session.processes[event.id] = ProcessRecord(
        event.id, event.task, event.command, event.notify, event.host
    )
    refresh_session(ledger, session)


def process_matched(ledger: "Ledger", event: ProcessMatched, entry: Entry) -> None:
    session, process = _running_process(ledger, event)
    require(process.notify, event, "its task wants no notices")
    notice = ProcessNotice(
        process=process.id,
        command=process.command,
        output="\n".join(event.lines),
        left_out=event.left_out,
    )
    _add_process_notice(session, ledger.tasks[event.task], entry.seq, notice)
    refresh_session(ledger, session)


def process_ended(ledger: "Ledger", event: ProcessEnded, entry: Entry) -> None:
    session, process = _running_process(ledger, event)
    del session.processes[process.id]
    if process.notify:
        notice = ProcessNotice(
            process=process.id,
            command=process.command,
            ended=event.how,
            output=event.output,
            left_out=event.left_out,
        )
        _add_process_notice(session, ledger.tasks[event.task], entry.seq, notice)
    refresh_session(ledger, session)


def process_unreachable(ledger: "Ledger", event: ProcessUnreachable, entry: Entry) -> None:
    session, process = _running_process(ledger, event)
    is_news = not process.is_unreachable
    require(is_news, event, "it is known that it cannot be seen")
    require(event.host != process.host, event, "it runs on that very machine")
    session.processes[process.id] = replace(process, unreachable_from=event.host)
    if process.notify:
        notice = ProcessNotice(
            process=process.id,
            command=process.command,
            unknown=describe_unreachable(process.host, event.host),
        )
        _add_process_notice(session, ledger.tasks[event.task], entry.seq, notice)
    refresh_session(ledger, session)


def workspace_opened(ledger: "Ledger", event: WorkspaceOpened, _: Entry) -> None:
    require(event.task in ledger.tasks, event, "there is no such task")
    session = ledger.sessions[ledger.tasks[event.task].session]
    is_first = not session.workspace_host
    require(is_first, event, "its session has a workspace already")
    session.workspace_host = event.host


def network_requested(ledger: "Ledger", event: NetworkRequested, _: Entry) -> None:
    """Check that the task exists: no other state depends on its request."""
    require(event.task in ledger.tasks, event, "there is no such task")


def _running_process(
    ledger: "Ledger", event: ProcessMatched | ProcessEnded | ProcessUnreachable
) -> tuple[SessionRecord, ProcessRecord]:
    require(event.task in ledger.tasks, event, "there is no such task")
    session = ledger.sessions[ledger.tasks[event.task].session]
    process = session.processes.get(event.id)
    require(process is not None, event, "there is no such command, or it has ended")
    assert process is not None, "that was required"
    require(process.task == event.task, event, "it is a command of another task")
    return session, process


def _add_process_notice(
    session: SessionRecord, task: TaskRecord, seq: int, notice: ProcessNotice
) -> None:
    if not session.closed:
        session.mail[seq] = notice
        session.envelopes[seq] = Envelope(task.context, ())


def drop_processes(session: SessionRecord, task: TaskRecord) -> None:
    """Take the commands of a task that ends for ended.

    Their runner posts their ends before, unless it had no time to. One that cannot be seen from
    here stays: a process on its machine has to end it.
    """
    if session.processes:
        session.processes = {
            id_: process
            for id_, process in session.processes.items()
            if process.task != task.id or process.is_unreachable
        }


FOLDS: Final[tuple[FoldRow, ...]] = (
    fold_row(ProcessStarted, process_started),
    fold_row(ProcessMatched, process_matched),
    fold_row(ProcessEnded, process_ended),
    fold_row(ProcessUnreachable, process_unreachable),
    fold_row(WorkspaceOpened, workspace_opened),
    fold_row(NetworkRequested, network_requested),
)
