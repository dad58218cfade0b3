"""From a session to the body of its chat completion."""

import msgspec

from delegation import SessionRecord
from orchestrator.server.openai.chat.bodies import (
    ChatCompletion,
    Choice,
    Finish,
    Function,
    FunctionCall,
    Message,
    chat_usage,
)
from orchestrator.server.session_status import (
    client_calls,
    cut_reason,
    cut_text,
    is_shown,
    refusal_of,
)


def completion(session: SessionRecord) -> ChatCompletion:
    """Return the answer of a session that has one, also if that ends too soon."""
    outcome = session.last_outcome
    assert outcome is not None, "the session is over"
    calls, refusal = calls_of(session), refusal_of(session)
    text = outcome.output if outcome.succeeded else cut_text(session)
    if calls and not is_shown(session, text):
        text = ""
    message = Message(
        content=text or (None if calls or refusal else ""),
        refusal=refusal,
        tool_calls=calls or msgspec.UNSET,
    )
    return ChatCompletion(
        id=completion_id(session),
        created=created(session),
        model=session.root.agent,
        choices=[Choice(message=message, finish_reason=finish_of(session))],
        usage=chat_usage(session.tree.total),
        run_id=session.id,
    )


def finish_of(session: SessionRecord) -> Finish:
    """Return why an answer ends."""
    return cut_reason(session) or ("tool_calls" if client_calls(session) else "stop")


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
