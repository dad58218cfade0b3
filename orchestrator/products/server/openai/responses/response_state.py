"""The options of a response's request, which are not part of its conversation."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from orchestrator.agents import MessageId
from orchestrator.delegation import SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import NO_ENTRIES, SessionState
from orchestrator.products.server.openai.answer_format import PlainText
from orchestrator.products.server.openai.responses import bodies

NO_TOOLS: Final[list[bodies.ResponseTool]] = []
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"


class ResponseState(SessionState, frozen=True):
    """The options of a response, and the ids that link it to its conversation."""

    NAME: ClassVar[str] = "response"
    is_stored: bool = True
    """Whether it can be retrieved later."""
    is_background: bool = False
    previous: str | None = None
    """The id of the response whose conversation it continues."""
    conversation: str | None = None
    """The id of the conversation that it adds to."""
    instructions: str | None = None
    system_instructions: str = ""
    """The system and developer messages of its conversation."""
    tools: list[bodies.ResponseTool] = NO_TOOLS
    tool_choice: str | dict[str, Any] = "auto"
    settings: Mapping[str, Any] = NO_ENTRIES
    """The model settings that the agent applies."""
    text: bodies.TextConfig | None = None
    """The format of the answer; None is plain text."""
    message: str | None = None
    """The id of the user message that it answers."""
    summary: bodies.Summary | None = None
    """The form of the model's reasoning that the client asks for; None hides it."""
    has_encrypted_reasoning: bool = False
    """Whether the client sends reasoning back itself."""
    user: str | None = None
    """The client's own user."""


def conversation_of(body: bodies.CreateResponse) -> str | None:
    """Return the id of the conversation that a request names."""
    named = body.conversation
    return named.id if isinstance(named, bodies.ConversationRef) else named


def summary_of(body: bodies.CreateResponse) -> bodies.Summary | None:
    """Return the form of the model's reasoning that a client asks for."""
    asked = body.reasoning
    return None if asked is None else asked.summary or asked.generate_summary


def is_response(session: SessionRecord) -> bool:
    """Return whether a session is a response that can be retrieved."""
    return session.kind is SessionKind.RESPONSE and session.state(ResponseState).is_stored


def state_of_request(
    body: bodies.CreateResponse,
    *,
    message: MessageId | None,
    system_instructions: str,
    settings: Mapping[str, Any],
) -> ResponseState:
    """Return the state of the session that a request opens."""
    text = body.text
    is_plain = text is None or isinstance(text.format, PlainText | None)
    return ResponseState(
        is_stored=body.store is not False,
        is_background=bool(body.background),
        previous=body.previous_response_id or None,
        conversation=conversation_of(body) or None,
        instructions=body.instructions or None,
        system_instructions=system_instructions,
        tools=body.tools or [],
        tool_choice="auto" if body.tool_choice is None else body.tool_choice,
        settings=settings,
        text=None if is_plain else text,
        message=message,
        summary=summary_of(body),
        has_encrypted_reasoning=ENCRYPTED_REASONING in (body.include or ()),
        user=body.user,
    )
