"""The provider `openai`: chat completions, at OpenAI or any server with the same protocol."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Final, NoReturn

import msgspec

from orchestrator.agents.messages import AssistantMessage, Part, Usage
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.chat_settings import settings_fields
from orchestrator.agents.models.http.provider_errors import NO_JSON, has_value, stream_error
from orchestrator.agents.models.http.strict_schema import WRAPPER_FIELD, ProviderSchema
from orchestrator.agents.models.http.url import OPENAI_HOST, is_openai
from orchestrator.agents.models.http.wire_logprobs import WireLogprob
from orchestrator.agents.models.http.wire_transcript import (
    IMAGES,
    PDF,
    AnsweredCall,
    WireAssistantMessage,
    WireUserMessage,
    as_json,
    block_of,
    instructions_with_schema,
    quoted,
    result_blocks,
    unsendable,
    url_of,
    wire_transcript,
)
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.prompt_prefix import cache_key
from orchestrator.agents.models.provider_table import NO_QUIRKS, Quirks
from orchestrator.agents.models.providers.http_model import HttpModel
from orchestrator.agents.tools.text_input import INPUT, input_of
from orchestrator.agents.tools.tool import Tool, is_custom

BASE_URL: Final = f"https://{OPENAI_HOST}/v1"


class OpenAIModel(HttpModel):
    """A model behind the chat completions protocol."""

    provider = "openai"
    path = "/chat/completions"

    @cached_property
    def _limit_field(self) -> str:
        field = self._service.quirks.limit_field
        return output_limit_field(self._base_url) if field == "by host" else field

    @cached_property
    def has_custom_tools(self) -> bool:
        """Whether tools that take one text are known there: other servers have functions only."""
        return is_openai(self._base_url)

    def _body(self, request: ModelRequest, schema: ProviderSchema | None) -> dict[str, Any]:
        return completion_request(
            self._model,
            request,
            schema,
            limit_field=self._limit_field,
            quirks=self._service.quirks,
            name=self.name,
            has_custom_tools=self.has_custom_tools,
            has_cache_key=self._service.quirks.has_cache_key or is_openai(self._base_url),
        )

    def _builder(self, request: ModelRequest, schema: ProviderSchema | None) -> AnswerBuilder:
        return _CompletionBuilder(request, self.name, schema, self._service.quirks)


def output_limit_field(url: str) -> str:
    """Return the name of the field that limits the answer, which depends on the server.

    OpenAI's newer models refuse the old name, and many other servers know only that one.
    """
    return "max_completion_tokens" if is_openai(url) else "max_tokens"


def completion_request(
    model: str,
    request: ModelRequest,
    output_schema: ProviderSchema | None,
    *,
    limit_field: str = "max_completion_tokens",
    quirks: Quirks = NO_QUIRKS,
    name: str = "",
    has_custom_tools: bool = False,
    has_cache_key: bool = False,
) -> dict[str, Any]:
    customs = [it for it in request.tools if has_custom_tools and it.text_input]
    # In the order in which providers cache it: siblings differ from their goal on.
    body: dict[str, Any] = {"model": model}
    if request.tools:
        body["tools"] = [
            _custom_tool(tool) if tool in customs else _tool(tool) for tool in request.tools
        ]
    if has_cache_key and (key := cache_key(request)):
        body["prompt_cache_key"] = key
    body["messages"] = list(_messages(request, output_schema, quirks, name, customs))
    body["stream"] = True
    if quirks.asks_for_usage:
        body["stream_options"] = {"include_usage": True}
    if request.max_output is not None:
        body[limit_field] = request.max_output
    body |= settings_fields(request.settings, has_tools=bool(request.tools), quirks=quirks)
    if is_custom(choice := request.settings.tool_choice, customs):
        body["tool_choice"] = {"type": "custom", "custom": {"name": choice}}
    if output_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": WRAPPER_FIELD,
                "schema": output_schema.schema,
                "strict": output_schema.is_strict,
            },
        }
    return body


def _messages(
    request: ModelRequest,
    output_schema: ProviderSchema | None,
    quirks: Quirks,
    name: str,
    customs: Sequence[Tool],
) -> Iterator[dict[str, Any]]:
    id_of = partial(_call_id, length=quirks.call_id_length)
    if instructions := instructions_with_schema(request, output_schema):
        yield {"role": "system", "content": instructions}
    for message in wire_transcript(request.transcript):
        match message:
            case WireUserMessage(text, ()):
                yield {"role": "user", "content": text}
            case WireUserMessage(text, parts):
                content = [block_of(part, message, _part, text="text") for part in parts]
                if text:
                    content.append({"type": "text", "text": text})
                yield {"role": "user", "content": content}
            case WireAssistantMessage(text, ()):
                yield {"role": "assistant", "content": text}
            case WireAssistantMessage(text, calls):
                yield {
                    "role": "assistant",
                    "content": text or None,
                    "tool_calls": [
                        {
                            "id": id_of(call),
                            **_call(call, customs),
                            **_fields(message.reasoning_of(name, 1 + number)),
                        }
                        for number, call in enumerate(calls)
                    ],
                    **_fields(message.reasoning_of(name, 0)),
                }
                for call in calls:
                    yield {
                        "role": "tool",
                        "tool_call_id": id_of(call),
                        "content": _result_content(call, quirks),
                    }
                if not quirks.has_parts_in_results and (files := _files_of(calls)):
                    yield {"role": "user", "content": files}


def _result_content(call: AnsweredCall, quirks: Quirks) -> str | list[dict[str, Any]]:
    if not call.parts or not quirks.has_parts_in_results:
        return call.answer
    parts = result_blocks(call, _part, text="text")
    return [{"type": "text", "text": call.answer}, *parts]


def _files_of(calls: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
    """Return the files of tools' answers, which this protocol has in messages of the user only."""
    content: list[dict[str, Any]] = []
    for call in calls:
        if call.parts:
            labels = ", ".join(part.label for part in call.parts)
            note = f"The answer of {call.name} came with {labels}:"
            content.append({"type": "text", "text": note})
            content += result_blocks(call, _part, text="text")
    return content


def _part(part: Part) -> dict[str, Any]:
    if part.media_type in IMAGES:
        return {"type": "image_url", "image_url": {"url": url_of(part)}}
    if part.media_type != PDF and not part.is_text:
        raise unsendable(
            part, "chat completions take PNG, JPEG, GIF and WebP images, PDFs and texts"
        )
    if part.url:
        raise unsendable(part, "chat completions fetch images only; give its bytes as data")
    if part.is_text:
        return {"type": "text", "text": quoted(part)}
    # A file without a name is refused.
    file = {"filename": part.name or "file.pdf", "file_data": url_of(part)}
    return {"type": "file", "file": file}


def _call_id(call: AnsweredCall, *, length: int | None) -> str:
    """Return the id of a call as the server takes it."""
    if length is None or (len(call.id) == length and call.id.isalnum()):
        return call.id
    return sha256(call.id.encode()).hexdigest()[:length]


def _fields(thoughts: list[Any]) -> dict[str, Any]:
    return {field: value for thought in thoughts for field, value in thought.items()}


def _call(call: AnsweredCall, customs: Sequence[Tool]) -> dict[str, Any]:
    if is_custom(call.name, customs):
        text = input_of(call.arguments)
        return {"type": "custom", "custom": {"name": call.name, INPUT: text}}
    return {
        "type": "function",
        "function": {"name": call.name, "arguments": as_json(call.arguments).decode()},
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _custom_tool(tool: Tool) -> dict[str, Any]:
    assert tool.text_input is not None, "it takes one text"
    syntax, grammar = tool.text_input.syntax, tool.text_input.grammar
    fits = {"type": "grammar", "grammar": {"syntax": syntax, "definition": grammar}}
    return {
        "type": "custom",
        "custom": {
            "name": tool.name,
            "description": tool.description,
            "format": fits if grammar else {"type": "text"},
        },
    }


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None
    custom: _Custom | None = None
    index: int | None = None
    id: str | None = None
    extra_content: dict[str, Any] | None = None
    """The signature of the thought that led to the call, at Gemini, which wants it back."""


class _Piece(msgspec.Struct):
    """A piece of a content that is a list, as Mistral's models that think have it."""

    text: str | None = None
    thinking: list["_Piece"] | None = None


class _ChoiceMessage(msgspec.Struct):
    content: str | list[_Piece] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    """The reasoning at vLLM and DeepSeek; OpenAI does not send it in this protocol."""
    reasoning: str | None = None
    """The reasoning at OpenRouter and Ollama."""
    reasoning_details: list[dict[str, Any]] | None = None
    """The same at OpenRouter, as it wants it back."""
    tool_calls: list[_Call] | None = None


class _Logprobs(msgspec.Struct):
    content: list[WireLogprob] | None = None


class _Choice(msgspec.Struct):
    delta: _ChoiceMessage | None = None
    message: _ChoiceMessage | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _UsageFields(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None
    cost: float | None = None
    """Dollars, at OpenRouter."""


class _Chunk(msgspec.Struct):
    """The fields of an answer that we read; many servers add others."""

    choices: list[_Choice] | None = None
    usage: _UsageFields | None = None
    error: msgspec.Raw = NO_JSON


class _CompletionBuilder(AnswerBuilder):
    protocol = "chat completion"
    _has_begun = False
    _fail: Callable[[], NoReturn] | None = None

    def __init__(
        self,
        request: ModelRequest,
        model: str,
        output_schema: ProviderSchema | None = None,
        quirks: Quirks = NO_QUIRKS,
    ) -> None:
        super().__init__(request, model, output_schema)
        self._quirks = quirks
        self._thought: list[str] = []
        self._details: list[dict[str, Any]] = []

    def feed_event(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            if not self._has_begun:
                raise msgspec.ValidationError("it has no choices")
            self.is_complete = True
            return True
        self._add_chunk(msgspec.json.decode(data, type=_Chunk))
        return False

    def feed_body(self, body: bytes) -> None:
        self._add_chunk(msgspec.json.decode(body, type=_Chunk))
        if not self._has_begun:
            raise msgspec.ValidationError("it has no choices")

    def _add_chunk(self, chunk: _Chunk) -> None:
        if has_value(chunk.error):
            raise stream_error(chunk.error)
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage, with_cost=self._quirks.reports_cost)
        # We never ask for more than one choice.
        for choice in (chunk.choices or ())[:1]:
            self._has_begun = True
            if message := choice.delta or choice.message:
                self._add_message(message)
            if choice.logprobs is not None:
                self.add_logprobs(choice.logprobs.content)
            self._end(choice.finish_reason)

    def _add_message(self, message: _ChoiceMessage) -> None:
        thought = message.reasoning_content or message.reasoning
        self.add_reasoning(thought)
        match self._quirks.reasoning_field:
            case "reasoning_content" if thought:
                self._thought.append(thought)
            case "reasoning_details":
                for detail in message.reasoning_details or ():
                    self.characters += _add_detail(self._details, detail)
            case _:
                pass
        if isinstance(message.content, list):
            for piece in message.content:
                self.add_text(piece.text)
                for inner in piece.thinking or ():
                    self.add_reasoning(inner.text)
        else:
            self.add_text(message.content)
        self.add_refusal(message.refusal)
        for number, call in enumerate(message.tool_calls or ()):
            custom, function = call.custom, call.function
            if custom is None and function is None:
                raise msgspec.ValidationError("a call has no function")
            function = function or _Function()
            self.add_call(
                number if call.index is None else call.index,
                call_id=call.id or "",
                name=(function if custom is None else custom).name or "",
                arguments=(function.arguments if custom is None else custom.input) or "",
                is_text=custom is not None,
            )
            if call.extra_content:
                self.add_reasoning_block({"extra_content": call.extra_content}, self.calls)

    def _end(self, reason: str | None) -> None:
        match reason:
            case None | "":
                return
            # Usage comes after the end, and is paid for also by a useless answer.
            case "length":
                self._fail = self.fail_cut_off
            case "content_filter":
                self._fail = self.fail_filtered
            case _:
                pass
        self.is_complete = True

    def build(self) -> AssistantMessage:
        if self._fail is not None:
            self._fail()
        if self._thought:
            text = "".join(self._thought)
            self.add_reasoning_block({"reasoning_content": text}, 0)
        if self._details:
            self.add_reasoning_block({"reasoning_details": self._details}, 0)
        return super().build()


def _add_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> int:
    """Add a piece of reasoning to the one that it goes on with, and return how long it is."""
    length = sum(len(value) for value in piece.values() if isinstance(value, str))
    last = details[-1] if details else {}
    same = ("type", "index")
    if not last or any(last.get(it) != piece.get(it) for it in same):
        details.append(dict(piece))
        return length
    for name, value in piece.items():
        if name in {"text", "summary", "data"} and isinstance(value, str):
            last[name] = (last.get(name) or "") + value
        elif value is not None:
            last[name] = value
    return length


def _usage(used: _UsageFields, *, with_cost: bool) -> Usage:
    read = used.prompt_tokens_details or _TokenDetails()
    wrote = used.completion_tokens_details or _TokenDetails()
    is_billed = with_cost and used.cost is not None and used.cost >= 0
    return Usage(
        calls=1,
        input_tokens=used.prompt_tokens or 0,
        output_tokens=used.completion_tokens or 0,
        # Of most providers, a price comes from the price table, if at all.
        micro_usd=round(used.cost * 1_000_000) if is_billed and used.cost else 0,
        unpriced=int(not is_billed),
        cached_tokens=read.cached_tokens or 0,
        reasoning_tokens=wrote.reasoning_tokens or 0,
    )
