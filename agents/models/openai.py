"""OpenAI's chat completions, and whatever speaks the same protocol at another address."""

from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec

from agents.errors import ModelError
from agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agents.models.model import ModelRequest
from agents.tools.tool import Tool

BASE_URL = "https://api.openai.com/v1"
# A model may think for minutes before its first byte; a server that is there accepts at once.
TIMEOUT = httpx2.Timeout(600, connect=10, pool=None)
SHOWN_OF_AN_ERROR = 500


class OpenAIModel:
    """Asks one model over HTTP."""

    def __init__(self, model: str, *, key: str, base_url: str | None = None) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._key = key.strip()
        self._client = httpx2.AsyncClient(
            base_url=base_url or BASE_URL,
            headers={"Authorization": f"Bearer {key}"},
            timeout=TIMEOUT,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(_messages(request)),
        }
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        try:
            response = await self._client.post("/chat/completions", json=body)
        except httpx2.HTTPError as exc:
            problem = f"cannot be reached: {type(exc).__name__}: {exc}"
            raise self._error(problem) from exc
        beginning = response.text[:SHOWN_OF_AN_ERROR]
        if not response.is_success:
            raise self._error(f"answered with HTTP {response.status_code}: {beginning}")
        try:
            completion = msgspec.json.decode(response.content, type=_Completion)
            said = completion.choices[0].message
            calls = tuple(_call(call) for call in said.tool_calls or ())
        except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as exc:
            problem = f"gave an answer that is no chat completion ({exc}): {beginning}"
            raise self._error(problem) from exc
        return AssistantMessage(
            said.content or "",
            calls,
            Usage(
                calls=1,
                input_tokens=completion.usage.prompt_tokens,
                output_tokens=completion.usage.completion_tokens,
                # No table of prices ships yet, and a price is never guessed.
                unpriced=1,
            ),
            self.name,
        )

    def _error(self, what: str) -> ModelError:
        # Servers and clients quote what they got, and errors are read by many.
        for part in self._key.split():
            what = what.replace(part, "***")
        return ModelError(f"{self.name} {what}")


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: CallId
    function: _Function


class _Said(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Used(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct):
    """What we read of an answer; servers that speak the protocol add much of their own."""

    choices: list[_Choice]
    usage: _Used = msgspec.field(default_factory=_Used)


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.instructions:
        yield {"role": "system", "content": request.instructions}
    for message in request.transcript:
        yield _wire_message(message)


def _wire_message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text):
            return {"role": "user", "content": text}
        case ToolMessage(call, text):
            return {"role": "tool", "tool_call_id": call, "content": text}
        case AssistantMessage(text, ()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text, calls):
            return {
                "role": "assistant",
                "content": text or None,
                "tool_calls": [_wire_call(call) for call in calls],
            }


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _call(call: _Call) -> ToolCall:
    arguments = msgspec.json.decode(
        call.function.arguments or "{}", type=dict[str, Any]
    )
    return ToolCall(call.function.name, arguments, id=call.id)


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }
