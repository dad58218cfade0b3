"""Makes the body of a message from its session."""

from orchestrator.delegation import SessionRecord
from orchestrator.products.server import session_status
from orchestrator.products.server.anthropic import bodies
from orchestrator.products.server.openai.client_content import TextPart
from orchestrator.products.server.openai.public_ids import MESSAGE


def message_of(session: SessionRecord) -> bodies.AnswerMessage:
    """Return the answer of a session that has one, complete or cut."""
    content: list[bodies.AnswerBlock] = [
        bodies.ThinkingBlock(thinking=it.text, signature=session.id)
        if it.is_reasoning
        else TextPart(it.text)
        for it in session_status.agent_messages(session)
    ]
    content += end_of(session)
    return bodies.AnswerMessage(
        id=MESSAGE.of(session),
        model=session.root.agent,
        content=content,
        stop_reason=stop_reason_of(session),
        usage=bodies.message_usage(session.tree.total),
    )


def end_of(session: SessionRecord) -> list[TextPart | bodies.ToolUseBlock]:
    """Return the blocks after the agent's texts: its refusal, and the calls for the client."""
    refusal = session_status.refusal_of(session)
    calls = session_status.client_calls(session)
    return [
        *([TextPart(refusal)] if refusal else []),
        *(bodies.ToolUseBlock(id=it.id, name=it.name, input={**it.arguments}) for it in calls),
    ]


def stop_reason_of(session: SessionRecord) -> bodies.StopReason:
    """Return the reason why an answer ends."""
    if (reason := session_status.cut_reason(session)) is not None:
        return "max_tokens" if reason == "length" else "refusal"
    if session_status.refusal_of(session) is not None:
        return "refusal"
    return "tool_use" if session_status.client_calls(session) else "end_turn"
