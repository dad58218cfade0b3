"""From a session to the body of its chat completion."""

import msgspec

from delegation import SessionRecord
from orchestrator.server.openai.chat.bodies import (
    ChatCompletion,
    Choice,
    Function,
    FunctionCall,
    Message,
    chat_usage,
)
from orchestrator.server.session_status import client_calls, is_shown


def completion(session: SessionRecord) -> ChatCompletion:
    """Return the answer of a session that has succeeded."""
    outcome = session.last_outcome
    assert outcome is not None, "the session is over"
    calls = calls_of(session)
    text = outcome.output
    if calls and not is_shown(session, text):
        text = ""
    message = Message(
        content=text or (None if calls else ""),
        tool_calls=calls or msgspec.UNSET,
    )
    return ChatCompletion(
        id=completion_id(session),
        created=created(session),
        model=session.root.agent,
        choices=[
            Choice(message=message, finish_reason="tool_calls" if calls else "stop")
        ],
        usage=chat_usage(session.tree.total),
        run_id=session.id,
    )


def calls_of(session: SessionRecord) -> list[FunctionCall]:
    """Return the calls that the client is to run."""
    return [
        FunctionCall(
            id=call.id,
            function=Function(call.name, msgspec.json.encode(call.arguments).decode()),
        )
        for call in client_calls(session)
    ]


def completion_id(session: SessionRecord) -> str:
    return f"chatcmpl-{session.id.removeprefix('r_')}"


def created(session: SessionRecord) -> int:
    return int(session.tree[session.root.id]["requested"])
