"""The fold of approvals: questions about calls, and the verdicts on them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orchestrator.agents import CallId
from orchestrator.delegation.events import ApprovalAnswered, ApprovalAsked, Entry
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.task_record import NO_QUESTIONS, TaskRecord
from orchestrator.delegation.ledger.task_state import RUNNING
from orchestrator.delegation.ledger.transitions import (
    refresh_session,
    require,
    running_task,
    unsettled_task,
    update_state,
)

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def approval_asked(ledger: "Ledger", event: ApprovalAsked, entry: Entry) -> None:
    task = running_task(ledger, event)
    is_new = event.id not in ledger.open_questions
    require(is_new, event, "there is such an approval already", task)
    require(event.call not in task.questions, event, "it was asked for already", task)
    question = ApprovalQuestion(
        id=event.id,
        task=event.task,
        path=task.path,
        call=event.call,
        tool=event.tool,
        subject=event.subject,
        details=event.details,
        asked_at=entry.at,
        deadline=event.deadline,
        why=event.why,
    )
    task.questions = {**task.questions, event.call: question}
    ledger.open_questions[event.id] = question
    _refresh_status(ledger, task)


def approval_answered(ledger: "Ledger", event: ApprovalAnswered, _: Entry) -> None:
    task = unsettled_task(ledger, event)
    is_open = (
        event.id in ledger.open_questions and ledger.open_questions[event.id].task == event.task
    )
    require(is_open, event, "no such question of the task is open", task)
    question = replace(
        ledger.open_questions.pop(event.id),
        answer=event.answer,
        reason=event.reason,
        by=event.by,
        answered_while_not_running=not task.is_running,
    )
    task.questions = {**task.questions, question.call: question}
    if event.answer is ApprovalVerdict.TASK:
        task.approved |= {(question.tool, question.subject)}
    elif event.answer is ApprovalVerdict.SESSION:
        session = ledger.sessions[task.session]
        session.approved |= {(question.tool, question.subject)}
    _refresh_status(ledger, task)


def _refresh_status(ledger: "Ledger", task: TaskRecord) -> None:
    session = ledger.sessions[task.session]
    if task.is_running:
        update_state(session, task, RUNNING)
    refresh_session(ledger, session)


def assume_answers_received(task: TaskRecord) -> None:
    """Assume of a task that crashed that it had run all calls that were approved."""
    if task.questions:
        task.questions = {
            call: replace(question, answered_while_not_running=False)
            for call, question in task.questions.items()
        }


def hide_questions(ledger: "Ledger", tasks: Iterable[TaskRecord]) -> None:
    """Ask no person about the calls of tasks until they are resumed."""
    for task in tasks:
        for question in task.questions.values():
            ledger.open_questions.pop(question.id, None)


def show_questions(ledger: "Ledger", tasks: Iterable[TaskRecord]) -> None:
    """Ask again about the calls of tasks that are resumed."""
    shown = [it for task in tasks for it in task.questions.values() if it.is_open]
    if shown:
        every = [*ledger.open_questions.values(), *shown]
        every.sort(key=lambda question: question.asked_at)
        ledger.open_questions = {question.id: question for question in every}


def drop_question(ledger: "Ledger", task: TaskRecord, call: CallId) -> None:
    """Close the question about a call that has its result."""
    questions = dict(task.questions)
    ledger.open_questions.pop(questions.pop(call).id, None)
    task.questions = questions
    update_state(ledger.sessions[task.session], task, RUNNING)


def drop_questions(ledger: "Ledger", task: TaskRecord) -> None:
    """Close all questions about the calls of a task that ends or begins anew."""
    for question in task.questions.values():
        ledger.open_questions.pop(question.id, None)
    task.questions = NO_QUESTIONS


FOLDS: Final[tuple[FoldRow, ...]] = (
    fold_row(ApprovalAsked, approval_asked),
    fold_row(ApprovalAnswered, approval_answered),
)
