"""One policy for a whole tree: before a tool runs, the rules of everybody above are asked.

Where they want a person to decide, the question is a fact with a deadline, and the answer, too. So
both survive a crash, and a question is answered once. Where nobody can be asked, the answer is no.
"""

import hashlib
import os
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from agents import RefusedBy, Tool, ToolCall, ToolError, well_formed
from agents.approval import OPERATORS, ApprovalRule, Subject, Verdict, strictest_rule
from agents.redaction.redactor import Redactor
from delegation import SessionId, TaskId, TaskRecord
from delegation.events import ApprovalAnswered, ApprovalAsked
from delegation.events.approvals import (
    BY_DEADLINE,
    ApprovalId,
    ApprovalQuestion,
    ApprovalVerdict,
)
from orchestrator.errors import UnknownIdError
from orchestrator.journal.bookkeeper import Bookkeeper

SHOWN: Final = 2_000
"""How many characters of a call people are shown."""
COMMAND_ARGUMENTS: Final = frozenset(
    [
        *("command", "workdir", "background", "timeout"),
        *("notify_on_complete", "watch_patterns"),
    ]
)
"""What a call may say besides its command, and is still about that very command."""
FILE_ARGUMENTS: Final = frozenset(
    [
        *("path", "content", "old", "new", "all", "offset", "limit"),
        *("pattern", "glob", "ignore_case", "hidden"),
    ]
)
"""What a call may say besides its file, and is still about that very file."""


def _tell_nobody(task: TaskId) -> None:
    """Tell nobody that a task goes on."""


@attrs.frozen
class _Question:
    """What people are asked about a call. It is kept, so there are no secrets in it."""

    subject: str
    """What is approved: this very command, file, or call."""
    details: str


class TaskApprovalCheck:
    """Where the calls of one task wait until they may be run.

    Args:
        book: who writes the journal.
        record: whose calls they are.
        policies: the rules of its agent, and of all above it.
        workspace: says in which folder its tools work.
        tools: what its agent may use; they know what a call means that leaves something out.
    """

    def __init__(
        self,
        book: Bookkeeper,
        record: TaskRecord,
        policies: Sequence[Sequence[ApprovalRule]],
        workspace: Callable[[], Path],
        *,
        tools: Sequence[Tool] = (),
    ) -> None:
        self._book = book
        self._record = record
        self._policies = policies
        self._workspace = workspace
        self._defaults = {tool.name: _defaults(tool.parameters) for tool in tools}

    def is_pending(self, call: ToolCall) -> bool:
        ask = self._record.questions.get(call.id)
        return ask is not None and ask.was_not_run

    async def wait_approved(self, call: ToolCall) -> None:
        await trio.lowlevel.checkpoint()
        subject = self._subject_of(call)
        rule = strictest_rule(self._policies, subject)
        if rule is None or rule.verdict is Verdict.ALLOW:
            return
        if rule.verdict is Verdict.DENY:
            why = f": {rule.reason}" if rule.reason else " by the rules of this run"
            raise _refusal(f"{call.name} was denied{why}. Do without it.")
        if call.id not in self._record.questions:
            question = self._question(call, subject)
            if self._is_approved(call.name, question.subject):
                return
            self._require_approver(call)
            self._book.post(
                ApprovalAsked(
                    self._record.id,
                    ApprovalId(f"a_{secrets.token_hex(8)}"),
                    call.id,
                    call.name,
                    question.subject,
                    self._book.clock() + rule.seconds,
                    question.details,
                )
            )
        ask = await self._wait_answered(call)
        _require_approved(call, ask)
        # A link may lead elsewhere by now: nobody has approved that.
        if self._question(call, self._subject_of(call)).subject != ask.subject:
            raise _refusal(
                f"{call.name} was approved for {ask.subject!r}, and is about something else by"
                " now. It was not run; call it again to have that approved."
            )

    def _subject_of(self, call: ToolCall) -> Subject:
        said = {**self._defaults.get(call.name, {}), **call.arguments}
        return subject_of(attrs.evolve(call, arguments=said), self._workspace())

    def _question(self, call: ToolCall, subject: Subject) -> _Question:
        redactor = self._book.redactor
        words = redactor.redact(self._subject_text(call, subject, redactor))
        details = redactor.redact(_as_text(redactor.redact_tree(call.arguments)))
        # What is cut may look like a secret only now.
        return _Question(redactor.redact(_shortened(words)), details[:SHOWN])

    def _subject_text(
        self, call: ToolCall, subject: Subject, redactor: Redactor
    ) -> str:
        said = call.arguments.keys()
        if subject.command is not None:
            command = redactor.redact(subject.command)
            _require_visible(call, subject.command, command)
            if said <= COMMAND_ARGUMENTS:
                workdir = str(call.arguments.get("workdir", "."))
                return _in_folder(
                    _relative_and_real(workdir, self._workspace())[0], command
                )
        if subject.path is not None and said <= FILE_ARGUMENTS:
            return subject.path
        return _as_text(redactor.redact_tree(call.arguments))

    def _require_approver(self, call: ToolCall) -> None:
        if not self._book.ledger.can_ask_approval(self._record.id):
            raise _refusal(
                f"{call.name} needs an approval, and nobody can be asked here: it was not run."
                " Do without it, and say in your answer what you were not allowed to do."
            )

    def _is_approved(self, tool: str, subject: str) -> bool:
        """Tell whether the same was approved before, for the session or for a task above."""
        if (tool, subject) in self._book.ledger.sessions[self._record.session].approved:
            return True
        record: TaskRecord | None = self._record
        while record is not None:
            if (tool, subject) in record.approved:
                return True
            record = record.parent
        return False

    async def _wait_answered(self, call: ToolCall) -> ApprovalQuestion:
        """Wait until somebody has answered, or the time for it is over."""
        book, record = self._book, self._record
        # Whoever is asked has to find the question, also after a crash.
        await book.wait_durable()
        deadline = record.questions[call.id].deadline
        with trio.move_on_after(max(0, deadline - book.clock())):
            await trio.lowlevel.checkpoint()
            while _current_ask(record, call).is_open:
                await book.wakeups.wait_tasks_changed([record.id])
        ask = _current_ask(record, call)
        if ask.is_open:
            seconds = ask.deadline - ask.asked_at
            reason = f"nobody has answered within {round(seconds, 1):g} seconds"
            book.post(
                ApprovalAnswered(
                    record.id, ask.id, ApprovalVerdict.DENY, reason, BY_DEADLINE
                )
            )
        return _current_ask(record, call)


def _current_ask(record: TaskRecord, call: ToolCall) -> ApprovalQuestion:
    if call.id not in record.questions:
        raise _refusal(f"{call.name} was not run: its task has ended")
    return record.questions[call.id]


def _refusal(sentence: str) -> ToolError:
    """Return the error that the model reads in place of an answer."""
    return ToolError(sentence, refused_by=RefusedBy.APPROVAL)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call means by leaving something out."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: it["default"] for name, it in properties.items() if "default" in it}


def _in_folder(folder: str, command: str) -> str:
    """Return a command as a shell would be told where to run it.

    So it is the same only as what does the same: nobody can write a command that passes for it.
    """
    return command if folder == "." else f"cd {shlex.quote(folder)} && ({command})"


def _require_visible(call: ToolCall, command: str, shown: str) -> None:
    """Refuse a command of which more is hidden from people than what is secret."""
    if OPERATORS.findall(command) != OPERATORS.findall(shown):
        raise _refusal(
            f"{call.name} needs an approval, and nobody can see all of it: a part looks like a"
            " secret, and does more than that. It was not run. Have the secret in a variable of"
            " the environment or in a file, and call it again."
        )


def _shortened(words: str) -> str:
    """Return what names a subject and no other, as short as people can read it."""
    if len(words) <= SHOWN:
        return words
    digest = hashlib.sha256(words.encode()).hexdigest()
    return f"{words[:SHOWN]}... ({len(words)} characters, sha256 {digest})"


def _require_approved(call: ToolCall, ask: ApprovalQuestion) -> None:
    if ask.answer is ApprovalVerdict.DENY:
        by = f" by {ask.by}" if ask.by else ""
        why = f": {ask.reason}" if ask.reason else ""
        raise _refusal(f"{call.name} was denied{by}{why}. It was not run.")


def subject_of(call: ToolCall, workspace: Path) -> Subject:
    """Return what a call is about, as rules look at it."""
    command, path = call.arguments.get("command"), call.arguments.get("path")
    relative, real = (
        _relative_and_real(path, workspace) if isinstance(path, str) else (None, None)
    )
    return Subject(
        tool=call.name,
        command=command if isinstance(command, str) else None,
        path=relative,
        real_path=real,
    )


def _relative_and_real(path: str, workspace: Path) -> tuple[str, str]:
    """Return a file by the one name that it has in the workspace, and by its whole name.

    That is its own, whatever links lead to it.
    """
    if "\0" in path:
        return path, path
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118 (keeps what `path` says)
    is_inside = os.path.commonpath([root, real]) == root
    return os.path.relpath(real, root) if is_inside else real, real


def _as_text(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments, order="deterministic").decode()


def open_questions(
    book: Bookkeeper, session: SessionId | None = None
) -> list[ApprovalQuestion]:
    """Return what somebody may still answer, oldest first.

    Args:
        book: who writes the journal.
        session: whose questions, if not all.
    """
    # Nobody may be there to say that the time of a question is over.
    now, tasks = book.clock(), book.ledger.tasks
    return [
        ask
        for ask in book.ledger.open_questions.values()
        if now <= ask.deadline
        and (session is None or tasks[ask.task].session == session)
    ]


def answer_question(
    book: Bookkeeper,
    id_: str,
    answer: str,
    *,
    reason: str,
    by: str,
    session: SessionId | None = None,
    on_answered: Callable[[TaskId], None] = _tell_nobody,
) -> None:
    """Post what somebody says to a question, once.

    Args:
        book: who writes the journal.
        id_: which question.
        answer: `once`, `task`, `session` or `deny`.
        reason: why, for the agent to read.
        by: who says so.
        session: whose questions may be answered, if not all.
        tell: is told which task goes on: it has not been silent.
    """
    try:
        verdict = ApprovalVerdict(answer)
    except ValueError:
        known = ", ".join(ApprovalVerdict)
        raise ValueError(f"{answer!r} is no answer; there are: {known}") from None
    asks = {ask.id: ask for ask in open_questions(book, session)}
    if (ask := asks.get(ApprovalId(id_))) is None:
        raise UnknownIdError(
            f"there is no approval {id_!r} to answer: it was answered, its time is over, or"
            " its task has ended"
        )
    book.post(
        ApprovalAnswered(
            ask.task, ask.id, verdict, well_formed(reason), well_formed(by)
        )
    )
    on_answered(ask.task)
