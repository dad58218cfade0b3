"""The data of a response that its session cannot tell: kept as labels of the session.

Labels are strings in the journal. An option that the client left out has no label, so that its
default may be read back from journals of any age.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from orchestrator.agents import MessageId
from orchestrator.delegation import SessionRecord
from orchestrator.kernel.doors.session_kinds import KIND
from orchestrator.products.server.api.bodies import METADATA, encode_metadata, metadata_of
from orchestrator.products.server.openai.answer_format import PlainText
from orchestrator.products.server.openai.responses.bodies import (
    ConversationRef,
    CreateResponse,
    ResponseTool,
    TextConfig,
)
from orchestrator.products.server.transport.idempotency import FINGERPRINT

RESPONSE: Final = "response"
"""The kind of a session that is a response."""

ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"

_STORE: Final = "store"
_BACKGROUND: Final = "background"
_PREVIOUS: Final = "previous"
_CONVERSATION: Final = "conversation"
_INSTRUCTIONS: Final = "instructions"
_TOOLS: Final = "tools"
_TOOL_CHOICE: Final = "tool_choice"
_SETTINGS: Final = "settings"
_MESSAGE: Final = "message"
_SYSTEM_INSTRUCTIONS: Final = "standing"
_TEXT: Final = "text"
_SUMMARY: Final = "summary"
_ENCRYPTED: Final = "encrypted_reasoning"
_TRUE: Final = "true"
_FALSE: Final = "false"
_PLAIN_TEXT: Final = '{"format":{"type":"text"}}'


@attrs.frozen(kw_only=True)
class ResponseLabels:
    """The options of a response, and the ids that link it to its conversation."""

    is_stored: bool
    """Whether it can be retrieved later."""
    is_background: bool
    previous: str | None
    """The id of the response whose conversation it continues."""
    conversation: str | None
    """The id of the conversation that it adds to."""
    instructions: str | None
    system_instructions: str
    """The system and developer messages of its conversation."""
    tools: list[ResponseTool]
    tool_choice: str | dict[str, Any]
    settings: Mapping[str, Any]
    """The settings of the model that the agent keeps."""
    text: TextConfig
    message: str | None
    """The id of the user message that it answers."""
    metadata: Mapping[str, str]
    summary: str | None
    """How the client wants to see what the model thinks; None if it does not."""
    has_encrypted_reasoning: bool
    """Whether the client sends reasoning back itself."""


def labels_of(session: SessionRecord) -> ResponseLabels:
    labels = session.labels
    return ResponseLabels(
        is_stored=labels.get(_STORE) != _FALSE,
        is_background=labels.get(_BACKGROUND) == _TRUE,
        previous=labels.get(_PREVIOUS),
        conversation=labels.get(_CONVERSATION),
        instructions=labels.get(_INSTRUCTIONS),
        system_instructions=labels.get(_SYSTEM_INSTRUCTIONS, ""),
        tools=msgspec.json.decode(labels.get(_TOOLS, "[]"), type=list[ResponseTool]),
        tool_choice=_tool_choice(labels.get(_TOOL_CHOICE, "auto")),
        settings=msgspec.json.decode(labels.get(_SETTINGS, "{}"), type=dict[str, Any]),
        text=msgspec.json.decode(labels.get(_TEXT, _PLAIN_TEXT), type=TextConfig),
        message=labels.get(_MESSAGE),
        metadata=metadata_of(session),
        summary=labels.get(_SUMMARY),
        has_encrypted_reasoning=labels.get(_ENCRYPTED) == _TRUE,
    )


def conversation_of(body: CreateResponse) -> str | None:
    """Return the id of the conversation that a request names."""
    named = body.conversation
    return named.id if isinstance(named, ConversationRef) else named


def summary_of(body: CreateResponse) -> str | None:
    """Return how a client wants to see what the model thinks."""
    asked = body.reasoning
    return None if asked is None else asked.summary or asked.generate_summary


def is_response(session: SessionRecord) -> bool:
    """Return whether a session is a response that can be retrieved."""
    return session.labels.get(KIND) == RESPONSE and session.labels.get(_STORE) != _FALSE


def encode_labels(
    body: CreateResponse,
    *,
    message: MessageId | None,
    system_instructions: str,
    fingerprint: str,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Return the labels of the session that a request opens.

    Args:
        body: the request.
        message: the id of the user message that it answers.
        system_instructions: the system and developer messages of the conversation.
        fingerprint: a digest of the request.
        settings: those of the model that the agent keeps.
    """
    notes = {**({"user": body.user} if body.user else {}), **(body.metadata or {})}
    labels = {
        KIND: RESPONSE,
        FINGERPRINT: fingerprint,
        _STORE: _FALSE if body.store is False else "",
        _BACKGROUND: _TRUE if body.background else "",
        _PREVIOUS: body.previous_response_id or "",
        _CONVERSATION: conversation_of(body) or "",
        METADATA: encode_metadata(notes) if notes else "",
        _INSTRUCTIONS: body.instructions or "",
        _TOOLS: msgspec.json.encode(body.tools).decode() if body.tools else "",
        _TOOL_CHOICE: _encode_tool_choice(body.tool_choice),
        _SETTINGS: msgspec.json.encode(settings).decode() if settings else "",
        _TEXT: ""
        if body.text is None or isinstance(body.text.format, PlainText | None)
        else msgspec.json.encode(body.text).decode(),
        _MESSAGE: message or "",
        _SYSTEM_INSTRUCTIONS: system_instructions,
        _SUMMARY: summary_of(body) or "",
        _ENCRYPTED: _TRUE if ENCRYPTED_REASONING in (body.include or ()) else "",
    }
    return {name: value for name, value in labels.items() if value}


def _encode_tool_choice(choice: str | dict[str, Any] | None) -> str:
    if choice is None or choice == "auto":
        return ""
    return choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()


def _tool_choice(label: str) -> str | dict[str, Any]:
    if not label.startswith("{"):
        return label
    return msgspec.json.decode(label, type=dict[str, Any])
