"""The open questions about tool calls, and the answers of people."""

from collections.abc import Callable

from orchestrator.agents import well_formed
from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import ApprovalAnswered
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion, ApprovalVerdict
from orchestrator.kernel.errors import UnknownIdError
from orchestrator.kernel.journal.bookkeeper import Bookkeeper


def open_questions(book: Bookkeeper, session: SessionId | None = None) -> list[ApprovalQuestion]:
    """Return the questions that may still be answered, oldest first, of one session or of all."""
    # The task that posts the end of a question's time may be interrupted.
    now, tasks = book.clock(), book.ledger.tasks
    return [
        ask
        for ask in book.ledger.open_questions.values()
        if now <= ask.deadline and (session is None or tasks[ask.task].session == session)
    ]


def answer_question(
    book: Bookkeeper,
    id_: str,
    answer: str,
    *,
    reason: str,
    by: str,
    session: SessionId | None,
    on_answered: Callable[[TaskId], None],
) -> None:
    """Post the answer to a question, once.

    `session` is the session that it must belong to, if any. `on_answered` is called with the task
    that goes on.
    """
    try:
        verdict = ApprovalVerdict(answer)
    except ValueError:
        known = ", ".join(ApprovalVerdict)
        raise ValueError(f"{answer!r} is not an answer; there are: {known}") from None
    asks = {ask.id: ask for ask in open_questions(book, session)}
    if (ask := asks.get(ApprovalId(id_))) is None:
        raise UnknownIdError(
            f"there is no approval {id_!r} to answer: it was answered, its time is over, or"
            " its task has ended"
        )
    book.post(ApprovalAnswered(ask.task, ask.id, verdict, well_formed(reason), well_formed(by)))
    on_answered(ask.task)
