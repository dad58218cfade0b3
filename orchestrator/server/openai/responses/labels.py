"""The data of a response that its session cannot tell: kept as labels of the session.

Labels are strings in the journal. An option that the client left out has no label, so that its
default may be read back from journals of any age.
"""

from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from agents import MessageId
from delegation import SessionRecord
from orchestrator.doors.http import KIND
from orchestrator.server.api.bodies import METADATA, encode_metadata, metadata_of
from orchestrator.server.openai.responses.bodies import CreateResponse, ResponseTool
from orchestrator.server.transport.idempotency import FINGERPRINT

RESPONSE: Final = "response"
"""The kind of a session that is a response."""

_STORE: Final = "store"
_BACKGROUND: Final = "background"
_PREVIOUS: Final = "previous"
_INSTRUCTIONS: Final = "instructions"
_TOOLS: Final = "tools"
_TOOL_CHOICE: Final = "tool_choice"
_MESSAGE: Final = "message"
_SYSTEM_INSTRUCTIONS: Final = "standing"
_TRUE: Final = "true"
_FALSE: Final = "false"


@attrs.frozen(kw_only=True)
class ResponseLabels:
    """The options of a response, and the ids that link it to its conversation."""

    is_stored: bool
    """Whether it can be retrieved later."""
    is_background: bool
    previous: str | None
    """The id of the response whose conversation it continues."""
    instructions: str | None
    system_instructions: str
    """The system and developer messages of its conversation."""
    tools: list[ResponseTool]
    tool_choice: str
    message: str | None
    """The id of the user message that it answers."""
    metadata: Mapping[str, str]


def labels_of(session: SessionRecord) -> ResponseLabels:
    labels = session.labels
    return ResponseLabels(
        is_stored=labels.get(_STORE) != _FALSE,
        is_background=labels.get(_BACKGROUND) == _TRUE,
        previous=labels.get(_PREVIOUS),
        instructions=labels.get(_INSTRUCTIONS),
        system_instructions=labels.get(_SYSTEM_INSTRUCTIONS, ""),
        tools=msgspec.json.decode(labels.get(_TOOLS, "[]"), type=list[ResponseTool]),
        tool_choice=labels.get(_TOOL_CHOICE, "auto"),
        message=labels.get(_MESSAGE),
        metadata=metadata_of(session),
    )


def is_response(session: SessionRecord) -> bool:
    """Return whether a session is a response that can be retrieved."""
    return session.labels.get(KIND) == RESPONSE and session.labels.get(_STORE) != _FALSE


def encode_labels(
    body: CreateResponse,
    *,
    message: MessageId | None,
    system_instructions: str,
    fingerprint: str,
) -> dict[str, str]:
    """Return the labels of the session that a request opens."""
    labels = {
        KIND: RESPONSE,
        FINGERPRINT: fingerprint,
        _STORE: _FALSE if body.store is False else "",
        _BACKGROUND: _TRUE if body.background else "",
        _PREVIOUS: body.previous_response_id or "",
        METADATA: encode_metadata(body.metadata) if body.metadata else "",
        _INSTRUCTIONS: body.instructions or "",
        _TOOLS: msgspec.json.encode(body.tools).decode() if body.tools else "",
        _TOOL_CHOICE: "none" if body.tool_choice == "none" else "",
        _MESSAGE: message or "",
        _SYSTEM_INSTRUCTIONS: system_instructions,
    }
    return {name: value for name, value in labels.items() if value}
