"""Approval questions, received and answered, for every door."""

from collections.abc import Callable

import trio

from orchestrator.delegation import SessionId
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.sessions import Sessions


class ApprovalQuestions(trio.abc.ReceiveChannel[ApprovalQuestion]):
    """The approval questions of a session, or of all, oldest first, each once.

    Questions without an answer come again when the session is opened again.
    """

    def __init__(
        self, sessions: Sessions, session: SessionId | None, *, is_closed: Callable[[], bool]
    ) -> None:
        """Receive the questions of a session; None is all sessions and runs."""
        self._sessions = sessions
        self._session = session
        self._is_closed = is_closed
        self._received: set[ApprovalId] = set()

    async def receive(self) -> ApprovalQuestion:
        """Wait for the next question that is still open."""
        require_trio()
        await trio.lowlevel.checkpoint()
        while not self._is_closed():
            questions = self._sessions.read.open_questions(self._session)
            self._received &= {question.id for question in questions}
            for question in questions:
                if question.id not in self._received:
                    self._received.add(question.id)
                    return question
            if self._session is None:
                await self._sessions.read.wait_changed()
            else:
                await self._sessions.read.wait_session_changed(self._session)
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        """Do nothing: it ends with its session, or with the orchestrator."""
        await trio.lowlevel.checkpoint()


async def answer_question(
    sessions: Sessions,
    approval: str,
    answer: str,
    *,
    reason: str = "",
    by: str = "",
    session: SessionId | None = None,
) -> None:
    """Post the answer to an open question of a session, durably, or raise `UnknownIdError`."""
    sessions.answer_question(approval, answer, reason=reason, by=by, session=session)
    await sessions.facts.wait_durable()
