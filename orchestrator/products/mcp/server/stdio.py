"""MCP over stdin and stdout: one line of JSON for each message, and nothing else on stdout.

The two are taken before any other code runs, and printed text goes to stderr. The server ends with
its stdin: waiting calls are cancelled, and tasks go on when the next process begins.
"""

from contextlib import suppress
from typing import Any, Final, cast

import trio
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from orchestrator.agents import raising_one_error
from orchestrator.products.mcp.lines import LineReader, TooLong, Wire

LONGEST_LINE: Final = 10_000_000
"""How many bytes a message may have, as over HTTP."""
CHUNK: Final = 2**16


async def serve_stdio(protocol: Server[Any], wire: Wire) -> None:
    """Answer the messages on stdin, until it ends."""
    async with (
        trio.lowlevel.FdStream(wire.stdin) as stdin,
        trio.lowlevel.FdStream(wire.stdout) as stdout,
    ):
        inbound, received = trio.open_memory_channel[SessionMessage | Exception](0)
        sent, outbound = trio.open_memory_channel[SessionMessage](0)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read_messages, stdin, inbound, sent.clone())
                nursery.start_soon(_write_messages, outbound, stdout)
                options = protocol.create_initialization_options()
                # It closes both streams, and returns when the first has ended. Trio's channels
                # differ from its protocols in the names of two parameters.
                await protocol.run(cast("Any", received), cast("Any", sent), options)


async def _read_messages(
    stdin: trio.abc.ReceiveStream,
    messages: trio.MemorySendChannel[SessionMessage | Exception],
    answers: trio.MemorySendChannel[SessionMessage],
) -> None:
    """Pass on the incoming messages, and answer a line that is not a message."""
    lines = LineReader(LONGEST_LINE)
    async with messages, answers:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await stdin.receive_some(CHUNK):
                for line in lines.feed(chunk):
                    message = _message(line)
                    if message is None:
                        continue
                    if isinstance(message, JSONRPCError) and message.id is None:
                        await answers.send(SessionMessage(message))
                    else:
                        await messages.send(SessionMessage(message))


def _message(line: bytes | TooLong) -> JSONRPCMessage | None:
    """Return the message of a line, or the error that answers it; None if it is blank."""
    if isinstance(line, TooLong):
        return _refusal(INVALID_REQUEST, f"a message has more than {LONGEST_LINE:,} bytes")
    if not line.strip():
        return None
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as exc:
        is_json = all(it["type"] != "json_invalid" for it in exc.errors())
    except (ValueError, RecursionError):
        is_json = False
    if is_json:
        return _refusal(INVALID_REQUEST, "a line is one message of JSON-RPC, no batch")
    return _refusal(PARSE_ERROR, "a line is not JSON")


def _refusal(code: int, message: str) -> JSONRPCError:
    error = ErrorData(code=code, message=message)
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)


async def _write_messages(
    messages: trio.MemoryReceiveChannel[SessionMessage], stdout: trio.abc.SendStream
) -> None:
    """Write messages. When the reader is gone, the rest is dropped."""
    is_read = True
    async with messages:
        async for message in messages:
            if is_read:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await stdout.send_all(f"{text}\n".encode(errors="replace"))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    is_read = False
