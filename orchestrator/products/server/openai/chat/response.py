"""Makes the body of a chat completion from its sessions."""

from collections.abc import Sequence

import msgspec

from orchestrator.agents import ToolCall
from orchestrator.agents.logprobs import TokenLogprob
from orchestrator.delegation import SessionRecord
from orchestrator.products.server import session_status
from orchestrator.products.server.openai.chat import bodies
from orchestrator.products.server.openai.choices import total_usage
from orchestrator.products.server.openai.client_tools import (
    custom_input,
    custom_tools_of,
    has_functions,
)
from orchestrator.products.server.openai.logprobs import chat_logprobs
from orchestrator.products.server.openai.public_ids import COMPLETION


def completion(sessions: Sequence[SessionRecord]) -> bodies.ChatCompletion:
    """Return the answers of sessions that have one, complete or cut."""
    first = sessions[0]
    return bodies.ChatCompletion(
        id=COMPLETION.of(first),
        created=created(first),
        model=first.root.agent,
        choices=[_choice(it, number) for number, it in enumerate(sessions)],
        usage=bodies.chat_usage(total_usage(sessions)),
        run_id=first.id,
    )


def _choice(session: SessionRecord, number: int) -> bodies.Choice:
    outcome = session.last_outcome
    assert outcome is not None, "the session is over"
    text, refusal = outcome.output, None
    if not outcome.succeeded:
        text, refusal = session_status.cut_text(session), session_status.refusal_of(session)
    calls = calls_of(session)
    is_older = bool(calls) and has_functions(session)
    if calls and not session_status.is_shown(session, text):
        text = ""
    message = bodies.Message(
        content=text or (None if calls or refusal else ""),
        refusal=refusal,
        tool_calls=msgspec.UNSET if not calls or is_older else calls,
        function_call=function_of(calls) if is_older else msgspec.UNSET,
        reasoning_content=_reasoning_of(session) or msgspec.UNSET,
    )
    return bodies.Choice(
        message=message,
        finish_reason=_finish(session, calls),
        index=number,
        logprobs=chat_logprobs(_logprobs_of(session, text)),
    )


def _logprobs_of(session: SessionRecord, text: str) -> Sequence[TokenLogprob]:
    """Return the log probabilities of an answer's tokens, if its client asks for them."""
    if not session_status.wants_logprobs(session):
        return ()
    said = session_status.agent_messages(session)
    # A typed answer may be encoded again, with other tokens.
    return said[-1].logprobs if said and said[-1].text == text else ()


def _reasoning_of(session: SessionRecord) -> str:
    if not session.terms.keeps_reasoning:
        return ""
    messages = session_status.agent_messages(session)
    return "\n\n".join(it.text for it in messages if it.is_reasoning)


def finish_of(session: SessionRecord) -> bodies.Finish:
    """Return the reason why an answer ends."""
    return _finish(session, session_status.client_calls(session))


def _finish(session: SessionRecord, calls: Sequence[object]) -> bodies.Finish:
    if (reason := session_status.cut_reason(session)) is not None:
        return reason
    if not calls:
        return "stop"
    return "function_call" if has_functions(session) else "tool_calls"


def calls_of(session: SessionRecord) -> list[bodies.Call]:
    """Return the calls that the client has to run."""
    calls = session_status.client_calls(session)
    if not calls:
        return []
    custom = custom_tools_of(session)
    return [
        bodies.CustomCall(id=it.id, custom=bodies.CustomInput(it.name, custom_input(it)))
        if it.name in custom
        else function_call(it)
        for it in calls
    ]


def function_call(call: ToolCall) -> bodies.FunctionCall:
    arguments = msgspec.json.encode(call.arguments).decode()
    return bodies.FunctionCall(id=call.id, function=bodies.Function(call.name, arguments))


def function_of(calls: Sequence[bodies.Call]) -> bodies.Function:
    """Return the first call in the older form, which allows only one."""
    first = calls[0]
    assert isinstance(first, bodies.FunctionCall), "there are functions only"
    return first.function


def created(session: SessionRecord) -> int:
    return int(session.tree[session.root.id].requested)
