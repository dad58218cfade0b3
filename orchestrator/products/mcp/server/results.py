"""Runs in the words of MCP: the result of a call, and the state of a task.

A fault of the program and a lost task are errors of the protocol; any other ending is a result that
the client's model reads. That is decided by the cause of the outcome.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
from mcp_types import INTERNAL_ERROR

from orchestrator.delegation import Cause, Ending, Outcome, SessionRecord
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports.execution import PROCESS_DIED
from orchestrator.ports.sessions import is_over
from orchestrator.products.mcp.server.tools import AgentTool

Json: TypeAlias = dict[str, Any]
FAULTS: Final = frozenset({Cause.ERROR, Cause.PROCESS_DIED, Cause.WORKER_LOST})
"""The causes that are no fault of the call: it could not be carried out."""
POLL_MS: Final = 1_000
"""How long a client is told to wait between two looks at a task."""
RUN: Final = "orchestrator/run"
"""The key of a run's id in the metadata of a result."""
CONFIRM: Final = "confirm"
"""The field of the form that approves a call of a tool."""
REASON: Final = "reason"


def as_object(value: object) -> Mapping[str, Any]:
    """Return a value of a client if it is an object; an empty one if it is not."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def is_fault(outcome: Outcome) -> bool:
    """Return whether an outcome is an error of the protocol, and no result."""
    return outcome.cause in FAULTS


def error_of(outcome: Outcome) -> Json:
    """Return a fault as an error of JSON-RPC."""
    return {"code": INTERNAL_ERROR, "message": f"{outcome.ending}: {outcome.error}"}


def result_of(outcome: Outcome, tool: AgentTool | None, run: str) -> Json:
    """Return the result of a call; `tool` is None if it is not offered any more."""
    if not outcome.succeeded:
        texts = [f"{outcome.ending}: {outcome.error}"]
        if outcome.output:
            texts.append(f"Until then it had said: {outcome.output}")
        return failure(*texts, run=run)
    result: Json = {
        "content": [text_content(outcome.output)],
        "isError": False,
        "_meta": {RUN: run},
    }
    if tool is not None and tool.output_schema is not None:
        result["structuredContent"] = msgspec.json.decode(outcome.output)
    return result


def failure(*texts: str, run: str | None = None) -> Json:
    """Return the result of a call that came to nothing, for the client's model to read."""
    result: Json = {"content": [text_content(it) for it in texts], "isError": True}
    if run is not None:
        result["_meta"] = {RUN: run}
    return result


def text_content(text: str) -> Json:
    """Return a text as a piece of a result."""
    return {"type": "text", "text": text}


def task_of(session: SessionRecord, questions: Sequence[ApprovalQuestion]) -> Json:
    """Return the state of a task, without what belongs to its status."""
    node = session.tree[session.root.id]
    status, message = _status_of(session, questions)
    updated: float = node.started or node.requested
    if status == "input_required":
        updated = max(it.asked_at for it in questions)
    elif status != "working":
        updated = node.ended or updated
    task: Json = {
        "taskId": session.id,
        "status": status,
        "createdAt": _time(node.requested),
        "lastUpdatedAt": _time(updated),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    return {**task, "statusMessage": message} if message else task


def detailed_task_of(
    session: SessionRecord, questions: Sequence[ApprovalQuestion], tool: AgentTool | None
) -> Json:
    """Return the state of a task with its result, its error or its questions."""
    task = task_of(session, questions)
    match task["status"]:
        case "input_required":
            task["inputRequests"] = forms_of(questions)
        case "completed":
            task["result"] = result_of(outcome_of(session), tool, session.id)
        case "failed":
            task["error"] = error_of(outcome_of(session))
        case _:
            pass
    return task


def outcome_of(session: SessionRecord) -> Outcome:
    """Return how a run that is over has ended; for clients, an interrupted one is lost."""
    outcome = session.last_outcome
    return PROCESS_DIED if session.awaits_resume or outcome is None else outcome


def _status_of(session: SessionRecord, questions: Sequence[ApprovalQuestion]) -> tuple[str, str]:
    """Return the status of a task, and a sentence about it."""
    if not is_over(session):
        if questions:
            asked = ", ".join(f"{it.path} wants to use {it.tool}" for it in questions)
            return "input_required", asked
        counted = session.tree.counts()
        return "working", ", ".join(f"{it}: {n}" for it, n in counted.items())
    outcome = outcome_of(session)
    # Only what is not over is closed: an earlier turn of it may have succeeded.
    if session.closed or outcome.ending is Ending.CANCELLED:
        return "cancelled", ""
    if is_fault(outcome):
        return "failed", outcome.error
    return "completed", "" if outcome.succeeded else outcome.error


def forms_of(questions: Iterable[ApprovalQuestion]) -> Json:
    """Return the forms for questions, by their ids."""
    return {it.id: form_of(it) for it in questions}


def form_of(question: ApprovalQuestion) -> Json:
    """Return the question about a call of a tool as a form for the client's user."""
    lines = [f"{question.path} wants to use {question.tool}: {question.subject}"]
    lines += filter(None, [question.why, question.details])
    properties = {
        CONFIRM: {"type": "boolean", "title": "Allow it, this once"},
        REASON: {"type": "string", "title": "Why, for the agent to read"},
    }
    return form("\n".join(lines), properties, required=[CONFIRM])


def form(message: str, properties: Json, *, required: Sequence[str]) -> Json:
    """Return a request to fill in a form."""
    schema = {"type": "object", "properties": properties, "required": [*required]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _time(seconds: float) -> str:
    at = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
