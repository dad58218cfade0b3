"""The bodies of `POST /v1/messages`; `request.py` refuses unsupported fields."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from orchestrator.agents import Usage
from orchestrator.products.server.openai.client_content import TextPart
from orchestrator.products.server.transport.json_body import MOST_MESSAGES, MOST_PIECES


class Base64Source(msgspec.Struct, kw_only=True, tag_field="type", tag="base64"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, tag_field="type", tag="url"):
    url: str


class TextSource(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    data: str
    media_type: str = "text/plain"


class FileSource(msgspec.Struct, tag_field="type", tag="file"):
    """Decoded only to be refused with an error of its own."""


Source: TypeAlias = Base64Source | UrlSource | TextSource | FileSource


class ImageBlock(msgspec.Struct, tag_field="type", tag="image"):
    source: Source


class DocumentBlock(msgspec.Struct, tag_field="type", tag="document"):
    source: Source
    title: str | None = None


ResultContent: TypeAlias = str | list[TextPart | ImageBlock | DocumentBlock]


class ToolResultBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of a tool that the client has run."""

    tool_use_id: str
    content: ResultContent = ""
    is_error: bool | None = None


class ToolUseBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="tool_use"):
    """A call of a tool that the client runs."""

    id: str
    name: str
    input: dict[str, Any]


class ThinkingBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking"):
    """The reasoning of an agent's model. A client sends it back, and no model reads it."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    """Reasoning of another server. No model reads it."""


UserBlock: TypeAlias = TextPart | ImageBlock | DocumentBlock | ToolResultBlock
AssistantBlock: TypeAlias = TextPart | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock


class UserTurn(msgspec.Struct, tag_field="role", tag="user"):
    content: str | list[UserBlock]


class AssistantTurn(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[AssistantBlock]


class SystemText(msgspec.Struct, kw_only=True):
    type: Literal["text"]
    text: str


class SystemTurn(msgspec.Struct, tag_field="role", tag="system"):
    content: str | list[SystemText]


Turn: TypeAlias = UserTurn | AssistantTurn | SystemTurn


class MessageTool(msgspec.Struct, kw_only=True):
    """A tool that the client runs itself."""

    name: str
    type: str | None = None
    """`custom`; others are refused, or ignored if the server has that option."""
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(msgspec.Struct, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, kw_only=True):
    """The answer is JSON that fits a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, kw_only=True):
    effort: str | None = None
    format: OutputFormat | None = None


class MessageMetadata(msgspec.Struct):
    user_id: str | None = None
    """The client's own user, kept with the run."""


class CountRequest(msgspec.Struct, kw_only=True):
    """A conversation whose tokens are counted."""

    model: str
    """The name of an agent."""
    messages: Annotated[list[Turn], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    system: str | list[SystemText] | None = None
    tools: Annotated[list[MessageTool], msgspec.Meta(max_length=MOST_PIECES)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessageRequest(CountRequest, kw_only=True):
    """A request for a message."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    metadata: MessageMetadata | None = None
    thread: dict[str, Any] | None = None
    """Refused, because the server keeps no thread: clients then send the whole conversation."""


class TokenCount(msgspec.Struct):
    """The estimated number of tokens."""

    input_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """The usage of the whole tree."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


def message_usage(usage: Usage) -> MessageUsage:
    # Anthropic counts the tokens that were read from a cache by themselves.
    return MessageUsage(
        input_tokens=usage.input_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )


AnswerBlock: TypeAlias = TextPart | ThinkingBlock | ToolUseBlock
StopReason: TypeAlias = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class AnswerMessage(msgspec.Struct, kw_only=True):
    """The answer of an agent."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None = None
    usage: MessageUsage


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: AnswerMessage


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: AnswerBlock


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    signature: str


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """The arguments of a call: complete, because they are sent when they are durable."""

    partial_json: str


BlockDelta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockChange(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: BlockDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class MessageEnd(msgspec.Struct, kw_only=True):
    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageChange(msgspec.Struct, kw_only=True, tag_field="type", tag="message_delta"):
    delta: MessageEnd
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The end of a stream."""


Event: TypeAlias = MessageStart | BlockStart | BlockChange | BlockStop | MessageChange | MessageStop
