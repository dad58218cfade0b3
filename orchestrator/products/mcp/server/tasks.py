"""Tasks of MCP: look at one, answer its questions, cancel it.

A task is a run whose client polls. What another caller has is looked up as what does not exist.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from orchestrator.delegation import SessionRecord
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import is_over
from orchestrator.products.mcp.server import results
from orchestrator.products.mcp.server.caller import Caller, HeldRun
from orchestrator.products.mcp.server.calls import McpCallState
from orchestrator.products.mcp.server.questions import answer_questions
from orchestrator.products.mcp.server.tools import AgentTool


async def get_task(tools: Mapping[str, AgentTool], caller: Caller, task: str) -> results.Json:
    """Return the state of a task, once that is durable."""
    found = await caller.read_run(task)
    _require_task(found.session, task)
    tool = tools.get(found.session.state(McpCallState).tool)
    shown = results.detailed_task_of(found.session, _questions_of(found), tool)
    await caller.wait_durable()
    return shown


async def update_task(caller: Caller, task: str, answers: Mapping[str, Any]) -> results.Json:
    """Answer questions of a task. An answer without an open question is ignored."""
    await answer_questions(caller, await _hold_task(caller, task), answers)
    return {}


async def cancel_task(caller: Caller, task: str) -> results.Json:
    """Cancel a task, and return when all its descendants have ended."""
    held = await _hold_task(caller, task)
    if not is_over(held.session):
        caller.record(held.session.id)
        await held.journal.door.close(held.session)
    await trio.lowlevel.checkpoint()
    return {}


async def _hold_task(caller: Caller, task: str) -> HeldRun:
    held = await caller.hold_run(task)
    _require_task(held.session, task)
    return held


def _require_task(session: SessionRecord, task: str) -> None:
    if session.kind is not SessionKind.MCP_TASK:
        raise unknown_task(task)


def unknown_task(task: str) -> UnknownIdError:
    return UnknownIdError(
        f"there is no task {task!r}: it never was, or was deleted, or has expired"
    )


def _questions_of(found: FoundSession) -> Sequence[ApprovalQuestion]:
    """Return the calls of a run that wait for an approval, oldest first."""
    records = found.records
    return [
        it
        for it in records.open_questions.values()
        if records.tasks[it.task].session == found.session.id
    ]
