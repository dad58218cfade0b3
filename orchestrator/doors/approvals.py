"""Answering approval questions, for every door."""

from delegation import SessionId
from orchestrator.engine import approvals
from orchestrator.services import Services


async def answer_question(
    services: Services,
    approval: str,
    answer: str,
    *,
    reason: str = "",
    by: str = "",
    session: SessionId | None = None,
) -> None:
    """Post the answer to an approval question, and return when it is durable.

    Args:
        services: the parts of the orchestrator.
        approval: the id of the question.
        answer: one of the values of `ApprovalVerdict`.
        reason: the reason that the agent reads.
        by: the name of the person who answers.
        session: the session that the question must belong to.

    Raises:
        UnknownIdError: the question is not open, or is another session's.
    """
    approvals.answer_question(
        services.book,
        approval,
        answer,
        reason=reason,
        by=by,
        session=session,
        on_answered=services.runner.watchdog.touch,
    )
    await services.book.wait_durable()
