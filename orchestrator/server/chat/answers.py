"""What a client of chat completions is told: the answer of a session, or why there is none."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from delegation import Ending, Outcome, SessionRecord
from orchestrator.server.chat.wire import (
    ChatCompletion,
    Choice,
    Function,
    FunctionCall,
    Message,
    used,
)
from orchestrator.server.errors import HttpError
from orchestrator.server.reading import failing, handed_back

RUN: Final = "x-run-id"
"""The header that says where the tree of an answer is."""
_TYPES: Final[Mapping[str, str]] = {
    "rate_limit": "rate_limit_error",
    "quota": "insufficient_quota",
    "context": "invalid_request_error",
}
_NOTHING: Final = Outcome(Ending.CANCELLED, error="it was stopped")


def completion(session: SessionRecord) -> ChatCompletion:
    """Return the answer of a session that has succeeded."""
    said = session.last_outcome
    assert said is not None, "nobody answers before the end"
    calls = calls_of(session)
    message = Message(
        content=said.output or (None if calls else ""),
        tool_calls=calls or msgspec.UNSET,
    )
    return ChatCompletion(
        id=completion_id(session),
        created=created(session),
        model=session.root.agent,
        choices=[
            Choice(message=message, finish_reason="tool_calls" if calls else "stop")
        ],
        usage=used(session.tree.total),
        run_id=session.id,
    )


def failed(session: SessionRecord) -> HttpError | None:
    """Return why a session that is over has no answer; None if it has one."""
    why = failing(session.last_outcome or _NOTHING)
    if why is None:
        return None
    headers = {
        # Whoever asks again runs all of it again, which they have to want.
        "x-should-retry": "false",
        **run_header(session),
    }
    if why.retry_after is not None:
        headers["retry-after"] = str(math.ceil(why.retry_after))
    return HttpError(
        why.status,
        why.message,
        code=why.code,
        type=_TYPES.get(why.code, "server_error"),
        headers=headers,
    )


def calls_of(session: SessionRecord) -> list[FunctionCall]:
    """Return what the client is to run."""
    return [
        FunctionCall(
            id=call.id,
            function=Function(call.name, msgspec.json.encode(call.arguments).decode()),
        )
        for call in handed_back(session)
    ]


def completion_id(session: SessionRecord) -> str:
    return f"chatcmpl-{session.id.removeprefix('r_')}"


def created(session: SessionRecord) -> int:
    return int(session.tree[session.root.id]["requested"])


def run_header(session: SessionRecord) -> dict[str, str]:
    return {RUN: session.id}
