"""From a session to the body of its chat completion."""

from collections.abc import Sequence

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
from orchestrator.server.openai.choices import total_usage
from orchestrator.server.session_status import (
    client_calls,
    cut_reason,
    cut_text,
    is_shown,
    refusal_of,
)


def completion(sessions: Sequence[SessionRecord]) -> ChatCompletion:
    """Return the answers of sessions that have one, also if that ends too soon."""
    first = sessions[0]
    return ChatCompletion(
        id=completion_id(first),
        created=created(first),
        model=first.root.agent,
        choices=[_choice(it, number) for number, it in enumerate(sessions)],
        usage=chat_usage(total_usage(sessions)),
        run_id=first.id,
    )


def _choice(session: SessionRecord, number: int) -> Choice:
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
    return Choice(message=message, finish_reason=finish_of(session), index=number)


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
