"""Server-sent events: as many as there are, a heartbeat when there are none, and one end.

Whoever does not read is let go, and comes back with the id of the last event it has got: nobody
waits for a slow reader.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agents import raising_one_error
from delegation import DelegationError
from orchestrator.errors import OrchestratorError
from orchestrator.server.transport.errors import (
    ErrorBody,
    HttpError,
    server_stopping,
    to_http_error,
)

SSE_MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = b": still here\n\n"
HEARTBEAT_SECONDS: Final = 15
"""How long nothing may be sent: proxies close what is silent for longer."""
WRITE_SECONDS: Final = 30
"""How long a reader may take nothing before it is let go."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long a stream may take for its last events when the server ends."""
SERVER_ENDS: Final = (
    "the server ends, and what it was telling of goes on when it is started again: come back with"
    " the number of the last event"
)
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
NOTHING: Final[Mapping[str, str]] = {}


class EventWriter:
    """Where the events of one stream go."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = trio.Lock()
        self.quiet_since = trio.current_time()

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._send_in_time(
            {"type": "http.response.start", "status": status, "headers": headers}
        )

    async def end(self) -> None:
        await self._send_in_time({"type": "http.response.body", "more_body": False})

    async def send_event(
        self, data: bytes, *, name: str = "", id_: str | int | None = None
    ) -> None:
        """Send one event. Its data is JSON, so it is one line."""
        head = b"" if id_ is None else f"id: {id_}\n".encode()
        if name:
            head += f"event: {name}\n".encode()
        await self.write(b"%bdata: %b\n\n" % (head, data))

    async def write(self, chunk: bytes) -> None:
        self.quiet_since = trio.current_time()
        await self._send_in_time(
            {"type": "http.response.body", "body": chunk, "more_body": True}
        )

    async def _send_in_time(self, message: Message) -> None:
        with trio.fail_after(WRITE_SECONDS):
            async with self._sending:
                await self._send(message)

    async def heartbeat_forever(self) -> None:
        """Say that somebody is still here, whenever nothing else is said."""
        while True:
            await trio.sleep_until(self.quiet_since + HEARTBEAT_SECONDS)
            if trio.current_time() >= self.quiet_since + HEARTBEAT_SECONDS:
                await self.write(HEARTBEAT)


Produce: TypeAlias = Callable[[EventWriter], Awaitable[None]]


Explain: TypeAlias = Callable[[HttpError], bytes]


def as_error_body(problem: HttpError) -> bytes:
    return msgspec.json.encode(ErrorBody(problem.problem))


class EventStream(Response):
    """A response that lasts as long as something produces events, and its reader stays."""

    media_type = SSE_MEDIA_TYPE

    def __init__(
        self,
        produce: Produce,
        *,
        headers: Mapping[str, str] = NOTHING,
        owned_work: Callable[[], Awaitable[object]] | None = None,
        explain: Explain = as_error_body,
    ) -> None:
        """Respond with a stream.

        Args:
            produce: sends all events, and returns. It is cancelled when the reader leaves.
            headers: those besides our own.
            beside: what is only for this reader. It has begun before anything is sent, and is
                cancelled when the stream is over.
            explain: says why a stream ends before all is told. That is its last event, `error`.
        """
        super().__init__(headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._produce = produce
        self._owned_work = owned_work
        self._explain = explain
        self._failure: Exception | None = None
        """What went wrong in the house."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whoever has stopped reading is let go, and comes back, or does not.
        with suppress(trio.TooSlowError), raising_one_error():
            # Owns what is only for this reader: when this is left, nothing of it runs any more.
            async with trio.open_nursery() as nursery:
                telling = trio.CancelScope()
                if self._owned_work is not None:
                    nursery.start_soon(self._run_owned_work, self._owned_work, telling)
                nursery.start_soon(cancel_on_disconnect, receive, nursery.cancel_scope)
                outlet = EventWriter(send)
                await outlet.begin(self.status_code, self.raw_headers)
                if scope["method"] != "HEAD":
                    nursery.start_soon(outlet.heartbeat_forever)
                    nursery.start_soon(_cancel_at_shutdown, scope, telling)
                    await self._send_all(outlet, telling, scope["state"]["over"])
                await outlet.end()
                nursery.cancel_scope.cancel(reason="all is said")
        # Not before: until it has begun, what is only for this reader has nobody who ends it.
        await trio.lowlevel.checkpoint()

    async def _send_all(
        self, writer: EventWriter, produce_scope: trio.CancelScope, shutdown: trio.Event
    ) -> None:
        """Tell all there is, and if that cannot be, why."""
        is_told = False
        with produce_scope, self._capture_failure():
            await self._produce(writer)
            is_told = True
        if not is_told:
            problem = (
                server_stopping(SERVER_ENDS)
                if self._failure is None
                else to_http_error(self._failure, is_stopping=shutdown.is_set())
            )
            await writer.send_event(self._explain(problem), name="error")

    async def _run_owned_work(
        self, beside: Callable[[], Awaitable[object]], produce_scope: trio.CancelScope
    ) -> None:
        with self._capture_failure():
            await beside()
        if self._failure is not None:
            produce_scope.cancel(reason="there will be no end to tell of")
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _capture_failure(self) -> Generator[None]:
        try:
            yield
        except (OrchestratorError, DelegationError) as exc:
            self._failure = exc


async def _cancel_at_shutdown(http_scope: Scope, scope: trio.CancelScope) -> None:
    """Cancel a scope soon after the server has ended: the reader comes back to the next one."""
    over: trio.Event = http_scope["state"]["over"]
    await over.wait()
    # Of a run that was just ended, the reader is still told how.
    await trio.sleep(LAST_WORDS_SECONDS)
    scope.cancel(reason="the server ends")


async def wait_unless_disconnected(
    receive: Receive, wait: Callable[[], Awaitable[object]]
) -> bool:
    """Wait for something, and tell whether it came before whoever asked has left.

    Args:
        receive: tells when they have.
        wait: is cancelled then.
    """
    has_come = False
    with raising_one_error():
        # Owns nothing but the ear at the connection: what is waited for runs in this very task.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_disconnect, receive, nursery.cancel_scope)
            await wait()
            has_come = True
            nursery.cancel_scope.cancel(reason="it has come")
    return has_come


async def cancel_on_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    """Cancel a scope when whoever asked has left."""
    await trio.lowlevel.checkpoint()
    kind = ""
    while kind != "http.disconnect":
        kind = (await receive())["type"]
    scope.cancel(reason="whoever asked has left")
