"""Server-sent events: as many as there are, a heartbeat when there are none, and one end.

Whoever does not read is let go, and comes back with the id of the last event it has got: nobody
waits for a slow reader.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agents import raising_one_error

HEARTBEAT: Final = b": still here\n\n"
HEARTBEAT_SECONDS: Final = 15
"""How long nothing may be sent: proxies close what is silent for longer."""
WRITE_SECONDS: Final = 30
"""How long a reader may take nothing before it is let go."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long a stream may take for its last events when the server ends."""
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
NOTHING: Final[Mapping[str, str]] = {}


class Outlet:
    """Where the events of one stream go."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = trio.Lock()
        self.quiet_since = trio.current_time()

    async def event(
        self, data: bytes, *, name: str = "", id_: str | int | None = None
    ) -> None:
        """Send one event. Its data is JSON, so it is one line."""
        head = b"" if id_ is None else f"id: {id_}\n".encode()
        if name:
            head += f"event: {name}\n".encode()
        await self.write(b"%bdata: %b\n\n" % (head, data))

    async def write(self, chunk: bytes) -> None:
        with trio.fail_after(WRITE_SECONDS):
            async with self._sending:
                self.quiet_since = trio.current_time()
                await self._send(
                    {"type": "http.response.body", "body": chunk, "more_body": True}
                )

    async def beat(self) -> None:
        """Say that somebody is still here, whenever nothing else is said."""
        while True:
            await trio.sleep_until(self.quiet_since + HEARTBEAT_SECONDS)
            if trio.current_time() >= self.quiet_since + HEARTBEAT_SECONDS:
                await self.write(HEARTBEAT)


Produce: TypeAlias = Callable[[Outlet], Awaitable[None]]


class EventStream(Response):
    """A response that lasts as long as something produces events, and its reader stays."""

    media_type = "text/event-stream"

    def __init__(
        self, produce: Produce, *, headers: Mapping[str, str] = NOTHING
    ) -> None:
        """Respond with a stream.

        Args:
            produce: sends all events, and returns. It is cancelled when the reader leaves.
            headers: those besides our own.
        """
        super().__init__(headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
            return
        outlet = Outlet(send)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outlet.beat)
                nursery.start_soon(until_left, receive, nursery.cancel_scope)
                nursery.start_soon(_until_over, scope, nursery.cancel_scope)
                # Whoever has stopped reading comes back, or does not.
                with suppress(trio.TooSlowError):
                    await self._produce(outlet)
                nursery.cancel_scope.cancel(reason="all is said")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_over(asked: Scope, scope: trio.CancelScope) -> None:
    """Cancel a scope soon after the server has ended: the reader comes back to the next one."""
    over: trio.Event = asked["state"]["over"]
    await over.wait()
    # Of a run that was just ended, the reader is still told how.
    await trio.sleep(LAST_WORDS_SECONDS)
    scope.cancel(reason="the server ends")


async def until_left(receive: Receive, scope: trio.CancelScope) -> None:
    """Cancel a scope when whoever asked has left."""
    await trio.lowlevel.checkpoint()
    kind = ""
    while kind != "http.disconnect":
        kind = (await receive())["type"]
    scope.cancel(reason="whoever asked has left")
