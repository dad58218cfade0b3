"""A small HTTP server on loopback for fakes of platforms: it may hang up instead of answering."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import h11
import msgspec
import trio


@attrs.frozen
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes


@attrs.frozen
class Response:
    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: Mapping[str, str] = attrs.field(factory=dict)


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    return Response(status, msgspec.json.encode(value), headers=headers)


class HangUpError(Exception):
    """The connection is closed without an answer."""


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def serve_http(handler: Handler, *, port: int = 0) -> AsyncGenerator[str]:
    """Answer requests as long as the block lasts, and give the address."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await _answer_requests(stream, handler)
            except (
                trio.BrokenResourceError,
                trio.ClosedResourceError,
                h11.RemoteProtocolError,
                HangUpError,
            ):
                return

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        _, found = listeners[0].socket.getsockname()
        try:
            yield f"http://127.0.0.1:{found}"
        finally:
            nursery.cancel_scope.cancel()


async def _answer_requests(stream: trio.SocketStream, handler: Handler) -> None:
    connection = h11.Connection(h11.SERVER)
    while True:
        request = await _next_request(stream, connection)
        if request is None:
            return
        # The client may hang up while it waits: a long poll must end then.
        response = await _unless_closed(stream, handler, request)
        if response is None:
            return
        headers = {
            "content-type": response.media_type,
            "content-length": str(len(response.body)),
            **response.headers,
        }
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        sent = connection.send(head) or b""
        sent += connection.send(h11.Data(data=response.body)) or b""
        sent += connection.send(h11.EndOfMessage()) or b""
        await stream.send_all(sent)
        if connection.our_state is h11.MUST_CLOSE:
            return
        connection.start_next_cycle()


async def _unless_closed(
    stream: trio.SocketStream, handler: Handler, request: Request
) -> Response | None:
    answer: Response | None = None
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await trio.lowlevel.wait_readable(stream.socket)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            answer = await handler(request)
        except Exception as exc:  # noqa: BLE001 (raised below, outside of the nursery)
            failed = exc
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return answer


async def _next_request(stream: trio.SocketStream, connection: h11.Connection) -> Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await stream.send_all(connection.send(go_on) or b"")
            connection.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode(), headers, bytes(body))
        else:
            return None
