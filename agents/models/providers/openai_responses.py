"""The provider `openai-responses`: OpenAI's responses, without letting OpenAI store them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from orchestrator.agents.messages import Part, Usage
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.provider_errors import NO_JSON, has_value, stream_error
from orchestrator.agents.models.http.strict_schema import WRAPPER_FIELD, ProviderSchema
from orchestrator.agents.models.http.url import is_openai
from orchestrator.agents.models.http.wire_logprobs import WireLogprob
from orchestrator.agents.models.http.wire_transcript import (
    IMAGES,
    PDF,
    AnsweredCall,
    WireAssistantMessage,
    WireUserMessage,
    as_json,
    block_of,
    quoted,
    result_blocks,
    unsendable,
    url_of,
    wire_transcript,
)
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.prompt_prefix import cache_key
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.tools.text_input import INPUT, input_of
from orchestrator.agents.tools.tool import Tool, is_custom

# The media types of accepted documents, each with its file extension.
_OPEN_XML: Final = "application/vnd.openxmlformats-officedocument"
DOCUMENTS: Final = {
    PDF: "pdf",
    "application/msword": "doc",
    f"{_OPEN_XML}.wordprocessingml.document": "docx",
    "application/rtf": "rtf",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.ms-powerpoint": "ppt",
    f"{_OPEN_XML}.presentationml.presentation": "pptx",
    "application/vnd.ms-excel": "xls",
    f"{_OPEN_XML}.spreadsheetml.sheet": "xlsx",
}
CALLS: Final = frozenset({"function_call", "custom_tool_call"})
# Other models refuse a request for encrypted reasoning.
_REASONS: Final = re.compile(r"o\d|codex|gpt-(?:[5-9]|\d\d)(?!.*chat)")


class ResponsesModel(HttpModel):
    """A model behind the responses protocol."""

    provider = "openai-responses"
    path = "/responses"
    has_custom_tools = True

    def _body(self, request: ModelRequest, schema: ProviderSchema | None) -> dict[str, Any]:
        has_cache_key = self._service.quirks.has_cache_key or is_openai(self._base_url)
        return response_request(
            self._model, request, schema, name=self.name, has_cache_key=has_cache_key
        )

    def _builder(self, request: ModelRequest, schema: ProviderSchema | None) -> AnswerBuilder:
        return _ResponseBuilder(request, self.name, schema)


def response_request(
    model: str,
    request: ModelRequest,
    output_schema: ProviderSchema | None,
    *,
    name: str = "",
    has_cache_key: bool = False,
) -> dict[str, Any]:
    # In the order in which the provider caches it: siblings differ from their goal on.
    body: dict[str, Any] = {"model": model}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.instructions.strip():
        body["instructions"] = request.instructions
    if has_cache_key and (key := cache_key(request)):
        body["prompt_cache_key"] = key
    body["input"] = list(_items(request, name))
    # The transcript is sent whole each time.
    body |= {"stream": True, "store": False}
    effort = request.settings.reasoning_effort
    if _REASONS.match(model) or effort not in {None, "none"}:
        # The reasoning of the model is not stored there, so it comes encrypted, and is sent back.
        body["include"] = ["reasoning.encrypted_content"]
    if request.settings.top_logprobs is not None:
        body.setdefault("include", []).append("message.output_text.logprobs")
    if request.max_output is not None:
        body["max_output_tokens"] = request.max_output
    body |= _settings_fields(request.settings, request.tools)
    if output_schema is not None:
        body["text"] = {
            "format": {
                "type": "json_schema",
                "name": WRAPPER_FIELD,
                "schema": output_schema.schema,
                "strict": output_schema.is_strict,
            }
        }
    return body


def _settings_fields(settings: ModelSettings, tools: Sequence[Tool]) -> dict[str, Any]:
    effort = settings.reasoning_effort
    fields: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning": None if effort is None else {"effort": effort},
        "top_logprobs": settings.top_logprobs or None,
    }
    # Without tools, both are refused.
    if tools:
        fields["parallel_tool_calls"] = settings.parallel_tool_calls
        fields["tool_choice"] = _tool_choice(settings.tool_choice, tools)
    return {name: value for name, value in fields.items() if value is not None}


def _tool_choice(choice: str | None, tools: Sequence[Tool]) -> str | dict[str, Any] | None:
    if choice in {None, "auto", "none", "required"}:
        return choice
    kind = "custom" if is_custom(choice, tools) else "function"
    return {"type": kind, "name": choice}


def _items(request: ModelRequest, name: str) -> Iterator[dict[str, Any]]:
    for message in wire_transcript(request.transcript):
        match message:
            case WireUserMessage(text, ()):
                yield {"type": "message", "role": "user", "content": text}
            case WireUserMessage(text, parts):
                content = [block_of(part, message, _part, text="input_text") for part in parts]
                if text:
                    content.append({"type": "input_text", "text": text})
                yield {"type": "message", "role": "user", "content": content}
            case WireAssistantMessage(text, calls):
                if text:
                    yield {"type": "message", "role": "assistant", "content": text}
                for number, call in enumerate(calls):
                    # Only the reasoning right before a call belongs to it.
                    before = {1 + number} if number else {0, 1}
                    for position in sorted(before):
                        yield from message.reasoning_of(name, position)
                    yield _call(call, request.tools)
                for call in calls:
                    yield {
                        "type": "custom_tool_call_output"
                        if is_custom(call.name, request.tools)
                        else "function_call_output",
                        "call_id": call.id,
                        "output": _output(call),
                    }


def _output(call: AnsweredCall) -> str | list[dict[str, Any]]:
    if not call.parts:
        return call.answer
    parts = result_blocks(call, _part, text="input_text")
    return [{"type": "input_text", "text": call.answer}, *parts]


def _part(part: Part) -> dict[str, Any]:
    if part.media_type in IMAGES:
        image = {"image_url": url_of(part), "detail": "auto"}
        return {"type": "input_image", **image}
    if part.media_type not in DOCUMENTS and not part.is_text:
        raise unsendable(
            part, "responses take PNG, JPEG, GIF and WebP images, PDFs, office documents and texts"
        )
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    if part.is_text:
        # As a file, a long table would be truncated by the provider.
        return {"type": "input_text", "text": quoted(part)}
    # A file without a name is refused.
    name = part.name or f"file.{DOCUMENTS[part.media_type]}"
    return {"type": "input_file", "filename": name, "file_data": url_of(part)}


def _call(call: AnsweredCall, tools: Sequence[Tool]) -> dict[str, Any]:
    # Without the id of the item: with it, the reasoning before it would have to be sent too.
    if is_custom(call.name, tools):
        text = input_of(call.arguments)
        kind = "custom_tool_call"
        return {"type": kind, "call_id": call.id, "name": call.name, INPUT: text}
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": as_json(call.arguments).decode(),
    }


def _tool(tool: Tool) -> dict[str, Any]:
    if (text := tool.text_input) is not None:
        return {
            "type": "custom",
            "name": tool.name,
            "description": tool.description,
            "format": {"type": "text"}
            if not text.grammar
            else {"type": "grammar", "syntax": text.syntax, "definition": text.grammar},
        }
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        # Strict is the default here, and strict schemas have no optional parameters.
        "strict": False,
    }


class _Content(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None
    logprobs: list[WireLogprob] | None = None


class _Item(msgspec.Struct):
    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    content: list[_Content] | None = None
    id: str = ""
    summary: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _UsageFields(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _TokenDetails | None = None
    output_tokens_details: _TokenDetails | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    output: list[_Item]
    status: str = "completed"
    usage: _UsageFields | None = None
    error: msgspec.Raw = NO_JSON
    incomplete_details: _Incomplete | None = None


class _EventType(msgspec.Struct):
    type: str


class _Delta(msgspec.Struct):
    delta: str
    output_index: int = 0


class _TextDelta(_Delta):
    logprobs: list[WireLogprob] | None = None


class _ItemEvent(msgspec.Struct):
    item: _Item
    output_index: int = 0


class _End(msgspec.Struct):
    response: _Response


class _ResponseBuilder(AnswerBuilder):
    protocol = "response"

    def __init__(
        self, request: ModelRequest, model: str, output_schema: ProviderSchema | None = None
    ) -> None:
        super().__init__(request, model, output_schema)
        self._thoughts: dict[int, _Item] = {}

    def feed_event(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            return True
        match msgspec.json.decode(data, type=_EventType).type:
            case "response.output_text.delta":
                written = msgspec.json.decode(data, type=_TextDelta)
                self.add_text(written.delta)
                self.add_logprobs(written.logprobs)
            case "response.refusal.delta":
                self.add_refusal(msgspec.json.decode(data, type=_Delta).delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.add_reasoning(msgspec.json.decode(data, type=_Delta).delta)
            case "response.function_call_arguments.delta":
                piece = msgspec.json.decode(data, type=_Delta)
                self.add_call(piece.output_index, arguments=piece.delta)
            case "response.custom_tool_call_input.delta":
                piece = msgspec.json.decode(data, type=_Delta)
                self.add_call(piece.output_index, arguments=piece.delta, is_text=True)
            case "response.output_item.added" | "response.output_item.done":
                self._add_streamed_item(msgspec.json.decode(data, type=_ItemEvent))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(msgspec.json.decode(data, type=_End).response)
                return True
            case "error":
                raise stream_error(data)
            case _:
                # Most of the fifty types of events repeat values that are read here.
                pass
        return False

    def feed_body(self, body: bytes) -> None:
        self._end(msgspec.json.decode(body, type=_Response))

    def _add_streamed_item(self, event: _ItemEvent) -> None:
        if event.item.type in CALLS:
            self._add_item_call(event.output_index, event.item)
        elif event.item.type == "reasoning":
            # Its text has come in pieces.
            self._thoughts[event.output_index] = event.item

    def _add_thought(self, index: int, item: _Item) -> None:
        """Keep the reasoning of the model, before the call that it led to."""
        if not item.encrypted_content:
            return
        self.characters += len(item.encrypted_content)
        self.add_reasoning_block(
            {
                "type": "reasoning",
                "id": item.id,
                "summary": item.summary or [],
                "encrypted_content": item.encrypted_content,
            },
            1 + sum(before < index for before in self._numbers),
        )

    def _end(self, response: _Response) -> None:
        if response.usage is not None:
            self.usage = _usage(response.usage)
        if has_value(response.error):
            raise stream_error(response.error)
        if response.status == "failed":
            raise stream_error(b"it gives no reason")
        # A streamed answer was read already.
        if self.is_empty:
            for index, item in enumerate(response.output):
                self._add_item(index, item)
        if response.status == "incomplete":
            details = response.incomplete_details or _Incomplete()
            if details.reason == "content_filter":
                self.fail_filtered()
            self.fail_cut_off()
        for index, item in sorted(self._thoughts.items()):
            self._add_thought(index, item)
        self.is_complete = True

    def _add_item(self, index: int, item: _Item) -> None:
        match item.type:
            case "function_call" | "custom_tool_call":
                self._add_item_call(index, item)
            case "message":
                for content in item.content or ():
                    self.add_text(content.text)
                    self.add_logprobs(content.logprobs)
                    self.add_refusal(content.refusal)
            case "reasoning":
                self._thoughts[index] = item
                for content in item.content or ():
                    self.add_reasoning(content.text)
            case _:
                pass

    def _add_item_call(self, index: int, item: _Item) -> None:
        # A call comes when it begins, and again, whole, when it ends.
        is_text = item.type == "custom_tool_call"
        whole = item.input if is_text else item.arguments
        self.add_call(
            index,
            call_id=item.call_id,
            name=item.name,
            arguments="" if self.has_arguments(index) else whole,
            is_text=is_text,
        )


def _usage(used: _UsageFields) -> Usage:
    read = used.input_tokens_details or _TokenDetails()
    wrote = used.output_tokens_details or _TokenDetails()
    return Usage(
        calls=1,
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        # A price comes from the price table, if at all.
        unpriced=1,
        cached_tokens=read.cached_tokens or 0,
        reasoning_tokens=wrote.reasoning_tokens or 0,
    )
