"""The provider `anthropic`: the messages protocol, with calls and their answers as blocks."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import msgspec

from orchestrator.agents.errors import Failure
from orchestrator.agents.messages import Part, Usage
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.answer_errors import UnusableAnswerError
from orchestrator.agents.models.http.provider_errors import NO_JSON, stream_error
from orchestrator.agents.models.http.strict_schema import ProviderSchema
from orchestrator.agents.models.http.wire_transcript import (
    IMAGES,
    PDF,
    AnsweredCall,
    WireAssistantMessage,
    WireMessage,
    WireUserMessage,
    base64_of,
    block_of,
    instructions_with_schema,
    result_blocks,
    text_of,
    unsendable,
    wire_transcript,
)
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.prompt_prefix import is_marked, shared_context
from orchestrator.agents.models.provider_table import Login
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.models.settings_rules import LEAST_THINKING
from orchestrator.agents.tools.tool import Tool

VERSION: Final = "2023-06-01"
# A limit is required, and every model of the fourth generation and later allows this one.
MAX_TOKENS: Final = 32_000
LONGEST_TITLE: Final = 500
THINKING_TOKENS: Final = {
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 30_720,
}
"""The tokens of each effort, for models that take a number of tokens to think in."""
LAST_WITH_THINKING_TOKENS: Final = (4, 5)
"""Later models decide by themselves how long they think, by the effort that they are given."""
# The numbers of `claude-3-7-sonnet-20250219` and `claude-opus-4-5`, and not the date.
_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")


class AnthropicModel(HttpModel):
    """A model behind the messages protocol."""

    provider = "anthropic"
    path = "/v1/messages"

    def _headers(self, key: str) -> dict[str, str]:
        headers = super()._headers(key)
        # Where the body has a version, the header is not known.
        if self._service.quirks.anthropic_version:
            return headers
        return {"anthropic-version": VERSION, **headers}

    def _output_schema(self, request: ModelRequest) -> ProviderSchema | None:
        schema = super()._output_schema(request)
        # Only strict schemas are taken; another one is written into the instructions.
        return schema if schema is not None and schema.is_strict else None

    def _body(self, request: ModelRequest, schema: ProviderSchema | None) -> dict[str, Any]:
        body = message_request(self._model, request, schema, name=self.name)
        if version := self._service.quirks.anthropic_version:
            # The address has the model, and says that the answer is streamed.
            del body["model"]
            body["anthropic_version"] = version
            if self._service.login is Login.AWS:
                del body["stream"]
        return body

    def _builder(self, request: ModelRequest, schema: ProviderSchema | None) -> AnswerBuilder:
        return _MessageBuilder(request, self.name, schema)


def message_request(
    model: str, request: ModelRequest, output_schema: ProviderSchema | None, *, name: str = ""
) -> dict[str, Any]:
    conversation = wire_transcript(request.transcript)
    limit = MAX_TOKENS if request.max_output is None else request.max_output
    thinking = _thinking_fields(model, request.settings, limit)
    kind = thinking.get("thinking", {}).get("type")
    if kind == "enabled" and _lacks_thought(conversation, name):
        # The call was made by another model, or before thinking began: it is refused then.
        thinking, kind = {"thinking": {"type": "disabled"}}, "disabled"
    # In the order in which the provider caches it: siblings differ from their goal on.
    body: dict[str, Any] = {"model": model}
    choice: dict[str, Any] = {}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    elif called := {call.name for message in conversation for call in _calls(message)}:
        # A transcript with calls is refused in a request without tools.
        body["tools"] = [_former_tool(name) for name in sorted(called)]
        choice = {"tool_choice": {"type": "none"}}
    if instructions := instructions_with_schema(request, output_schema):
        body["system"] = instructions
    body["messages"] = _messages(conversation, "" if kind == "disabled" else name)
    body |= {"max_tokens": limit, "stream": True, **thinking, **choice}
    body |= _settings_fields(request.settings, has_tools=bool(request.tools))
    if output_schema is not None:
        format_ = {"type": "json_schema", "schema": output_schema.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": format_}
    if is_marked(request, model):
        _mark_cached(body, request, "1h" if request.settings.prompt_caching == "1h" else "5m")
    return body


def _mark_cached(body: dict[str, Any], request: ModelRequest, time: str) -> None:
    """Mark the positions where a cached part of a request ends.

    It takes four marks. Tools and instructions stay the same in all requests of an agent, and the
    shared context in all requests of siblings. The next request continues at the last message, and
    this request continues at the message before it.
    """
    mark = {"type": "ephemeral", **({"ttl": time} if time != "5m" else {})}
    if shared := shared_context(request):
        body["messages"][0]["content"][0]["cache_control"] = mark
    if request.settings.prompt_caching is None:
        return
    system = body.get("system")
    if (tools := body.get("tools")) and not (shared and system):
        tools[-1]["cache_control"] = mark
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": mark}]
    of_user = [it for it in body["messages"] if it["role"] == "user"]
    for message in of_user[-2:]:
        message["content"][-1]["cache_control"] = mark


def _settings_fields(settings: ModelSettings, *, has_tools: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop_sequences": list(settings.stop) or None,
    }
    if has_tools:
        fields["tool_choice"] = _tool_choice(settings)
    return {name: value for name, value in fields.items() if value is not None}


def _tool_choice(settings: ModelSettings) -> dict[str, Any] | None:
    choice: dict[str, Any]
    match settings.tool_choice:
        case None if settings.parallel_tool_calls is None:
            return None
        case None | "auto":
            choice = {"type": "auto"}
        case "none":
            return {"type": "none"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": name}
    if settings.parallel_tool_calls is not None:
        choice["disable_parallel_tool_use"] = not settings.parallel_tool_calls
    return choice


def _thinking_fields(model: str, settings: ModelSettings, limit: int) -> dict[str, Any]:
    effort = settings.reasoning_effort
    if effort is None:
        return {}
    # A budget may have left too little to think in.
    if effort == "none" or limit <= LEAST_THINKING:
        return {"thinking": {"type": "disabled"}}
    if _version(model) > LAST_WITH_THINKING_TOKENS:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    # Thinking is part of the answer, and must leave room for the rest.
    tokens = min(THINKING_TOKENS[effort], max(LEAST_THINKING, limit // 2))
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _lacks_thought(conversation: list[WireMessage], name: str) -> bool:
    """Return whether the last answer has calls, and no thought of this model before them."""
    for message in reversed(conversation):
        if isinstance(message, WireAssistantMessage):
            return bool(message.calls) and not message.reasoning_of(name)
    return False


def _version(model: str) -> tuple[int, int]:
    """Return the version in the name of a model; a name without one counts as the newest."""
    found = _VERSION.search(model)
    return (99, 0) if found is None else (int(found[1]), int(found[2] or 0))


def _messages(conversation: list[WireMessage], name: str) -> list[dict[str, Any]]:
    """Return the messages, with the reasoning of the model of this name."""
    blocks = [block for message in conversation for block in _blocks(message, name)]
    return [
        {"role": role, "content": [block for _, block in group]}
        for role, group in groupby(blocks, key=lambda block: block[0])
    ]


def _blocks(message: WireMessage, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    match message:
        case WireUserMessage(text, parts):
            # The model answers best when the material comes before the question.
            material = [block_of(part, message, _part, text="text") for part in parts]
            shared, own = text[: message.shared], text[message.shared :]
            yield from (("user", it) for it in (*_text(shared), *material, *_text(own)))
        case WireAssistantMessage(text, calls):
            for thought in message.reasoning_of(name, 0):
                yield "assistant", thought
            if text:
                yield "assistant", {"type": "text", "text": text}
            for number, call in enumerate(calls):
                for thought in message.reasoning_of(name, 1 + number):
                    yield "assistant", thought
                yield (
                    "assistant",
                    {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments},
                )
            for call in calls:
                yield "user", _result(call)


def _text(text: str) -> Iterator[dict[str, Any]]:
    if text:
        yield {"type": "text", "text": text}


def _part(part: Part) -> dict[str, Any]:
    if part.media_type in IMAGES:
        return {"type": "image", "source": _source(part)}
    if part.media_type != PDF and not part.is_text:
        raise unsendable(part, "messages take PNG, JPEG, GIF and WebP images, PDFs and texts")
    title = part.name[:LONGEST_TITLE]
    return {
        "type": "document",
        "source": _text_source(part) if part.is_text else _source(part),
        **({"title": title} if title.strip() else {}),
    }


def _source(part: Part) -> dict[str, Any]:
    if not part.url:
        data = {"media_type": part.media_type, "data": base64_of(part)}
        return {"type": "base64", **data}
    if not part.url.startswith("https:"):
        raise unsendable(part, "messages fetch from https:// only")
    return {"type": "url", "url": part.url}


def _text_source(part: Part) -> dict[str, Any]:
    if part.url:
        raise unsendable(part, "messages fetch images and PDFs only; give its bytes as data")
    # The protocol has plain text only.
    return {"type": "text", "media_type": "text/plain", "data": text_of(part)}


def _result(call: AnsweredCall) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": _result_content(call),
        **({"is_error": True} if call.failed else {}),
    }


def _result_content(call: AnsweredCall) -> str | list[dict[str, Any]]:
    if not call.parts:
        return call.answer
    parts = result_blocks(call, _part, text="text")
    return [{"type": "text", "text": call.answer}, *parts]


def _calls(message: WireMessage) -> tuple[AnsweredCall, ...]:
    return message.calls if isinstance(message, WireAssistantMessage) else ()


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _former_tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "No longer there.", "input_schema": {"type": "object"}}


class _Block(msgspec.Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str = ""
    data: str = ""
    """A thought that the provider has encrypted."""
    input: msgspec.Raw = NO_JSON
    """The arguments of a call, parsed when the answer is whole."""


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _UsageFields(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct):
    content: list[_Block]
    usage: _UsageFields | None = None
    stop_reason: str | None = None


class _EventType(msgspec.Struct):
    type: str


class _Start(msgspec.Struct):
    message: _Message


class _BlockStart(msgspec.Struct):
    index: int
    content_block: _Block


class _Delta(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""


class _BlockDelta(msgspec.Struct):
    index: int
    delta: _Delta


class _MessageChange(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct):
    delta: _MessageChange
    usage: _UsageFields | None = None


class _ErrorEvent(msgspec.Struct):
    error: msgspec.Raw


class _MessageBuilder(AnswerBuilder):
    protocol = "message"

    def __init__(
        self, request: ModelRequest, model: str, output_schema: ProviderSchema | None = None
    ) -> None:
        super().__init__(request, model, output_schema)
        self._used = _UsageFields()
        self._thoughts: dict[int, dict[str, Any]] = {}

    def feed_event(self, data: bytes) -> bool:
        match msgspec.json.decode(data, type=_EventType).type:
            case "message_start":
                self._update_usage(msgspec.json.decode(data, type=_Start).message.usage)
            case "content_block_start":
                start = msgspec.json.decode(data, type=_BlockStart)
                self._add_block(start.index, start.content_block)
            case "content_block_delta":
                event = msgspec.json.decode(data, type=_BlockDelta)
                self._add_delta(event.index, event.delta)
            case "message_delta":
                change = msgspec.json.decode(data, type=_MessageDelta)
                self._update_usage(change.usage)
                self._end(change.delta.stop_reason)
            case "message_stop":
                return True
            case "error":
                raise stream_error(msgspec.json.decode(data, type=_ErrorEvent).error)
            case _:
                # The end of a block, a ping, or an event of a later version.
                pass
        return False

    def feed_body(self, body: bytes) -> None:
        if msgspec.json.decode(body, type=_EventType).type == "error":
            raise stream_error(msgspec.json.decode(body, type=_ErrorEvent).error)
        message = msgspec.json.decode(body, type=_Message)
        self._update_usage(message.usage)
        for index, block in enumerate(message.content):
            self._add_block(index, block)
        self._end(message.stop_reason)

    def _add_block(self, index: int, block: _Block) -> None:
        if block.type == "thinking":
            thought = {"type": "thinking", "thinking": block.thinking or ""}
            self._thoughts[index] = {**thought, "signature": block.signature}
            self.add_reasoning_block(self._thoughts[index])
        elif block.type == "redacted_thinking":
            self.characters += len(block.data)
            self.add_reasoning_block({"type": block.type, "data": block.data})
        self.add_text(block.text)
        self.add_reasoning(block.thinking)
        if block.type == "tool_use":
            # In a stream the input is empty here, and deltas follow.
            arguments = bytes(block.input).decode()
            if arguments in {"{}", "null"}:
                arguments = ""
            self.add_call(index, call_id=block.id, name=block.name, arguments=arguments)

    def _add_delta(self, index: int, delta: _Delta) -> None:
        if (thought := self._thoughts.get(index)) is not None:
            thought["thinking"] += delta.thinking
            if delta.signature:
                self.characters += len(delta.signature)
                thought["signature"] = delta.signature
        self.add_text(delta.text)
        self.add_reasoning(delta.thinking)
        if delta.type == "input_json_delta":
            self.add_call(index, arguments=delta.partial_json)

    def _end(self, reason: str | None) -> None:
        match reason:
            case None:
                return
            case "refusal":
                self.fail_refused("it stopped itself")
            case "max_tokens":
                self.fail_cut_off()
            case "model_context_window_exceeded":
                raise UnusableAnswerError(
                    Failure.CONTEXT_TOO_LONG, "was cut off at the end of its context"
                )
            case _:
                self.is_complete = True

    def _update_usage(self, used: _UsageFields | None) -> None:
        """Take over the newest counts: a count that is missing has not changed."""
        if used is None:
            return
        for field in _UsageFields.__struct_fields__:
            if (count := getattr(used, field)) is not None:
                setattr(self._used, field, count)
        counts = self._used
        cached = counts.cache_read_input_tokens or 0
        details = counts.output_tokens_details or _OutputDetails()
        self.usage = Usage(
            calls=1,
            # This protocol counts input without tokens read from, or written to, the cache.
            input_tokens=(counts.input_tokens or 0)
            + (counts.cache_creation_input_tokens or 0)
            + cached,
            output_tokens=counts.output_tokens or 0,
            # A price comes from the price table, if at all.
            unpriced=1,
            cached_tokens=cached,
            reasoning_tokens=details.thinking_tokens or 0,
            cache_written_tokens=counts.cache_creation_input_tokens or 0,
        )
