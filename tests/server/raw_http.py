"""Raw bytes to a server and back: requests that no real client sends."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import h11
import trio

from tests.server.kit import TOKEN

PATIENCE: Final = 20


@attrs.frozen
class RawResponse:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Any:
        """The error in OpenAI's shape, with the id of the request."""
        assert self.headers["x-request-id"]
        assert self.headers["content-type"] == "application/json"
        problem = json.loads(self.body)["error"]
        assert set(problem) == {"message", "type", "param", "code"}
        return problem


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[trio.SocketStream]:
    """Connect as long as the block lasts."""
    parts = urlsplit(url)
    stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 0)
    async with stream:
        with trio.fail_after(PATIENCE):
            yield stream


async def read_answer(stream: trio.SocketStream, method: str = "GET") -> RawResponse:
    """Read one response, whatever was sent for it."""
    answers = await read_answers(stream, 1, method)
    return answers[0]


async def read_answers(
    stream: trio.SocketStream, count: int, method: str = "GET"
) -> list[RawResponse]:
    """Read several responses that come one after the other."""
    answers: list[RawResponse] = []
    received = b""
    while len(answers) < count:
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "it")]))
        parser.send(h11.EndOfMessage())
        if received:
            parser.receive_data(received)
        start: h11.Response | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                start = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        assert start is not None
        headers = {name.decode(): value.decode() for name, value in start.headers}
        answers.append(RawResponse(start.status_code, headers, bytes(body)))
        received = parser.trailing_data[0]
    return answers


async def exchanged(url: str, request: bytes, method: str = "GET") -> RawResponse:
    """Send bytes on a connection of their own, and return what is answered."""
    async with connected(url) as stream:
        await stream.send_all(request)
        return await read_answer(stream, method)


async def until_closed(stream: trio.SocketStream) -> bytes:
    """Read all there is until the other side closes."""
    received = b""
    try:
        while chunk := await stream.receive_some():
            received += chunk
    except trio.BrokenResourceError:
        pass  # closed with what it had not read
    return received


async def asking(url: str, path: str) -> trio.SocketStream:
    """Ask for something, and leave the answer unread."""
    _, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    connection = await trio.open_tcp_stream(host, int(port))
    await connection.send_all(
        f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    return connection
