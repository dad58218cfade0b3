"""Approval of tool calls: the rules of the agent and of all agents above it decide.

Where they want a person to decide, the question is a fact with a deadline, and so is the answer:
both survive a crash, and a question is answered once. Where no person can be asked, the call is
refused.
"""

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import Agent, CallId, RefusedBy, Tool, ToolCall, ToolError
from orchestrator.agents.approval import (
    ESTIMATED,
    OPERATORS,
    ApprovalRule,
    Subject,
    Verdict,
    default_rule,
    strictest_rule,
)
from orchestrator.agents.approved_call import ApprovedCall
from orchestrator.agents.feature_checks import RUN_SCRIPT
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.tools.context import commands_are_walled
from orchestrator.agents.turn_plan import SCRIPT_CHARACTERS
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import ApprovalAnswered, ApprovalAsked
from orchestrator.delegation.events.approvals import (
    BY_DEADLINE,
    ApprovalId,
    ApprovalQuestion,
    ApprovalVerdict,
)
from orchestrator.kernel.engine.shown_text import (
    SHOWN,
    as_json,
    digest_of,
    shown_arguments,
    visible,
    visible_in_short,
)
from orchestrator.kernel.execution.workspace.call_subject import relative_and_real, subject_of
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

if TYPE_CHECKING:
    from orchestrator.kernel.engine.cost_rules import EstimateCost

COMMAND_ARGUMENTS: Final = frozenset(
    [*("command", "workdir", "background", "timeout"), *("notify_on_complete", "watch_patterns")]
)
"""The arguments that do not change which command a call is about."""
FILE_ARGUMENTS: Final = frozenset(
    [
        *("path", "content", "old", "new", "all", "offset", "limit"),
        *("pattern", "glob", "ignore_case", "hidden"),
    ]
)
"""The arguments that do not change which file a call is about."""
CONTENT_ARGUMENTS: Final = frozenset({"content", "old", "new", "all"})
"""The ones that change the content of the file."""
DEFINITION: Final = " (definition: sha256 "
CHANGED: Final = "its server has changed the definition of this tool since it was approved"
REMEDY: Final = 'its author can allow all calls, with approve=[allow("*")], or some of them.'
FORM_MARK: Final = "?form-"
"""In the id under which a form is asked about: no call of a model has it."""
FORM_SECONDS: Final = 300.0
LONGEST_COMMAND: Final = 100_000
"""The number of characters of a command that are searched for a part to show."""


class _Question(msgspec.Struct, frozen=True):
    """A question to people about a call. It is recorded, so it is redacted."""

    subject: str
    """The subject of the approval: this very command, file, or call."""
    details: str


class TaskApprovalCheck:
    """Holds the calls of one task until its rules, all above it, or the default approve them."""

    def __init__(
        self,
        book: Bookkeeper,
        record: TaskRecord,
        policies: Sequence[Sequence[ApprovalRule]],
        workspace: Callable[[], Path],
        *,
        agent: Agent[Any],
        estimate: "EstimateCost | None" = None,
    ) -> None:
        self._agent = agent
        self._estimate = estimate
        self._book = book
        self._record = record
        self._policies = policies
        self._workspace = workspace
        self._tools: dict[str, Tool] = {}
        self._defaults: dict[str, dict[str, Any]] = {}
        self._definitions: dict[str, str] = {}
        """The mark of the definition of each tool of a server."""
        self.add_tools(agent.tools)

    def add_tools(self, tools: Sequence[Tool], *, of_servers: bool = False) -> None:
        """Judge the calls of these tools, too; servers may define theirs anew at any time."""
        if of_servers:
            self._definitions |= {tool.name: _definition_mark(tool) for tool in tools}
        self._tools |= {tool.name: tool for tool in tools}
        self._defaults |= {tool.name: _defaults(tool.parameters) for tool in tools}

    def is_pending(self, call: ToolCall) -> bool:
        ask = self._record.questions.get(call.id)
        return ask is not None and ask.was_not_run

    async def wait_approved(self, call: ToolCall) -> ApprovedCall | None:
        """Wait until a call is approved, and return what exactly was; None is no matter which file.
        Raise `ToolError` if it was denied, or no person can be asked.
        """
        await trio.lowlevel.checkpoint()
        policies = self._policies
        if not policies:
            if (default := self._default_rule(call)) is None:
                return None
            policies = ((default,),)
        elif call.name in ESTIMATED and any(
            it.above_usd is not None for rules in policies for it in rules
        ):
            # Imported late: few rules are about costs.
            from orchestrator.kernel.engine.cost_rules import applied_cost_rules

            is_asked = call.id in self._record.questions
            estimate = None if is_asked else self._estimate
            policies = await applied_cost_rules(policies, call, self._agent, estimate)
        subject = self._subject_of(call)
        approved = ApprovedCall(subject=subject, policies=policies)
        rule = strictest_rule(policies, subject) or self._rule_of_job(call)
        if rule is None or rule.verdict is Verdict.ALLOW:
            return approved
        if rule.verdict is Verdict.DENY:
            why = f": {rule.reason}" if rule.reason else " by the rules of this run"
            raise _refusal(f"{call.name} was denied{why}. Do without it.")
        if call.id not in self._record.questions:
            question = self._question(call, subject)
            if self._is_approved(call.name, question.subject):
                return approved
            self._require_approver(call, rule)
            self._book.post(
                ApprovalAsked(
                    self._record.id,
                    ApprovalId(f"a_{secrets.token_hex(8)}"),
                    call.id,
                    call.name,
                    question.subject,
                    self._book.clock() + rule.seconds,
                    question.details,
                    self._reason(call, rule, question.subject),
                )
            )
        ask = await self._wait_answered(call)
        _require_approved(call, ask)
        # A link may lead elsewhere by now, which was not approved.
        subject = self._subject_of(call)
        if self._question(call, subject).subject != ask.subject:
            raise _refusal(
                f"{call.name} was approved for {ask.subject!r}, and is about something else by"
                " now. It was not run; call it again to have that approved."
            )
        return replace(approved, subject=subject)

    async def ask_person(
        self, call: CallId, tool: str, message: str, form: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Have a person fill in a form of a server; None if the answer is no.

        Without a person the answer is no at once. The question is about no call that could run, so
        no answer to it approves a call.
        """
        # Imported late: only servers ask for forms.
        from orchestrator.agents.tools.mcp.forms import filled_form, needs_words

        await trio.lowlevel.checkpoint()
        if not self._book.ledger.can_ask_approval(self._record.id):
            return None
        id_ = f"{call}{FORM_MARK}{secrets.token_hex(4)}"
        question = ToolCall(f"{tool} asks", {}, id=CallId(id_))
        redact = self._book.redactor.redact
        shown = as_json(self._book.redactor.redact_tree(form))
        words = "answer with the form as JSON" if needs_words(form) else ""
        self._book.post(
            ApprovalAsked(
                self._record.id,
                ApprovalId(f"a_{secrets.token_hex(8)}"),
                question.id,
                question.name,
                redact(visible(message)),
                self._book.clock() + FORM_SECONDS,
                redact(visible_in_short(shown)),
                words,
            )
        )
        try:
            ask = await self._wait_answered(question)
        except BaseException:
            self.close_forms()
            raise
        is_no = ask.answer is ApprovalVerdict.DENY
        return None if is_no else filled_form(form, ask.reason)

    def close_forms(self) -> None:
        """Close the forms that no server waits for any more: their calls were broken off."""
        if self._book.closed or self._book.is_broken:
            return
        for ask in list(self._record.questions.values()):
            if ask.is_open and FORM_MARK in ask.call:
                self._book.post(
                    ApprovalAnswered(
                        self._record.id,
                        ask.id,
                        ApprovalVerdict.DENY,
                        "its call was broken off",
                        BY_DEADLINE,
                    )
                )

    def _default_rule(self, call: ToolCall) -> ApprovalRule | None:
        """Return what decides about a call of an agent that no rule is about."""
        tool = self._tools.get(call.name)
        if tool is None:
            return None
        use = tool.machine_use(call)
        return default_rule(call.name, use, is_wall=commands_are_walled())

    def _rule_of_job(self, call: ToolCall) -> ApprovalRule | None:
        """Return the rule for a job that comes again, which no rule of the agent is about."""
        tool = self._tools.get(call.name)
        is_job = tool is not None and callable(tool.machine) and tool.machine(call) == "job"
        return default_rule(call.name, "job", is_wall=False) if is_job else None

    def _subject_of(self, call: ToolCall) -> Subject:
        arguments = {**self._defaults.get(call.name, {}), **call.arguments}
        return subject_of(replace(call, arguments=arguments), self._workspace())

    def _question(self, call: ToolCall, subject: Subject) -> _Question:
        redactor = self._book.redactor
        words = redactor.redact(self._subject_text(call, subject, redactor))
        # The source of a script is its subject.
        shown = {name: it for name, it in call.arguments.items() if not _is_source(call, name)}
        details = shown_arguments(redactor.redact_tree(shown))
        # A text that is cut may look like a secret only now.
        return _Question(redactor.redact(words), redactor.redact(details))

    def _subject_text(self, call: ToolCall, subject: Subject, redactor: Redactor) -> str:
        arguments = call.arguments.keys()
        if subject.command is not None:
            command = _shown_command(call, subject.command, redactor)
            if arguments <= COMMAND_ARGUMENTS:
                workdir = str(call.arguments.get("workdir", "."))
                folder, _ = relative_and_real(workdir, self._workspace())
                return _in_folder(visible(folder), command)
        if subject.path is not None and arguments <= FILE_ARGUMENTS:
            return visible(subject.path) + _content_mark(call, redactor)
        if _is_source(call, "code"):
            return visible_in_short(redactor.redact(call.arguments["code"]), SCRIPT_CHARACTERS)
        shown = visible_in_short(as_json(redactor.redact_tree(call.arguments)))
        return shown + self._definitions.get(call.name, "")

    def _reason(self, call: ToolCall, rule: ApprovalRule, subject: str) -> str:
        """Return why a call is asked about: the definition of its tool may have changed."""
        mark = self._definitions.get(call.name, "")
        before = subject.removesuffix(mark) + DEFINITION
        approved = self._book.ledger.sessions[self._record.session].approved
        if mark and any(it == call.name and was.startswith(before) for it, was in approved):
            return "; ".join(filter(None, (rule.reason, CHANGED)))
        return rule.reason

    def _require_approver(self, call: ToolCall, rule: ApprovalRule) -> None:
        if not self._book.ledger.can_ask_approval(self._record.id):
            remedy = f" {rule.reason[0].upper()}{rule.reason[1:]}: {REMEDY}" if rule.reason else ""
            raise _refusal(
                f"{call.name} needs an approval, and no person can be asked here: it was not run."
                f" Do without it, and say in your answer what you were not allowed to do.{remedy}"
            )

    def _is_approved(self, tool: str, subject: str) -> bool:
        """Return whether the same was approved before, for the session or for a task above."""
        if (tool, subject) in self._book.ledger.sessions[self._record.session].approved:
            return True
        record: TaskRecord | None = self._record
        while record is not None:
            if (tool, subject) in record.approved:
                return True
            record = record.parent
        return False

    async def _wait_answered(self, call: ToolCall) -> ApprovalQuestion:
        """Wait until the question is answered, or its time is over."""
        book, record = self._book, self._record
        # People have to find the question, also after a crash.
        await book.wait_durable()
        deadline = record.questions[call.id].deadline
        with trio.move_on_after(max(0, deadline - book.clock())):
            await trio.lowlevel.checkpoint()
            while _current_ask(record, call).is_open:
                await book.wakeups.wait_tasks_changed([record.id])
        ask = _current_ask(record, call)
        if ask.is_open:
            seconds = ask.deadline - ask.asked_at
            reason = f"it was not answered within {round(seconds, 1):g} seconds"
            book.post(
                ApprovalAnswered(record.id, ask.id, ApprovalVerdict.DENY, reason, BY_DEADLINE)
            )
        # No call runs on an approval that a crash could still undo.
        await book.wait_durable()
        return _current_ask(record, call)


def _current_ask(record: TaskRecord, call: ToolCall) -> ApprovalQuestion:
    if call.id not in record.questions:
        raise _refusal(f"{call.name} was not run: its task has ended")
    return record.questions[call.id]


def _refusal(sentence: str) -> ToolError:
    """Return the error that the model reads in place of an answer."""
    return ToolError(sentence, refused_by=RefusedBy.APPROVAL)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the arguments that a call leaves out."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: it["default"] for name, it in properties.items() if "default" in it}


def _is_source(call: ToolCall, argument: str) -> bool:
    """Return whether an argument is the source of a script, which a person reads unescaped."""
    if argument != "code" or call.name != RUN_SCRIPT:
        return False
    return isinstance(call.arguments.get(argument), str)


def _in_folder(folder: str, command: str) -> str:
    """Return a command with the folder it runs in, as one line of shell.

    No other command can be written that reads the same.
    """
    return command if folder == "." else f"cd {shlex.quote(folder)} && ({command})"


def _shown_command(call: ToolCall, command: str, redactor: Redactor) -> str:
    """Return all of a command as people are shown it, or raise `ToolError` if it cannot be."""
    is_long = len(command) > LONGEST_COMMAND
    redacted = "" if is_long else redactor.redact(command)
    shown = visible(redacted)
    if is_long or len(shown) > SHOWN:
        raise _refusal(
            f"{call.name} needs an approval, and people are shown {SHOWN:,} characters of a"
            f" command: this one has {len(command):,}. It was not run. Write the long part to a"
            " file first, and call it again with the file."
        )
    if OPERATORS.findall(command) != OPERATORS.findall(redacted):
        raise _refusal(
            f"{call.name} needs an approval, and people cannot see all of it: a part looks like a"
            " secret, and does more than that. It was not run. Have the secret in a variable of"
            " the environment or in a file, and call it again."
        )
    return shown


def _content_mark(call: ToolCall, redactor: Redactor) -> str:
    """Return what tells a change of a file from every other change of the same file."""
    content = {name: value for name, value in call.arguments.items() if name in CONTENT_ARGUMENTS}
    if not content:
        return ""
    text = as_json(content)
    if as_json(redactor.redact_tree(content)) != text:
        # A digest would tell a short secret, and people do not see which one it is.
        return f" (content with secrets, for the call {call.id} only)"
    return f" (content: sha256 {digest_of(text)})"


def _definition_mark(tool: Tool) -> str:
    """Return what tells a definition of a tool from every other one."""
    definition = as_json({"description": tool.description, "parameters": tool.parameters})
    return f"{DEFINITION}{digest_of(definition)})"


def _require_approved(call: ToolCall, ask: ApprovalQuestion) -> None:
    if ask.answer is ApprovalVerdict.DENY:
        by = f" by {ask.by}" if ask.by else ""
        why = f": {ask.reason}" if ask.reason else ""
        raise _refusal(f"{call.name} was denied{by}{why}. It was not run.")
