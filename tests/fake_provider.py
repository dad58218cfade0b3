"""A real HTTP server on loopback that speaks all three protocols, and misbehaves on demand.

It refuses what the real ones refuse. Run as a process of its own (`python -m tests.fake_provider`)
it prints its port and answers everything with a few words, for benchmarks.
"""

import base64
import binascii
import enum
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar

import attrs
import h11
import trio

from orchestrator.agents import ToolCall
from tests.provider_rules import (
    ENCRYPTED,
    check_chat,
    check_messages,
    check_responses,
    signature_of,
)
from tests.service_rules import check_service, without_service_fields


class Then(enum.Enum):
    """The end of a cut stream."""

    END = "end"
    HANG_UP = "hang up"
    SILENCE = "silence"


@attrs.frozen(kw_only=True)
class Say:
    """The answer of the model, in any protocol."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    stop: str = ""
    """The reason for the end, in the words of the protocol; else the usual one."""
    read: int = 0
    cached: int = 0
    wrote: int = 0
    thought: int = 0
    has_logprobs: bool = False
    """Each piece of the text comes with its probability, and one that could have been there."""
    is_plain: bool = False
    """The server ignores that a stream was asked for."""
    cut: int | None = None
    """After how many events the stream does what comes then."""
    then: Then = Then.END


@attrs.frozen
class Raw:
    """Raw bytes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=lambda: {"content-type": "application/json"})


@attrs.frozen(kw_only=True)
class Flood:
    """Bytes as they are on the wire, without end: until the client leaves."""

    head: bytes = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    piece: bytes
    pause: float = 0
    """The seconds between two pieces."""


Reply: TypeAlias = Say | Raw | Flood | Then


def chunk(data: bytes) -> bytes:
    """Return data as one chunk of HTTP."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(*events: object, **more: str) -> Raw:
    """Return a stream of just these events."""
    body = b"".join(
        b"data: %s\n\n" % (event if isinstance(event, bytes) else encode(event)) for event in events
    )
    return Raw(body, headers={"content-type": "text/event-stream", **more})


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@attrs.frozen
class Heard:
    """A request, as the server got it."""

    path: str
    headers: Mapping[str, str]
    body: Any


class FakeProvider:
    """Gives its replies one after the other, and is silent when there are none left."""

    def __init__(self, usual: Reply = Then.SILENCE) -> None:
        self.url = ""
        self.replies: list[Reply] = []
        self.heard: list[Heard] = []
        self.connections = 0
        self.was_left = trio.Event()
        self.choose: Callable[[], Reply] | None = None
        """Gives each reply, instead of the list."""
        self._usual = usual
        self._was_asked = trio.Event()

    async def wait_asked(self, times: int = 1) -> None:
        while len(self.heard) < times:
            await self._was_asked.wait()

    def _next_reply(self) -> Reply:
        if self.choose is not None:
            return self.choose()
        return self.replies.pop(0) if self.replies else self._usual

    async def serve(self, connection: trio.SocketStream) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER)
        async with connection:
            try:
                while (heard := await _hear(http, connection)) is not None:
                    self.heard.append(heard)
                    self._was_asked.set()
                    self._was_asked = trio.Event()
                    match await self.answer(http, connection, heard):
                        case Then.HANG_UP:
                            return
                        case Then.SILENCE:
                            break
                        case Then.END:
                            pass
            except (trio.BrokenResourceError, h11.RemoteProtocolError):
                # A client that was cancelled leaves in the midst of a message, ours or its own.
                pass
            self.was_left.set()

    async def answer(
        self, http: h11.Connection, connection: trio.SocketStream, heard: Heard
    ) -> Then:
        """Answer one request, and return what becomes of the connection."""
        return await send_reply(http, connection, heard, self._next_reply())


ProviderT = TypeVar("ProviderT", bound=FakeProvider)


@asynccontextmanager
async def open_provider(usual: Reply = Then.SILENCE) -> AsyncIterator[FakeProvider]:
    async with serving(FakeProvider(usual)) as provider:
        yield provider


@asynccontextmanager
async def serving(provider: ProviderT) -> AsyncIterator[ProviderT]:
    """Let a provider listen at a free port, as long as the block lasts."""
    async with trio.open_nursery() as connections:
        serve = partial(trio.serve_tcp, provider.serve, 0, host="127.0.0.1")
        (listener,) = await connections.start(serve)
        provider.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        yield provider
        connections.cancel_scope.cancel()


async def _hear(http: h11.Connection, connection: trio.SocketStream) -> Heard | None:
    path, headers, body = "", dict[str, str](), b""
    while True:
        match http.next_event():
            case h11.Request() as request:
                path = request.target.decode()
                headers = {key.decode(): value.decode() for key, value in request.headers}
            case h11.Data(data=data):
                body += data
            case h11.EndOfMessage():
                return Heard(path, headers, json.loads(body))
            case h11.ConnectionClosed():
                return None
            case _:
                http.receive_data(await connection.receive_some())


async def send_reply(
    http: h11.Connection, connection: trio.SocketStream, heard: Heard, reply: Reply
) -> Then:
    """Send a reply in the protocol of the request."""
    if reply is Then.HANG_UP:
        return Then.HANG_UP
    if isinstance(reply, Then):
        # A client that leaves ends the connection.
        await connection.receive_some()
        return Then.SILENCE
    if isinstance(reply, Flood):
        await connection.send_all(reply.head)
        while True:
            await connection.send_all(reply.piece)
            await trio.sleep(reply.pause)
    if isinstance(reply, Raw):
        status, headers, sent = reply.status, reply.headers, [reply.body]
    else:
        status, headers, sent = _said(heard, reply)
    start = h11.Response(
        status_code=status, headers=[*headers.items(), ("transfer-encoding", "chunked")]
    )
    await connection.send_all(http.send(start) or b"")
    for piece in sent:
        await connection.send_all(http.send(h11.Data(data=piece)) or b"")
    if isinstance(reply, Say) and reply.cut is not None and reply.then is not Then.END:
        return await send_reply(http, connection, heard, reply.then)
    await connection.send_all(http.send(h11.EndOfMessage()) or b"")
    http.start_next_cycle()
    return Then.END


def _said(heard: Heard, say: Say) -> tuple[int, Mapping[str, str], list[bytes]]:
    protocol = PROTOCOLS[_kind_of(heard.path)]
    try:
        check_service(heard.path, heard.headers, heard.body)
        protocol.check(without_service_fields(heard.path, heard.body))
    except AssertionError as exc:
        problem = {"error": {"message": f"invalid request: {exc}"}}
        return 400, {"content-type": "application/json"}, [encode(problem)]
    is_aws = heard.path.endswith("/invoke-with-response-stream")
    if say.is_plain or not (is_aws or heard.body.get("stream")):
        return 200, {"content-type": "application/json"}, [encode(protocol.plain(say))]
    events = list(protocol.events(say))[: say.cut]
    if is_aws:
        frames = [aws_frame(event.partition(b"data: ")[2].strip()) for event in events]
        return 200, {"content-type": "application/vnd.amazon.eventstream"}, frames
    return 200, {"content-type": "text/event-stream; charset=utf-8"}, events


def _kind_of(path: str) -> str:
    """Return the protocol of a path, which each service has at an address of its own."""
    if path.endswith((":streamRawPredict", ":rawPredict")) or "/invoke" in path:
        return "/messages"
    return next(kind for kind in PROTOCOLS if path.endswith(kind))


def aws_frame(event: bytes, **headers: str) -> bytes:
    """Return an event of the messages protocol as a frame of an AWS event stream."""
    payload = encode({"bytes": base64.b64encode(event).decode(), "p": "abc"})
    head = b""
    named = {":event-type": "chunk", ":content-type": "application/json"}
    for name, value in {**named, ":message-type": "event", **headers}.items():
        head += bytes([len(name)]) + name.encode() + b"\x07"
        head += struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + head + payload
    return whole + struct.pack(">I", binascii.crc32(whole))


def _event(data: object, name: str = "") -> bytes:
    encoded = data if isinstance(data, bytes) else encode(data)
    return (f"event: {name}\n".encode() if name else b"") + b"data: %s\n\n" % encoded


def _pieces(text: str) -> Iterator[str]:
    """Cut a text the way models write it, in a few letters at a time."""
    return (text[start : start + 5] for start in range(0, len(text), 5))


def logprob_of(piece: str) -> dict[str, Any]:
    """Return how likely a piece of a text is, as OpenAI says it."""
    token = {"token": piece, "logprob": -0.25, "bytes": list(piece.encode())}
    other = {"token": piece.upper(), "logprob": -2.5, "bytes": None}
    return {**token, "top_logprobs": [other]}


def _logprobs(say: Say) -> list[dict[str, Any]]:
    return [logprob_of(it) for it in _pieces(say.text)] if say.has_logprobs else []


def _chat_usage(say: Say) -> dict[str, Any]:
    return {
        "prompt_tokens": say.read,
        "completion_tokens": say.wrote,
        "total_tokens": say.read + say.wrote,
        "prompt_tokens_details": {"cached_tokens": say.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": say.thought},
    }


def _chat_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _chat_stop(say: Say) -> str:
    return say.stop or ("tool_calls" if say.calls else "stop")


def chat_plain(say: Say) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": say.text or None,
        "refusal": say.refusal or None,
        "annotations": [],
    }
    if say.thinking:
        message["reasoning_content"] = say.thinking
    if say.calls:
        message["tool_calls"] = [_chat_call(call) for call in say.calls]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": _chat_stop(say),
                "logprobs": {"content": _logprobs(say)} if say.has_logprobs else None,
            }
        ],
        "usage": _chat_usage(say),
    }


def chat_events(say: Say) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        if say.has_logprobs and delta.get("content"):
            choice["logprobs"] = {"content": [logprob_of(delta["content"])]}
        return _event({**frame, "choices": [choice], "usage": None})

    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "fake"}
    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(say.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(say.text):
        yield chunk({"content": piece})
    for piece in _pieces(say.refusal):
        yield chunk({"refusal": piece})
    for index, call in enumerate(say.calls):
        first = _chat_call(call)
        arguments = first["function"]["arguments"]
        first["function"]["arguments"] = ""
        yield chunk({"tool_calls": [{"index": index, **first}]})
        for piece in _pieces(arguments):
            part = {"index": index, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [part]})
    yield chunk({}, _chat_stop(say))
    yield _event({**frame, "choices": [], "usage": _chat_usage(say)})
    yield _event(b"[DONE]")


def _response_items(say: Say) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if say.thinking:
        thought = {"type": "reasoning_text", "text": say.thinking}
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [thought]}
        items.append({**item, "encrypted_content": ENCRYPTED})
    if say.text or say.refusal:
        content: list[dict[str, Any]] = []
        if say.text:
            content.append(
                {
                    "type": "output_text",
                    "text": say.text,
                    "annotations": [],
                    "logprobs": _logprobs(say),
                }
            )
        if say.refusal:
            content.append({"type": "refusal", "refusal": say.refusal})
        items.append({"type": "message", "id": "msg_1", "content": content})
    items += [
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in say.calls
    ]
    return items


def responses_plain(say: Say) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "incomplete" if say.stop else "completed",
        "incomplete_details": {"reason": say.stop} if say.stop else None,
        "error": None,
        "output": _response_items(say),
        "usage": {
            "input_tokens": say.read,
            "input_tokens_details": {"cached_tokens": say.cached},
            "output_tokens": say.wrote,
            "output_tokens_details": {"reasoning_tokens": say.thought},
            "total_tokens": say.read + say.wrote,
        },
    }


def responses_events(say: Say) -> Iterator[bytes]:
    def event(kind: str, **data: object) -> bytes:
        return _event({"type": kind, "sequence_number": 0, **data}, kind)

    whole = responses_plain(say)
    created = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=created)
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        begun = {**item, "content": [], "arguments": ""}
        yield event("response.output_item.added", output_index=place, item=begun)
        for part in item.get("content", ()):
            kind = {
                "output_text": "response.output_text.delta",
                "refusal": "response.refusal.delta",
                "reasoning_text": "response.reasoning_text.delta",
            }[part["type"]]
            for piece in _pieces(part.get("text") or part.get("refusal")):
                odds = [logprob_of(piece)] if part.get("logprobs") else []
                yield event(kind, **at, content_index=0, delta=piece, logprobs=odds)
        for piece in _pieces(item.get("arguments", "")):
            yield event("response.function_call_arguments.delta", **at, delta=piece)
        yield event("response.output_item.done", output_index=place, item=item)
    yield event(f"response.{whole['status']}", response=whole)


def _blocks(say: Say) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if say.thinking:
        block = {"type": "thinking", "thinking": say.thinking}
        blocks.append({**block, "signature": signature_of(say.thinking)})
    if say.text:
        blocks.append({"type": "text", "text": say.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in say.calls
    ]
    return blocks


def messages_plain(say: Say) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": _blocks(say),
        "stop_reason": say.stop
        or ("refusal" if say.refusal else "tool_use" if say.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            # The rest of what was read was just written to the cache.
            "input_tokens": (say.read - say.cached) // 2,
            "cache_creation_input_tokens": -(-(say.read - say.cached) // 2),
            "cache_read_input_tokens": say.cached,
            "output_tokens": say.wrote,
            "output_tokens_details": {"thinking_tokens": say.thought},
        },
    }


def messages_events(say: Say) -> Iterator[bytes]:
    def event(kind: str, **data: object) -> bytes:
        return _event({"type": kind, **data}, kind)

    whole = messages_plain(say)
    used = whole["usage"]
    begun = {**used, "output_tokens": 1, "output_tokens_details": None}
    message = {**whole, "content": [], "stop_reason": None, "usage": begun}
    yield event("message_start", message=message)
    yield event("ping")
    for index, block in enumerate(whole["content"]):
        kind, field, delta = {
            "thinking": ("thinking", "thinking", "thinking_delta"),
            "text": ("text", "text", "text_delta"),
            "tool_use": ("partial_json", "input", "input_json_delta"),
        }[block["type"]]
        is_call = field == "input"
        text = json.dumps(block[field]) if is_call else block[field]
        empty: object = {} if is_call else ""
        begun = {**block, field: empty, **({"signature": ""} if kind == "thinking" else {})}
        yield event("content_block_start", index=index, content_block=begun)
        for piece in _pieces(text):
            part = {"type": delta, kind: piece}
            yield event("content_block_delta", index=index, delta=part)
        if field == "thinking":
            part = {"type": "signature_delta", "signature": block["signature"]}
            yield event("content_block_delta", index=index, delta=part)
        yield event("content_block_stop", index=index)
    yield event(
        "message_delta",
        delta={"stop_reason": whole["stop_reason"], "stop_sequence": None},
        usage={
            "output_tokens": used["output_tokens"],
            "output_tokens_details": used["output_tokens_details"],
        },
    )
    yield event("message_stop")


@attrs.frozen
class Protocol:
    """How one provider is spoken to."""

    check: Callable[[dict[str, Any]], None]
    plain: Callable[[Say], dict[str, Any]]
    events: Callable[[Say], Iterator[bytes]]


PROTOCOLS = {
    "/chat/completions": Protocol(check_chat, chat_plain, chat_events),
    "/responses": Protocol(check_responses, responses_plain, responses_events),
    "/messages": Protocol(check_messages, messages_plain, messages_events),
}


async def _serve_forever() -> None:
    usual = Say(text="a few words, and no more", read=20, wrote=5)
    async with open_provider(usual) as provider:
        print(provider.url, flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(_serve_forever)
