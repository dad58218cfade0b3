"""The fold of background commands: their start, the lines watched for, and their end."""

from typing import TYPE_CHECKING

from delegation.events import ProcessEnded, ProcessMatched, ProcessStarted
from delegation.events.processes import ProcessNotice, ProcessRecord
from delegation.ledger.records import Envelope, SessionRecord, TaskRecord
from delegation.ledger.transitions import refresh_session, require, running_task
from delegation.task import DeliveryCapability

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def process_started(ledger: "Ledger", event: ProcessStarted) -> None:
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


def process_matched(ledger: "Ledger", event: ProcessMatched, seq: int) -> None:
    session, process = _running_process(ledger, event)
    require(process.notify, event, "its task wants no notices")
    notice = ProcessNotice(
        process=process.id,
        command=process.command,
        output="\n".join(event.lines),
        left_out=event.left_out,
    )
    _add_process_notice(session, ledger.tasks[event.task], seq, notice)
    refresh_session(ledger, session)


def process_ended(ledger: "Ledger", event: ProcessEnded, seq: int) -> None:
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
        _add_process_notice(session, ledger.tasks[event.task], seq, notice)
    refresh_session(ledger, session)


def _running_process(
    ledger: "Ledger", event: ProcessMatched | ProcessEnded
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

    Their runner posts their ends before, unless it had no time to.
    """
    if session.processes:
        session.processes = {
            id_: process
            for id_, process in session.processes.items()
            if process.task != task.id
        }
