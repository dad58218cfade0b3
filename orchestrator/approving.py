"""One policy for a whole tree: before a tool runs, the rules of everybody above are asked.

Where they want a person to decide, the question is a fact with a deadline, and the answer, too. So
both survive a crash, and a question is answered once. Where nobody can be asked, the answer is no.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from agents import ToolCall, ToolError
from agents.approval import ApprovalRule, Subject, Verdict, strictest
from delegation import SessionId, TaskRecord
from delegation.asking import DEADLINE, Answer, ApprovalId, Ask
from delegation.events import ApprovalAnswered, ApprovalAsked
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.errors import UnknownIdError

SHOWN: Final = 2_000
"""How many characters of a call people are shown."""


class CallGate:
    """Where the calls of one task wait until they may be run."""

    def __init__(
        self,
        book: Bookkeeper,
        record: TaskRecord,
        policies: Sequence[Sequence[ApprovalRule]],
        workspace: Callable[[], Path],
    ) -> None:
        self._book = book
        self._record = record
        self._policies = policies
        self._workspace = workspace

    def is_held(self, call: ToolCall) -> bool:
        ask = self._record.asks.get(call.id)
        return ask is not None and ask.is_held

    async def admit(self, call: ToolCall) -> None:
        await trio.lowlevel.checkpoint()
        subject = subject_of(call, self._workspace())
        rule = strictest(self._policies, subject)
        if rule is None or rule.verdict is Verdict.ALLOW:
            return
        if rule.verdict is Verdict.DENY:
            why = f": {rule.reason}" if rule.reason else " by the rules of this run"
            raise ToolError(f"{call.name} was denied{why}. Do without it.")
        words = _named(subject.words)
        if call.id not in self._record.asks:
            if self._is_approved(call.name, words):
                return
            self._require_somebody(call)
            self._book.post(
                ApprovalAsked(
                    self._record.id,
                    ApprovalId(f"a_{secrets.token_hex(8)}"),
                    call.id,
                    call.name,
                    words,
                    self._book.clock() + rule.seconds,
                    subject.arguments[:SHOWN],
                )
            )
        _require_approved(call, await self._answered(call))

    def _require_somebody(self, call: ToolCall) -> None:
        if not self._book.ledger.can_be_asked(self._record.id):
            raise ToolError(
                f"{call.name} needs an approval, and nobody can be asked here: it was not run."
                " Do without it, and say in your answer what you were not allowed to do."
            )

    def _is_approved(self, tool: str, words: str) -> bool:
        """Tell whether the same was approved before, for the session or for a task above."""
        if (tool, words) in self._book.ledger.sessions[self._record.session].approved:
            return True
        record: TaskRecord | None = self._record
        while record is not None:
            if (tool, words) in record.approved:
                return True
            record = record.parent
        return False

    async def _answered(self, call: ToolCall) -> Ask:
        """Wait until somebody has answered, or the time for it is over."""
        book, record = self._book, self._record
        # Whoever is asked has to find the question, also after a crash.
        await book.wait_durable()
        ask = record.asks[call.id]
        with trio.move_on_after(max(0, ask.deadline - book.clock())):
            while record.asks[call.id].is_open:
                await book.wait_news_of([record.id])
        if record.asks[call.id].is_open:
            seconds = ask.deadline - ask.asked_at
            reason = f"nobody has answered within {seconds:g} seconds"
            book.post(
                ApprovalAnswered(record.id, ask.id, Answer.DENY, reason, DEADLINE)
            )
        return record.asks[call.id]


def _named(words: str) -> str:
    """Return what names a subject and no other, as short as people can read it."""
    if len(words) <= SHOWN:
        return words
    digest = hashlib.sha256(words.encode()).hexdigest()
    return f"{words[:SHOWN]}... ({len(words)} characters, sha256 {digest})"


def _require_approved(call: ToolCall, ask: Ask) -> None:
    if ask.answer is Answer.DENY:
        by = f" by {ask.by}" if ask.by else ""
        why = f": {ask.reason}" if ask.reason else ""
        raise ToolError(f"{call.name} was denied{by}{why}. It was not run.")


def subject_of(call: ToolCall, workspace: Path) -> Subject:
    """Return what a call is about, as rules look at it."""
    command, path = call.arguments.get("command"), call.arguments.get("path")
    return Subject(
        tool=call.name,
        command=command if isinstance(command, str) else None,
        path=_relative(path, workspace) if isinstance(path, str) else None,
        arguments=_as_text(call.arguments),
    )


def _relative(path: str, workspace: Path) -> str:
    """Return a file by the one name that it has in the workspace, whatever links lead to it."""
    if "\0" in path:
        return path
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118 (keeps what `path` says)
    return os.path.relpath(real, root) if real.startswith(f"{root}{os.sep}") else real


def _as_text(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments, order="deterministic").decode()


def answer(
    book: Bookkeeper,
    id_: str,
    answer: str,
    *,
    reason: str,
    by: str,
    session: SessionId | None = None,
) -> None:
    """Post what somebody says to a question, once.

    Args:
        book: who writes the journal.
        id_: which question.
        answer: `once`, `task`, `session` or `deny`.
        reason: why, for the agent to read.
        by: who says so.
        session: whose questions may be answered, if not all.
    """
    try:
        verdict = Answer(answer)
    except ValueError:
        known = ", ".join(Answer)
        raise ValueError(f"{answer!r} is no answer; there are: {known}") from None
    ask = book.ledger.asks.get(ApprovalId(id_))
    if (
        ask is None
        or book.clock() > ask.deadline
        or (session and book.ledger.tasks[ask.task].session != session)
    ):
        raise UnknownIdError(
            f"there is no approval {id_!r} to answer: it was answered, its time is over, or"
            " its task has ended"
        )
    book.post(ApprovalAnswered(ask.task, ask.id, verdict, reason, by))
