"""OpenAI's chat completions, and whatever speaks the same protocol at another address."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Final, NoReturn

import msgspec

from agents.messages import AssistantMessage, Part, Usage
from agents.models.http.answer_builder import AnswerBuilder
from agents.models.http.provider_errors import stream_error
from agents.models.http.strict_schema import (
    WRAPPER_FIELD,
    ProviderSchema,
)
from agents.models.http.url import host_of
from agents.models.http.wire_transcript import (
    IMAGES,
    PDF,
    AnsweredCall,
    WireAssistantMessage,
    WireUserMessage,
    as_json,
    block_of,
    quoted,
    unsendable,
    url_of,
    wire_transcript,
)
from agents.models.model import ModelRequest
from agents.models.providers.http_model import HttpModel
from agents.tools.tool import Tool

HOST: Final = "api.openai.com"
BASE_URL: Final = f"https://{HOST}/v1"


class OpenAIModel(HttpModel):
    """A model that speaks OpenAI's chat completions."""

    provider = "openai"
    default_url = BASE_URL
    path = "/chat/completions"

    @cached_property
    def _limit_field(self) -> str:
        return output_limit_field(self._base_url)

    def _body(
        self, request: ModelRequest, schema: ProviderSchema | None
    ) -> dict[str, Any]:
        return completion_request(
            self._model, request, schema, limit_field=self._limit_field
        )

    def _builder(
        self, request: ModelRequest, schema: ProviderSchema | None
    ) -> AnswerBuilder:
        return _CompletionBuilder(request, self.name, schema)


def output_limit_field(url: str) -> str:
    """Return the name of the field that limits the answer, which depends on the server.

    OpenAI's newer models refuse the old name, and many other servers know only that one.
    """
    host = host_of(url)
    # Each region has an address of its own, such as eu.api.openai.com.
    is_home = host == HOST or host.endswith(f".{HOST}")
    return "max_completion_tokens" if is_home else "max_tokens"


def completion_request(
    model: str,
    request: ModelRequest,
    output_schema: ProviderSchema | None,
    *,
    limit_field: str = "max_completion_tokens",
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": list(_messages(request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_output is not None:
        body[limit_field] = request.max_output
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
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


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.instructions.strip():
        yield {"role": "system", "content": request.instructions}
    for spoken in wire_transcript(request.transcript):
        match spoken:
            case WireUserMessage(text, ()):
                yield {"role": "user", "content": text}
            case WireUserMessage(text, parts):
                content = [block_of(part, spoken, _part, text="text") for part in parts]
                if text:
                    content.append({"type": "text", "text": text})
                yield {"role": "user", "content": content}
            case WireAssistantMessage(text, ()):
                yield {"role": "assistant", "content": text}
            case WireAssistantMessage(text, exchanges):
                yield {
                    "role": "assistant",
                    "content": text or None,
                    "tool_calls": [_call(exchange) for exchange in exchanges],
                }
                for exchange in exchanges:
                    yield {
                        "role": "tool",
                        "tool_call_id": exchange.id,
                        "content": exchange.answer,
                    }


def _part(part: Part) -> dict[str, Any]:
    if part.media_type in IMAGES:
        return {"type": "image_url", "image_url": {"url": url_of(part)}}
    if part.media_type != PDF and not part.is_text:
        raise unsendable(
            part,
            "chat completions take PNG, JPEG, GIF and WebP images, PDFs and texts",
        )
    if part.url:
        raise unsendable(
            part,
            "chat completions fetch images only; give its bytes as data",
        )
    if part.is_text:
        return {"type": "text", "text": quoted(part)}
    # Without a name it is refused.
    file = {"filename": part.name or "file.pdf", "file_data": url_of(part)}
    return {"type": "file", "file": file}


def _call(exchange: AnsweredCall) -> dict[str, Any]:
    return {
        "id": exchange.id,
        "type": "function",
        "function": {
            "name": exchange.name,
            "arguments": as_json(exchange.arguments).decode(),
        },
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


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    index: int | None = None
    id: str | None = None


class _ChoiceMessage(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    """How vLLM and DeepSeek say what the model thinks; OpenAI does not say it here."""
    reasoning: str | None = None
    """How OpenRouter and Ollama say it."""
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _ChoiceMessage | None = None
    message: _ChoiceMessage | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Used(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    """What we read of an answer; servers that speak the protocol add much of their own."""

    choices: list[_Choice] | None = None
    usage: _Used | None = None
    error: Any = None


class _CompletionBuilder(AnswerBuilder):
    protocol = "chat completion"
    _has_begun = False
    _fail: Callable[[], NoReturn] | None = None

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
        if chunk.error:
            raise stream_error(chunk.error)
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        # There is one choice, since we never ask for more.
        for choice in (chunk.choices or ())[:1]:
            self._has_begun = True
            if said := choice.delta or choice.message:
                self._add_message(said)
            self._end(choice.finish_reason)

    def _add_message(self, said: _ChoiceMessage) -> None:
        self.add_reasoning(said.reasoning_content or said.reasoning)
        self.add_text(said.content)
        self.add_refusal(said.refusal)
        for number, call in enumerate(said.tool_calls or ()):
            self.add_call(
                number if call.index is None else call.index,
                call_id=call.id or "",
                name=call.function.name or "",
                arguments=call.function.arguments or "",
            )

    def _end(self, reason: str | None) -> None:
        match reason:
            case None | "":
                return
            # What it has used comes after the end, and is paid for all the same.
            case "length":
                self._fail = self.fail_cut_off
            case "content_filter":
                self._fail = partial(self.fail_refused, "its filter found something")
            case _:
                pass
        self.is_complete = True

    def build(self) -> AssistantMessage:
        if self._fail is not None:
            self._fail()
        return super().build()


def _usage(used: _Used) -> Usage:
    read = used.prompt_tokens_details or _Details()
    wrote = used.completion_tokens_details or _Details()
    return Usage(
        calls=1,
        input_tokens=used.prompt_tokens or 0,
        output_tokens=used.completion_tokens or 0,
        # Prices are known elsewhere, and never guessed.
        unpriced=1,
        cached_tokens=read.cached_tokens or 0,
        reasoning_tokens=wrote.reasoning_tokens or 0,
    )
