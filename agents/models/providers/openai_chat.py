"""OpenAI's chat completions, and whatever speaks the same protocol at another address."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from agents.messages import AssistantMessage, Part, Usage
from agents.models.http.answer_builder import Draft
from agents.models.http.endpoint import SILENCE, Endpoint, host_of
from agents.models.http.provider_errors import failed_midway
from agents.models.http.strict_schema import WRAPPED_IN, Shape, shape_of
from agents.models.http.wire_transcript import (
    IMAGES,
    PDF,
    Exchange,
    Said,
    Told,
    address_of,
    as_json,
    block_of,
    projected,
    quoted,
    unsendable,
)
from agents.models.model import ModelRequest
from agents.tools.tool import Tool

HOST: Final = "api.openai.com"
BASE_URL: Final = f"https://{HOST}/v1"


class OpenAIModel:
    """Asks one model over HTTP."""

    def __init__(
        self,
        model: str,
        *,
        key: str,
        base_url: str | None = None,
        silence: float = SILENCE,
    ) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._cap = cap_at(base_url or BASE_URL)
        self._endpoint = Endpoint(
            self.name,
            f"{(base_url or BASE_URL).rstrip('/')}/chat/completions",
            headers=bearer(key),
            key=key,
            silence=silence,
        )

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        shape = None if request.output is None else shape_of(request.output)
        return await self._endpoint.ask(
            completion_request(self._model, request, shape, cap=self._cap),
            _Completion(request, self.name, shape),
        )


def bearer(key: str) -> dict[str, str]:
    """Return the header that carries a key; a server of one's own may need none."""
    return {"authorization": f"Bearer {key}"} if key else {}


def cap_at(url: str) -> str:
    """Return what the longest answer is called at an address.

    OpenAI's newer models refuse the old name, and many other servers know only that.
    """
    host = host_of(url)
    # Each region has an address of its own, such as eu.api.openai.com.
    is_home = host == HOST or host.endswith(f".{HOST}")
    return "max_completion_tokens" if is_home else "max_tokens"


def completion_request(
    model: str,
    request: ModelRequest,
    shape: Shape | None,
    *,
    cap: str = "max_completion_tokens",
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": list(_messages(request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_output is not None:
        body[cap] = request.max_output
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if shape is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": WRAPPED_IN,
                "schema": shape.schema,
                "strict": shape.is_strict,
            },
        }
    return body


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.instructions.strip():
        yield {"role": "system", "content": request.instructions}
    for spoken in projected(request.transcript):
        match spoken:
            case Told(text, ()):
                yield {"role": "user", "content": text}
            case Told(text, parts):
                content = [block_of(part, spoken, _part, text="text") for part in parts]
                if text:
                    content.append({"type": "text", "text": text})
                yield {"role": "user", "content": content}
            case Said(text, ()):
                yield {"role": "assistant", "content": text}
            case Said(text, exchanges):
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
        return {"type": "image_url", "image_url": {"url": address_of(part)}}
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
    file = {"filename": part.name or "file.pdf", "file_data": address_of(part)}
    return {"type": "file", "file": file}


def _call(exchange: Exchange) -> dict[str, Any]:
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


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    """How vLLM and DeepSeek say what the model thinks; OpenAI does not say it here."""
    reasoning: str | None = None
    """How OpenRouter and Ollama say it."""
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Said | None = None
    message: _Said | None = None
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


class _Completion(Draft):
    protocol = "chat completion"
    _has_begun = False
    _fail: Callable[[], NoReturn] | None = None

    def hear(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            if not self._has_begun:
                raise msgspec.ValidationError("it has no choices")
            self.is_whole = True
            return True
        self._take(msgspec.json.decode(data, type=_Chunk))
        return False

    def hear_all(self, body: bytes) -> None:
        self._take(msgspec.json.decode(body, type=_Chunk))
        if not self._has_begun:
            raise msgspec.ValidationError("it has no choices")

    def _take(self, chunk: _Chunk) -> None:
        if chunk.error:
            raise failed_midway(chunk.error)
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        # There is one choice, since we never ask for more.
        for choice in (chunk.choices or ())[:1]:
            self._has_begun = True
            if said := choice.delta or choice.message:
                self._take_in(said)
            self._end(choice.finish_reason)

    def _take_in(self, said: _Said) -> None:
        self.think(said.reasoning_content or said.reasoning)
        self.say(said.content)
        self.refuse(said.refusal)
        for number, call in enumerate(said.tool_calls or ()):
            self.call(
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
                self._fail = self.was_cut
            case "content_filter":
                self._fail = partial(self.was_refused, "its filter found something")
            case _:
                pass
        self.is_whole = True

    def finished(self) -> AssistantMessage:
        if self._fail is not None:
            self._fail()
        return super().finished()


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
