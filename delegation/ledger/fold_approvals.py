"""How the facts of what touches the machine change what is true: approvals, and commands."""

from typing import TYPE_CHECKING

import attrs

from delegation.errors import require
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Entry,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
)
from delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from delegation.events.processes import ProcessNotice, ProcessRecord
from delegation.ledger.fold_tasks import live_task, running_task, working_status
from delegation.ledger.records import Envelope, SessionRecord, TaskRecord
from delegation.task import DeliveryCapability, Mode

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def approval_asked(
    ledger: "Ledger", event: ApprovalAsked, entry: Entry
) -> SessionRecord:
    record = running_task(ledger, event)
    require(
        event.id not in ledger.open_questions,
        event,
        "there is such an approval already",
    )
    require(event.call not in record.questions, event, "it was asked for already")
    ask = ApprovalQuestion(
        id=event.id,
        task=event.task,
        path=record.path,
        call=event.call,
        tool=event.tool,
        subject=event.subject,
        details=event.details,
        asked_at=entry.at,
        deadline=event.deadline,
    )
    record.questions = {**record.questions, event.call: ask}
    ledger.open_questions[event.id] = ask
    return _update_status(ledger, record)


def approval_answered(ledger: "Ledger", event: ApprovalAnswered) -> SessionRecord:
    record = live_task(ledger, event)
    is_open = (
        event.id in ledger.open_questions
        and ledger.open_questions[event.id].task == event.task
    )
    require(is_open, event, "nobody asks for it, or it was answered already")
    ask = attrs.evolve(
        ledger.open_questions.pop(event.id),
        answer=event.answer,
        reason=event.reason,
        by=event.by,
        answered_while_not_running=not record.is_running,
    )
    record.questions = {**record.questions, ask.call: ask}
    session = ledger.sessions[record.session]
    if event.answer is ApprovalVerdict.TASK:
        record.approved |= {(ask.tool, ask.subject)}
    elif event.answer is ApprovalVerdict.SESSION:
        session.approved |= {(ask.tool, ask.subject)}
    return _update_status(ledger, record)


def assume_answers_received(record: TaskRecord) -> None:
    """Let a crash come to a task: whoever worked on it may have run what was approved."""
    if record.is_running and record.questions:
        record.questions = {
            call: attrs.evolve(ask, answered_while_not_running=False)
            for call, ask in record.questions.items()
        }


def _update_status(ledger: "Ledger", record: TaskRecord) -> SessionRecord:
    session = ledger.sessions[record.session]
    if record.is_running and record.mode is not Mode.ROOT:
        session.tree.mark(record.id, status=working_status(record))
    return session


def process_started(ledger: "Ledger", event: ProcessStarted) -> SessionRecord:
    record = running_task(ledger, event)
    session = ledger.sessions[record.session]
    require(event.id not in session.processes, event, "there is such a command already")
    turn = session.turn if record is session.root else None
    can_be_told = turn is not None and turn.capability is not DeliveryCapability.NONE
    is_kept = can_be_told or not event.notify
    require(is_kept, event, "only a session can be told later")
    session.processes[event.id] = ProcessRecord(
        event.id, event.task, event.command, event.notify
    )
    return session


def process_matched(
    ledger: "Ledger", event: ProcessMatched, entry: Entry
) -> SessionRecord:
    session, process = _running(ledger, event)
    require(process.notify, event, "nobody wants to be told of it")
    news = ProcessNotice(
        process=process.id,
        command=process.command,
        output="\n".join(event.lines),
        left_out=event.left_out,
    )
    _add_process_notice(session, ledger.tasks[event.task], entry, news)
    return session


def process_ended(ledger: "Ledger", event: ProcessEnded, entry: Entry) -> SessionRecord:
    session, process = _running(ledger, event)
    del session.processes[process.id]
    if process.notify:
        news = ProcessNotice(
            process=process.id,
            command=process.command,
            ended=event.how,
            output=event.output,
            left_out=event.left_out,
        )
        _add_process_notice(session, ledger.tasks[event.task], entry, news)
    return session


def _running(
    ledger: "Ledger", event: ProcessMatched | ProcessEnded
) -> tuple[SessionRecord, ProcessRecord]:
    require(event.task in ledger.tasks, event, "there is no such task")
    session = ledger.sessions[ledger.tasks[event.task].session]
    process = session.processes.get(event.id)
    require(process is not None, event, "there is no such command, or it has ended")
    assert process is not None, "that was required"
    require(process.task == event.task, event, "it is another's command")
    return session, process


def _add_process_notice(
    session: SessionRecord, record: TaskRecord, entry: Entry, news: ProcessNotice
) -> None:
    if not session.closed:
        session.mail[entry.seq] = news
        session.envelopes[entry.seq] = Envelope(record.context, ())
