"""Calls of agents over MCP: one that can poll gets a task, any other waits for its answer.

Whether a client can poll is read from the very request, never from an earlier one: a promise is
only made to a session that can be reached later. A task is answered when it is durable.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeAlias

import attrs
import trio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from orchestrator.agents import UserMessage, raising_one_error, well_formed
from orchestrator.delegation import Outcome, SessionId, SessionRecord, TaskId
from orchestrator.delegation.events import TaskRequested, TaskSettled
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.reads import FactQueue, ReadApi
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.mcp.server.caller import Caller, RefusedError
from orchestrator.products.mcp.server.results import (
    Json,
    as_object,
    error_of,
    failure,
    form,
    is_fault,
    result_of,
    task_of,
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
    """This request declares that its user can be asked to fill in a form."""
    answers: Mapping[str, Any]
    """The forms that its user has filled in."""
    report: Report | None
    """Sends progress, if the client wants to have it."""


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
    given = dict(request.arguments)
    if asked := tool.arguments.missing(given):
        answer = as_object(request.answers.get(ARGUMENTS))
        if answer and answer.get("action") != "accept":
            return failure(f"it was not called: its user gave no {', '.join(asked)}")
        content = as_object(answer.get("content"))
        given |= {name: content[name] for name in asked if name in content}
        if request.can_ask and (form_ := _form_for(tool, tool.arguments.missing(given))):
            return {"resultType": "input_required", "inputRequests": {ARGUMENTS: form_}}
    if problems := tool.arguments.problems(given):
        listed = "\n".join(f"- {it}" for it in problems)
        return failure(f"the arguments of {tool.name} do not fit:\n{listed}")
    is_task = request.can_poll and tool.mode is not TaskMode.FORBIDDEN
    inbound = InboundRequest(
        agent=tool.agent,
        message=UserMessage(well_formed(tool.arguments.goal(given))),
        context=caller.context,
        owner=caller.owner,
        kind=SessionKind.MCP_TASK if is_task else SessionKind.MCP_CALL,
        states=(McpCallState(tool=tool.name), *caller.states),
    )
    try:
        await caller.take_request(inbound)
        if is_task:
            return await _begin_task(caller, inbound)
        return await _join(caller, inbound, tool, request.report)
    except RefusedError as exc:
        return failure(str(exc))


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
    caller: Caller, inbound: InboundRequest, tool: AgentTool, report: Report | None
) -> Json:
    """Run a call within its request: if the client hangs up, its tree is cancelled."""
    home = caller.home
    with caller.begin_run():
        session = home.door.open_one_turn(inbound, caller.new_run_id())
        caller.record(session.id)
    # No checkpoint before its turn is taken: one that is never taken would never end.
    outcome = await _take_turn(caller, session, report)
    await caller.wait_durable()
    if is_fault(outcome):
        error = error_of(outcome)
        raise MCPError(error["code"], error["message"])
    return result_of(outcome, tool, session.id)


async def _take_turn(caller: Caller, session: SessionRecord, report: Report | None) -> Outcome:
    home = caller.home
    if report is None:
        return await home.door.run_turn(session)
    with open_progress(home.orchestrator.read, session.id, report) as progress, raising_one_error():
        # Owns nothing but the reports: the turn runs in this task.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(progress.report_all)
            outcome = await home.door.run_turn(session)
            progress.end()
    return outcome


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
