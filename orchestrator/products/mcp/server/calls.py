"""Calls of agents over MCP: one that can poll gets a task, any other waits for its answer.

Whether a client can poll is read from the very request, never from an earlier one: a promise is
only made to a session that can be reached later. A task is answered when it is durable.

A run that needs approvals asks the user of its client, if the client declares that it can show
forms. A client of 2025-11-25 shows them while it waits. A later client gets them as the result, and
sends its call again with the answers: until then the run waits, at most as long as its questions.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import attrs
import trio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from orchestrator.agents import RefusedBy, ToolMessage, UserMessage, raising_one_error, well_formed
from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import TaskRequested, TaskSettled
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.reads import FactQueue, ReadApi
from orchestrator.ports.sessions import InboundRequest, is_over
from orchestrator.products.mcp.server.caller import Ask, Caller, HeldRun, RefusedError
from orchestrator.products.mcp.server.questions import answer_questions, ask_user
from orchestrator.products.mcp.server.results import (
    Json,
    as_object,
    error_of,
    failure,
    form,
    forms_of,
    is_fault,
    outcome_of,
    result_of,
    task_of,
    text_content,
)
from orchestrator.products.mcp.server.tools import AgentTool, TaskMode

Report: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Sends a number, which grows, and a line of text to the client."""
LONGEST_GOAL: Final = 200


class CallProgress:
    """Reports the delegations of one run to the client that waits for it."""

    def __init__(self, read: ReadApi, facts: FactQueue, report: Report) -> None:
        self._read = read
        self._facts = facts
        self._report = report
        self._idle = trio.CancelScope()
        self._has_ended = False
        self._count = 0

    def end(self) -> None:
        """Note that the run has ended: its facts so far are the rest."""
        self._has_ended = True
        self._idle.cancel(reason="the run has ended")

    async def report_all(self) -> None:
        """Report what becomes durable, until the run has ended and all is told."""
        while not self._has_ended:
            with self._idle:
                await self._facts.wait()
            # Not cancelled by the end: what is told in the middle of it would be told twice.
            self._idle = trio.CancelScope()
            await self._report_posted()
        await self._report_posted()

    async def _report_posted(self) -> None:
        until = self._read.last_seq
        await self._read.wait_durable()
        for entry, _ in self._facts.take(until=until):
            match entry.event:
                case TaskRequested(request):
                    goal = " ".join(request.goal.split())[:LONGEST_GOAL]
                    await self._tell(request.id, f"begins: {goal}")
                case TaskSettled(task, outcome):
                    await self._tell(task, str(outcome.ending))
                case _:
                    pass

    async def _tell(self, task: TaskId, text: str) -> None:
        self._count += 1
        record = self._read.records.tasks[task]
        await self._report(self._count, f"{record.path} {text}")


@contextmanager
def open_progress(read: ReadApi, session: SessionId, report: Report) -> Generator[CallProgress]:
    """Report the delegations of a run, as long as the block lasts."""
    with read.queue(session=session) as facts:
        yield CallProgress(read, facts, report)


TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension of clients that poll for the answer of a call."""
CALLS: Final = frozenset({SessionKind.MCP_CALL, SessionKind.MCP_TASK})
"""The kinds of runs that calls of tools begin."""
HOW_TO_APPROVE: Final = (
    "A tool was not run, because it needs the approval of a person. To be asked, call this with a"
    f" client that declares elicitation or the extension {TASKS}, and with a key that may approve."
)
ARGUMENTS: Final = "arguments"
"""The key of the form that asks for missing arguments."""
_ASKED: Final = frozenset({"string", "number", "integer", "boolean"})
_KEYWORDS: Final = frozenset(
    [
        *("type", "title", "description", "default", "enum", "format"),
        *("minLength", "maxLength", "minimum", "maximum"),
    ]
)
"""The keys of a form's field."""


class McpCallState(SessionState, frozen=True):
    """The call that a run answers."""

    NAME: ClassVar[str] = "mcp_call"
    tool: str = ""
    """The name of the tool that was called."""


@attrs.frozen(kw_only=True)
class ToolCallRequest:
    """One call of a tool, and what its client can do."""

    name: str
    arguments: Mapping[str, Any]
    can_poll: bool
    """This request declares the extension of tasks."""
    can_ask: bool
    """This request declares that its user can be asked to fill in a form, as its result."""
    ask: Ask | None
    """Asks its user to fill in a form, while the client waits."""
    answers: Mapping[str, Any]
    """The forms that its user has filled in."""
    run: str | None
    """The run that has asked for them."""
    report: Report | None
    """Sends progress, if the client wants to have it."""
    traceparent: str
    """The span of its client; "" if the client names none."""


def missing_capability() -> MCPError:
    """Return the error of a request that should have declared the extension of tasks."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"this needs a client that can poll: declare the extension {TASKS} in the request",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


async def call_tool(
    tools: Mapping[str, AgentTool], caller: Caller, request: ToolCallRequest
) -> Json:
    """Call an agent, and return its result, a task, or a form that is to be filled in."""
    await trio.lowlevel.checkpoint()
    tool = tools.get(request.name)
    if tool is None:
        raise MCPError(
            INVALID_PARAMS, f"there is no tool {request.name!r}; there are: {', '.join(tools)}"
        )
    if tool.mode is TaskMode.REQUIRED and not request.can_poll:
        raise missing_capability()
    if request.run is not None:
        return await _go_on(caller, request.run, tool, request)
    given, other_result = await _complete_arguments(tool, request)
    if other_result is not None:
        return other_result
    is_task = request.can_poll and tool.mode is not TaskMode.FORBIDDEN
    inbound = InboundRequest(
        agent=tool.agent,
        message=UserMessage(well_formed(tool.arguments.goal(given))),
        context=_context(caller, request),
        owner=caller.owner,
        kind=SessionKind.MCP_TASK if is_task else SessionKind.MCP_CALL,
        states=(McpCallState(tool=tool.name), *caller.states),
        attended=not is_task and await _can_approve(caller, request),
    )
    try:
        await caller.take_request(inbound)
        if is_task:
            return await _begin_task(caller, inbound)
        return await _join(caller, inbound, tool, request)
    except RefusedError as exc:
        return failure(str(exc))


def _context(caller: Caller, request: ToolCallRequest) -> Mapping[str, str]:
    """Return the origin of a call. The span in its message is nearer than the one of its header."""
    if not request.traceparent:
        return caller.context
    return {**caller.context, "traceparent": request.traceparent}


async def _complete_arguments(
    tool: AgentTool, request: ToolCallRequest
) -> tuple[Json, Json | None]:
    """Return all arguments of a call, or a result that asks for them or names a wrong one."""
    await trio.lowlevel.checkpoint()
    given = dict(request.arguments)
    if asked := tool.arguments.missing(given):
        answer = as_object(request.answers.get(ARGUMENTS))
        if request.ask is not None and (form_ := _form_for(tool, asked)):
            answer = await request.ask(form_)
        if answer and answer.get("action") != "accept":
            return given, failure(f"it was not called: its user gave no {', '.join(asked)}")
        content = as_object(answer.get("content"))
        given |= {name: content[name] for name in asked if name in content}
        if request.can_ask and (form_ := _form_for(tool, tool.arguments.missing(given))):
            forms = {ARGUMENTS: form_}
            return given, {"resultType": "input_required", "inputRequests": forms}
    if problems := tool.arguments.problems(given):
        listed = "\n".join(f"- {it}" for it in problems)
        return given, failure(f"the arguments of {tool.name} do not fit:\n{listed}")
    return given, None


async def _begin_task(caller: Caller, inbound: InboundRequest) -> Json:
    """Open a run that outlives the request, and answer when it is durable."""
    home = caller.home
    with caller.begin_run():
        session = home.door.open_background(inbound, caller.new_run_id())
        caller.record(session.id)
    created = task_of(session, ())
    await caller.wait_durable()
    return {"resultType": "task", **created}


async def _join(
    caller: Caller, inbound: InboundRequest, tool: AgentTool, request: ToolCallRequest
) -> Json:
    """Run a call within its request: if the client hangs up, its tree is cancelled."""
    home = caller.home
    with caller.begin_run():
        session = home.door.open_one_turn(inbound, caller.new_run_id())
        caller.record(session.id)
    # No checkpoint before its turn is taken: one that is never taken would never end.
    return await _wait_answer(caller, HeldRun(session, home), tool, request)


async def _go_on(caller: Caller, run: str, tool: AgentTool, request: ToolCallRequest) -> Json:
    """Answer the questions of a call, and go on waiting for it."""
    held = await caller.hold_run(run)
    session = held.session
    is_call = session.kind is SessionKind.MCP_CALL and session.attended
    if not is_call or session.state(McpCallState).tool != tool.name:
        raise UnknownIdError(f"there is no call {run!r} of {tool.name} that has asked its user")
    if not await _can_approve(caller, request):
        return failure("the answers come from a client or key that may not approve", run=run)
    return await _wait_answer(caller, held, tool, request)


async def _can_approve(caller: Caller, request: ToolCallRequest) -> bool:
    await trio.lowlevel.checkpoint()
    return (request.can_ask or request.ask is not None) and await caller.may_approve()


async def _wait_answer(
    caller: Caller, held: HeldRun, tool: AgentTool, request: ToolCallRequest
) -> Json:
    """Return the result of a run, or the questions of it that the client's user has to answer."""
    session, home = held.session, held.journal
    if session.attended and request.ask is None:
        answer = partial(answer_questions, caller, held, request.answers)
        take = partial(home.door.share_turn_until_asked, session, answer)
        await _beside_turn(caller, held, request, take)
        if not is_over(session) and (
            questions := home.orchestrator.read.open_questions(session.id)
        ):
            await caller.wait_durable()
            asked = {"inputRequests": forms_of(questions), "requestState": session.id}
            return {"resultType": "input_required", **asked}
    else:
        await _beside_turn(caller, held, request, partial(home.door.run_turn, session))
    await caller.wait_durable()
    outcome = outcome_of(session)
    if is_fault(outcome):
        error = error_of(outcome)
        raise MCPError(error["code"], error["message"])
    result = result_of(outcome, tool, session.id)
    if not session.attended and _lacked_approval(held):
        result["content"].append(text_content(HOW_TO_APPROVE))
    return result


def _lacked_approval(held: HeldRun) -> bool:
    """Return whether a call of a tool was refused in a run."""
    tasks = held.journal.orchestrator.read.records.tasks
    return any(
        isinstance(message, ToolMessage) and message.refused_by is RefusedBy.APPROVAL
        for id_ in held.session.tree
        for message in tasks[TaskId(id_)].transcript
    )


async def _beside_turn(
    caller: Caller, held: HeldRun, request: ToolCallRequest, take: Callable[[], Awaitable[object]]
) -> None:
    """Take a turn; meanwhile report its progress, and ask the user of the client."""
    if request.report is None and request.ask is None:
        await take()
        return
    with ExitStack() as opened, raising_one_error():
        # Owns nothing but the reports and forms: the turn runs in this task.
        async with trio.open_nursery() as nursery:
            asking = trio.CancelScope()
            progress: CallProgress | None = None
            if request.report is not None:
                read = held.journal.orchestrator.read
                shown = open_progress(read, held.session.id, request.report)
                progress = opened.enter_context(shown)
                nursery.start_soon(progress.report_all)
            if request.ask is not None and held.session.attended:
                nursery.start_soon(ask_user, caller, held, request.ask, asking)
            await take()
            asking.cancel(reason="the run has ended")
            if progress is not None:
                progress.end()


def _form_for(tool: AgentTool, missing: list[str]) -> Json | None:
    """Return a form that asks for missing arguments; None if a form cannot have all of them."""
    schemas: Mapping[str, Any] = tool.arguments.schema["properties"]
    fields = {
        name: {it: of for it, of in schemas[name].items() if it in _KEYWORDS}
        for name in missing
        if schemas[name].get("type") in _ASKED
    }
    if not missing or len(fields) < len(missing):
        return None
    message = f"{tool.name} needs {', '.join(missing)}. {tool.description}"
    return form(message, fields, required=missing)
