"""The approval questions of a chat: one at a time, so that an answer fits the shown question."""

import trio

from orchestrator.cli.terminal import approvals
from orchestrator.cli.terminal.console import Terminal, print_hint
from orchestrator.delegation import Mode
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import Orchestrator, Session


class ApprovalPrompts:
    """The questions of one session."""

    def __init__(self, orchestrator: Orchestrator, session: Session, console: Terminal) -> None:
        self._orchestrator = orchestrator
        self._session = session
        self._console = console
        self._shown: ApprovalQuestion | None = None

    async def show_all(self) -> None:
        """Show each question when the one before it is closed, until the session closes."""
        async for question in self._session.questions:
            self._console.print()
            approvals.show_question(question, self._console, slash="/")
            self._shown = question
            await approvals.wait_question_closed(self._orchestrator, question)
            self._shown = None

    def is_answer(self, line: str) -> bool:
        """Return whether a line without a slash answers the shown question."""
        return self._shown is not None and line.strip().lower() in approvals.ANSWER_WORDS

    async def answer(self, verdict: ApprovalVerdict, reason: str) -> None:
        """Answer the shown question."""
        await trio.lowlevel.checkpoint()
        if self._shown is None:
            print_hint(self._console, "Nothing waits for an approval.")
        else:
            await self._answer(self._shown, verdict, reason)

    async def deny_what_turns_wait_for(self) -> None:
        """Deny each question that a turn waits for, until cancelled: the user has left."""
        seen = 0
        while True:
            for question in self._session.open_questions:
                if self._is_in_turn(question):
                    await self._answer(question, *approvals.UNATTENDED_DENIAL)
            seen = await self._orchestrator.wait_changed(after=seen)

    def _is_in_turn(self, question: ApprovalQuestion) -> bool:
        """Return whether the turn waits for the answer; a detached task can wait longer."""
        tree = self._session.tree
        node = tree[question.task]
        while node.mode == Mode.JOINED and node.parent is not None:
            node = tree[node.parent]
        return node.mode == Mode.ROOT

    async def _answer(
        self, question: ApprovalQuestion, verdict: ApprovalVerdict, reason: str
    ) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._session.answer(question.id, verdict, reason=reason, by="the user")
        except UnknownIdError:
            print_hint(self._console, approvals.TOO_LATE)
