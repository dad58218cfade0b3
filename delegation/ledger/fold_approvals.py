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
from delegation.events.approvals import Answer, Ask
from delegation.events.processes import ProcessNews, ProcessRecord
from delegation.ledger.fold_tasks import acting_task, live_task, working_status
from delegation.ledger.records import Envelope, SessionRecord, TaskRecord
from delegation.task import DeliveryCapability, Mode

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def approval_asked(
    ledger: "Ledger", event: ApprovalAsked, entry: Entry
) -> SessionRecord:
    record = acting_task(ledger, event)
    require(event.id not in ledger.asks, event, "there is such an approval already")
    require(event.call not in record.asks, event, "it was asked for already")
    ask = Ask(
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
    record.asks = {**record.asks, event.call: ask}
    ledger.asks[event.id] = ask
    return _marked(ledger, record)


def approval_answered(ledger: "Ledger", event: ApprovalAnswered) -> SessionRecord:
    record = live_task(ledger, event)
    is_open = event.id in ledger.asks and ledger.asks[event.id].task == event.task
    require(is_open, event, "nobody asks for it, or it was answered already")
    ask = attrs.evolve(
        ledger.asks.pop(event.id),
        answer=event.answer,
        reason=event.reason,
        by=event.by,
        is_unheard=not record.acting,
    )
    record.asks = {**record.asks, ask.call: ask}
    session = ledger.sessions[record.session]
    if event.answer is Answer.TASK:
        record.approved |= {(ask.tool, ask.subject)}
    elif event.answer is Answer.SESSION:
        session.approved |= {(ask.tool, ask.subject)}
    return _marked(ledger, record)


def hear_answers(record: TaskRecord) -> None:
    """Let a crash come to a task: whoever worked on it may have run what was approved."""
    if record.acting and record.asks:
        record.asks = {
            call: attrs.evolve(ask, is_unheard=False)
            for call, ask in record.asks.items()
        }


def _marked(ledger: "Ledger", record: TaskRecord) -> SessionRecord:
    session = ledger.sessions[record.session]
    if record.acting and record.mode is not Mode.ROOT:
        session.tree.mark(record.id, status=working_status(record))
    return session


def process_started(ledger: "Ledger", event: ProcessStarted) -> SessionRecord:
    record = acting_task(ledger, event)
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
    news = ProcessNews(
        process=process.id,
        command=process.command,
        output="\n".join(event.lines),
        left_out=event.left_out,
    )
    _send(session, ledger.tasks[event.task], entry, news)
    return session


def process_ended(ledger: "Ledger", event: ProcessEnded, entry: Entry) -> SessionRecord:
    session, process = _running(ledger, event)
    del session.processes[process.id]
    if process.notify:
        news = ProcessNews(
            process=process.id,
            command=process.command,
            ended=event.how,
            output=event.output,
            left_out=event.left_out,
        )
        _send(session, ledger.tasks[event.task], entry, news)
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


def _send(
    session: SessionRecord, record: TaskRecord, entry: Entry, news: ProcessNews
) -> None:
    if not session.closed:
        session.mail[entry.seq] = news
        session.envelopes[entry.seq] = Envelope(record.context, ())
