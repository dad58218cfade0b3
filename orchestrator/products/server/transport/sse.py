"""Server-sent events: a response of many events, with heartbeats between them and one end.

A client that stops reading is disconnected, and may return with the id of its last event: no run
waits for a slow reader. A stream ends with its key: when the key expires, or at the first event,
heartbeat or request of any client after the key was revoked.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from orchestrator.agents import raising_one_error
from orchestrator.delegation import DelegationError
from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.transport import errors
from orchestrator.products.server.transport.http11 import CLIENT_LEFT, DISCONNECT, Disconnect

if TYPE_CHECKING:
    from orchestrator.products.server.served_journal import ServedJournal

SSE_MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = b": still here\n\n"
HEARTBEAT_SECONDS: Final = 15
"""The longest silence: proxies close connections that are silent for longer."""
WRITE_SECONDS: Final = 30
"""The seconds after which a client that reads nothing is disconnected."""
LAST_EVENTS_SECONDS: Final = 0.5
"""The seconds that a stream may still send events after the shutdown began."""
SERVER_ENDS: Final = (
    "the server is shutting down, and the run goes on when it starts again: come back with the"
    " number of the last event"
)
JOURNAL_MOVES: Final = (
    "another server goes on with this run: come back with the number of the last event"
)
SERVER_ENDED_RUN: Final = "the server is shutting down, and the run ends with it"
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
NO_HEADERS: Final[Mapping[str, str]] = {}
FAILURES: Final = (errors.HttpError, OrchestratorError, DelegationError)
"""The errors that end a stream with an event."""


LINE_ENDS: Final = {mark.encode(): f"\\u{ord(mark):04x}".encode() for mark in "\x85\u2028\u2029"}
"""Characters that JSON does not escape, and that some readers take for a line end."""


def _one_line(chunk: bytes) -> bytes:
    """Escape the characters that some readers take for line ends: all data is JSON."""
    for mark, escaped in LINE_ENDS.items():
        chunk = chunk.replace(mark, escaped)
    return chunk


class EventWriter:
    """Writes the events of one stream. The first write begins the response."""

    def __init__(
        self, send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], access: Access
    ) -> None:
        self._send = send
        self._access = access
        self._start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        self._beginning = trio.Lock()
        self._held = b""
        """The events that are sent with the next one."""
        self.has_begun = False
        self.is_sending = False
        self.quiet_since = trio.current_time()

    async def begin(self) -> None:
        """Send the status and the headers, once."""
        with trio.fail_after(WRITE_SECONDS):
            await self._begin()
            # A response begins with its body.
            await self._send(_body(b""))

    async def _begin(self) -> None:
        # An event of another task waits until the response has begun.
        async with self._beginning:
            if not self.has_begun:
                await self._send(self._start)
                self.has_begun = True

    async def end(self, last: bytes = b"") -> None:
        """End the response with its last event, which is sent even if the key has ended."""
        with trio.fail_after(WRITE_SECONDS):
            await self._begin()
            held, self._held = self._held, b""
            await self._send(_body(held + last, more=False))

    def hold(self, chunk: bytes) -> None:
        """Send events with the next write, or when a heartbeat is due."""
        self._held += chunk if chunk.isascii() else _one_line(chunk)

    async def send_event(
        self, data: bytes, *, name: str = "", id_: str | int | None = None
    ) -> None:
        """Send one event. Its data is JSON, so it is one line."""
        await self.write(encode_event(data, name=name, id_=id_))

    async def write(self, chunk: bytes) -> None:
        """Send events. A client that does not read them is disconnected by `watch`."""
        if not self._access.is_valid():
            # The access has seen the end of the key, too, and is about to cancel the stream.
            await trio.sleep_forever()
        self.quiet_since = trio.current_time()
        self.is_sending = True
        if not self.has_begun:
            await self._begin()
        if not chunk.isascii():
            chunk = _one_line(chunk)
        if self._held:
            chunk, self._held = self._held + chunk, b""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.is_sending = False

    async def watch(self, shutdown: trio.Event, reading: trio.CancelScope) -> None:
        """Send a comment after each silence; cancel `reading` when the client reads nothing."""
        while not shutdown.is_set():
            since = self.quiet_since
            due = since + HEARTBEAT_SECONDS
            if self.is_sending and trio.current_time() >= due:
                due = since + WRITE_SECONDS
            with trio.move_on_at(due):
                await shutdown.wait()
            if shutdown.is_set() or self.quiet_since != since:
                continue
            if not (self.has_begun or self.is_sending or self._held):
                self.quiet_since = trio.current_time()
            elif not self.is_sending:
                with trio.fail_after(WRITE_SECONDS):
                    await self.write(b"" if self._held else HEARTBEAT)
            elif trio.current_time() >= since + WRITE_SECONDS:
                reading.cancel(reason="the client reads nothing")
        await trio.lowlevel.checkpoint()


def _body(chunk: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


def encode_event(data: bytes, *, name: str = "", id_: str | int | None = None) -> bytes:
    """Return one event. Its data is JSON, so it is one line."""
    head = b"" if id_ is None else f"id: {id_}\n".encode()
    if name:
        head += f"event: {name}\n".encode()
    return b"%bdata: %b\n\n" % (head, data)


Produce: TypeAlias = Callable[[EventWriter], Awaitable[None]]
OwnedWork: TypeAlias = Callable[[], Awaitable[object]]
EncodeError: TypeAlias = Callable[[errors.HttpError], bytes]


def encode_error_body(error: errors.HttpError) -> bytes:
    return msgspec.json.encode(errors.ErrorBody(error.problem))


class EventStream(Response):
    """A response that lasts until all events are produced, or the client disconnects."""

    media_type = SSE_MEDIA_TYPE

    def __init__(
        self,
        produce: Produce,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        owned_work: OwnedWork | None = None,
        encode_error: EncodeError = encode_error_body,
        error_name: str = "error",
        begins_at_first_event: bool = False,
    ) -> None:
        """Respond with a stream.

        Args:
            produce: sends all events, and returns. It is cancelled when the client disconnects. An
                `HttpError` that it raises ends the stream with an error event.
            headers: sent in addition to the stream's own headers.
            owned_work: work for this client only. It begins before the response, and is cancelled
                when the stream ends.
            encode_error: encodes the error that ends a stream as its last event.
            error_name: the name of that event.
            begins_at_first_event: send status and headers with the first event, not at once. Until
                then an error is the response itself, with its own status. `produce` holds an
                event at its start, which begins the response when a heartbeat is due.
        """
        super().__init__(headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._produce = produce
        self._owned_work = owned_work
        self._encode_error = encode_error
        self._error_name = error_name
        self._begins_at_first_event = begins_at_first_event
        self._failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        # `watch` disconnects a client that stops reading.
        with suppress(trio.TooSlowError), raising_one_error():
            # Owns the work for this client, which ends with the block.
            async with trio.open_nursery() as nursery:
                disconnect: Disconnect | None = state.get(DISCONNECT)
                if disconnect is None:
                    async with cancelled_on_disconnect(scope, receive, nursery.cancel_scope):
                        await self._stream(scope, receive, send, nursery)
                else:
                    with disconnect.cancels(nursery.cancel_scope):
                        await self._stream(scope, receive, send, nursery)
                nursery.cancel_scope.cancel(reason="the stream is complete")
        # Not earlier: until the nursery is entered, no task ends the owned work.
        await trio.lowlevel.checkpoint()

    async def _stream(
        self, scope: Scope, receive: Receive, send: Send, nursery: trio.Nursery
    ) -> None:
        """Send all events and the end of the stream."""
        state = scope["state"]
        access: Access = state["access"]
        produce_scope = trio.CancelScope()
        if self._owned_work is not None:
            nursery.start_soon(self._run_owned_work, self._owned_work, produce_scope)
        writer = EventWriter(send, self.status_code, self.raw_headers, access)
        if not self._begins_at_first_event:
            await writer.begin()
        error: errors.HttpError | None = None
        if scope["method"] != "HEAD":
            shutdown: trio.Event = state["shutdown"]
            nursery.start_soon(_watch, writer, shutdown, nursery.cancel_scope, produce_scope)
            is_complete = False
            with access.cancels(produce_scope), produce_scope:
                try:
                    await self._produce(writer)
                    is_complete = True
                except FAILURES as exc:
                    self._failure = exc
            if not is_complete:
                error = self._early_end(shutdown, state.get("journal"))
            if not access.is_valid():
                error = errors.key_ended()
        if error is not None and not writer.has_begun:
            await error.response()(scope, receive, send)
        else:
            last = b""
            if error is not None:
                data = self._encode_error(error)
                last = encode_event(data, name=self._error_name)
            await writer.end(last)

    def _early_end(self, shutdown: trio.Event, journal: "ServedJournal | None") -> errors.HttpError:
        """Return the error that ends the stream before all events were sent."""
        if isinstance(self._failure, errors.HttpError):
            return self._failure
        if self._failure is not None:
            is_stopping = shutdown.is_set() or (journal is not None and journal.is_stopping)
            return errors.to_http_error(self._failure, is_stopping=is_stopping)
        if journal is not None and journal.is_moving and self._owned_work is None:
            return errors.server_stopping(JOURNAL_MOVES)
        return errors.server_stopping(SERVER_ENDS if self._owned_work is None else SERVER_ENDED_RUN)

    async def _run_owned_work(self, owned_work: OwnedWork, produce_scope: trio.CancelScope) -> None:
        try:
            await owned_work()
        except FAILURES as exc:
            self._failure = exc
        if self._failure is not None:
            produce_scope.cancel(reason="the work failed, and no more events will come")
        await trio.lowlevel.checkpoint()


async def _watch(
    writer: EventWriter,
    shutdown: trio.Event,
    reading: trio.CancelScope,
    produce_scope: trio.CancelScope,
) -> None:
    """Watch a stream, and cancel it soon after the shutdown began."""
    await writer.watch(shutdown, reading)
    # Runs that were just cancelled still send their outcome.
    await trio.sleep(LAST_EVENTS_SECONDS)
    produce_scope.cancel(reason="the server is shutting down")


async def wait_unless_disconnected(request: Request, wait: Callable[[], Awaitable[object]]) -> bool:
    """Run `wait` until the client disconnects or its key ends; return whether it finished."""
    is_done = False
    access: Access = request.scope["state"]["access"]
    disconnect: Disconnect | None = request.scope["state"].get(DISCONNECT)
    with trio.CancelScope() as scope, access.cancels(scope):
        if disconnect is not None:
            with disconnect.cancels(scope):
                await wait()
                is_done = True
        else:
            async with cancelled_on_disconnect(request.scope, request.receive, scope):
                await wait()
                is_done = True
    return is_done  # noqa: ASYNC910 (the wait checkpoints)


@asynccontextmanager
async def cancelled_on_disconnect(
    scope: Scope, receive: Receive, cancelled: trio.CancelScope
) -> AsyncGenerator[None]:
    """Cancel a scope if the client disconnects before the block ends."""
    disconnect: Disconnect | None = scope["state"].get(DISCONNECT)
    if disconnect is not None:
        with disconnect.cancels(cancelled):
            yield
        return
    # Another ASGI server tells of a disconnect only through `receive`.
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_told, receive, cancelled)
            yield
            nursery.cancel_scope.cancel(reason="the block has ended")


async def _cancel_when_told(receive: Receive, cancelled: trio.CancelScope) -> None:
    await trio.lowlevel.checkpoint()
    kind = ""
    while kind != "http.disconnect":
        kind = (await receive())["type"]
    cancelled.cancel(reason=CLIENT_LEFT)
