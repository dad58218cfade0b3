"""A server that is a command: one line of JSON for each message, on its stdin and stdout.

Its lines are read in linear time and bounded space. The command ends with the block, with all that
it started: stdin is closed, then it has a grace, TERM, and KILL.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import trio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)

from orchestrator.agents import raising_one_error
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import RunningCommand, open_program
from orchestrator.products.mcp.client.checked_messages import ClosedByBlock
from orchestrator.products.mcp.client.server_call import note_sent
from orchestrator.products.mcp.lines import HEAD, LineReader, TooLong

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

LONGEST_LINE: Final = 16 * 2**20
CHUNK: Final = 2**16
STDERR: Final = 2_000
"""How many characters of its stderr are kept, from the end."""
EXIT_SECONDS: Final = 2.0
"""How long a server may go on after its stdin was closed, before it is told to end."""
PARSED_IN_THREAD: Final = 2**18
"""A longer message would stall the event loop."""
LONGEST_SHOWN: Final = 200
# Where an answer says which request it is for; it comes early, or the answer is not ours to mend.
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')


class ServerLog:
    """The standard error of a server."""

    def __init__(self) -> None:
        self.stderr = OutputBuffer(head=0, tail=STDERR)
        self.exit_code: int | None = None
        self.strange_lines = 0
        """How many lines were no messages."""
        self.first_strange = ""
        self.held_by = ""
        """A sentence about the limits of its sandbox, if it has one."""
        self.too_long = 0
        """How many lines were too long to be read."""

    def note_strange(self, line: bytes) -> None:
        if not self.strange_lines:
            self.first_strange = line[:LONGEST_SHOWN].decode(errors="replace")
        self.strange_lines += 1


@asynccontextmanager
async def open_stdio(
    argv: tuple[str, ...],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    sandbox: TaskSandbox | None,
    tag: str,
    log: ServerLog,
) -> AsyncGenerator["TransportStreams"]:
    """Start a server, and give the streams of its messages.

    Without a sandbox it may touch all that the user may. Raise `ToolError` if it cannot be started.
    """
    async with open_program(
        argv, cwd=cwd, environ=environ, sandbox=sandbox, tag=tag, errors=log.stderr
    ) as program:
        stdin, stdout = program.streams
        inbound, received = trio.open_memory_channel[SessionMessage | Exception](0)
        sent, outbound = trio.open_memory_channel[bytes](0)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read_messages, stdout, inbound, log)
                nursery.start_soon(_write_messages, outbound, stdin)
                try:
                    # It is one but for the names of arguments that are given by place.
                    yield cast("ReadStream[Any]", received), _Writes(sent)
                finally:
                    await _end(program, stdin, received)  # noqa: ASYNC102 (shielded and bounded there)
                    log.exit_code = program.exit_code
                    nursery.cancel_scope.cancel()


async def _end(
    program: RunningCommand,
    stdin: trio.abc.SendStream,
    received: trio.MemoryReceiveChannel[SessionMessage | Exception],
) -> None:
    """Close a server's stdin, and wait a little until it has ended by that."""
    with trio.move_on_after(EXIT_SECONDS, shield=True):
        # Closed, so that its last words are read and dropped.
        received.close()
        await stdin.aclose()
        await program.wait()
    with trio.CancelScope(shield=True):
        await program.end()


class _Writes(ClosedByBlock["trio.MemorySendChannel[bytes]"]):
    """The stream of our messages (`mcp.client._transport.WriteStream`)."""

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._inner.send(f"{text}\n".encode(errors="replace"))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            # What the SDK expects of a stream.
            raise anyio.BrokenResourceError from exc
        note_sent()


async def _write_messages(
    lines: trio.MemoryReceiveChannel[bytes], stdin: trio.abc.SendStream
) -> None:
    """Write lines whole, whatever becomes of the calls that sent them."""
    async with lines:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for line in lines:
                await stdin.send_all(line)


async def _read_messages(
    stdout: trio.abc.ReceiveStream,
    messages: trio.MemorySendChannel[SessionMessage | Exception],
    log: ServerLog,
) -> None:
    """Read lines to their end, and pass on those that are messages."""
    lines = LineReader(LONGEST_LINE)
    async with messages:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await stdout.receive_some(CHUNK):
                for line in lines.feed(chunk):
                    if (message := await _message(line, log)) is not None:
                        await messages.send(SessionMessage(message))
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stdout.receive_some(CHUNK):
            pass


async def _message(line: bytes | TooLong, log: ServerLog) -> JSONRPCMessage | None:
    if isinstance(line, TooLong):
        log.too_long += 1
        why = f"its answer has more than {LONGEST_LINE:,} bytes"
        return failure_of(line.head, why)  # noqa: ASYNC910 (its caller waits for the next chunk)
    if not line.strip():
        return None  # noqa: ASYNC910
    try:
        if len(line) > PARSED_IN_THREAD:
            return await trio.to_thread.run_sync(_parsed, line)
        return _parsed(line)  # noqa: ASYNC910
    except ValueError:
        log.note_strange(line)
        why = "its answer is not a message of the protocol"
        return failure_of(line[:HEAD], why)  # noqa: ASYNC910


def _parsed(line: bytes) -> JSONRPCMessage:
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def failure_of(head: bytes, why: str) -> JSONRPCError | None:
    """Return an answer that cannot be read as the failure of its request, if it says which."""
    found = _ID.search(head)
    if found is None or b'"method"' in head[: found.start()]:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=why)
    return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
