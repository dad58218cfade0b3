"""The history of a session for an editor: its messages again, and a list of all sessions."""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.agents import AssistantMessage, Message, ToolMessage, UserMessage
from orchestrator.delegation import TaskId
from orchestrator.ports.journals import SessionSummary
from orchestrator.products.acp import schema, tool_calls
from orchestrator.products.acp.connection import WRONG_PARAMS, RpcError
from orchestrator.products.acp.content import show_message

CWD: Final = "cwd"
"""The key of a session's metadata with the folder that an editor opened it in."""
PAGE: Final = 50


def replay(task: TaskId, messages: Sequence[Message], cwd: Path) -> Iterator[schema.Update]:
    """Return the messages of a session as updates, oldest first."""
    begun: dict[str, schema.CallBegun] = {}
    for message in messages:
        match message:
            case UserMessage(text=text, parts=parts):
                for block in show_message(text, parts):
                    yield schema.UserChunk(content=block, message_id=message.id)
            case AssistantMessage(text=text, calls=calls):
                for thought in filter(None, (it.text for it in message.reasoning)):
                    yield schema.ThoughtChunk(
                        content=schema.Text(text=thought), message_id=message.id
                    )
                if text:
                    yield schema.MessageChunk(content=schema.Text(text=text), message_id=message.id)
                for call in calls:
                    begun[call.id] = tool_calls.show_call(task, call, cwd)
                    yield begun[call.id]
            case ToolMessage(call=id_, text=text, failed=failed):
                if id_ in begun:
                    yield tool_calls.show_result(begun.pop(id_), text, failed=failed)


def list_page(runs: Sequence[SessionSummary], request: schema.ListSessions) -> schema.SessionPage:
    """Return a page of the sessions that editors have opened, the newest first."""
    wanted = [
        it
        for it in sorted(runs, key=lambda it: it.changed, reverse=True)
        if CWD in it.metadata
        and not (it.closed or it.deleted)
        and request.cwd in {None, it.metadata[CWD]}
    ]
    try:
        begin = int(request.cursor or 0)
    except ValueError as exc:
        raise RpcError(WRONG_PARAMS, f"there is no page {request.cursor!r}") from exc
    end = max(begin, 0) + PAGE
    return schema.SessionPage(
        sessions=[_info(it) for it in wanted[max(begin, 0) : end]],
        next_cursor=str(end) if end < len(wanted) else None,
    )


def _info(run: SessionSummary) -> schema.SessionInfo:
    return schema.SessionInfo(
        session_id=run.id,
        cwd=run.metadata[CWD],
        title=run.about or None,
        updated_at=dt.datetime.fromtimestamp(run.changed, dt.UTC).isoformat(),
    )
