"""The workloads of the gate over HTTP: chat completions, and an empty route on our transport.

The client is a thread of its own, so its calls are not counted.
"""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from logging import getLogger
from typing import Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from orchestrator.agents import Agent, AssistantMessage, ModelRequest, TextDelta
from orchestrator.products.server.server import open_server
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.listener import Listening, bind
from tests.performance.counting import Calls, counting, fewest
from tests.performance.workloads import USED, opened

TOKEN: Final = "a-token-of-the-gate"
PATH: Final = "/v1/chat/completions"
WORD: Final = "word "

Serve = Callable[[int, trio.Event | None], AbstractAsyncContextManager[int]]
"""Serves a number of words, with an event or a pause after each, and yields the port."""


class Talker:
    """A model that streams words, far enough apart that each one is sent alone."""

    name = "talker"

    def __init__(self, words: int, goes_on: trio.Event | None = None) -> None:
        self._words = words
        self._goes_on = goes_on

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        for _ in range(self._words):
            request.tell(TextDelta(WORD))
            await (think() if self._goes_on is None else self._goes_on.wait())
        return AssistantMessage(WORD * self._words, (), USED, self.name)


async def think() -> None:
    for _ in range(5):
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def served(words: int, goes_on: trio.Event | None = None) -> AsyncGenerator[int]:
    """Serve an agent, and yield the port."""
    agents = {"talker": Agent("talker", model=Talker(words, goes_on))}
    async with (
        opened() as orchestrator,
        open_server(orchestrator, agents, Settings(token=TOKEN), Listening(port=0)) as server,
    ):
        yield int(server.addresses[0].rpartition(":")[2])


@asynccontextmanager
async def served_empty(words: int, goes_on: trio.Event | None = None) -> AsyncGenerator[int]:
    """Serve an empty route on the same transport, and yield the port."""

    async def answer(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())

        async def events() -> AsyncGenerator[bytes]:
            for _ in range(words):
                yield b"data: %b\n\n" % (b"x" * 232)
                await (think() if goes_on is None else goes_on.wait())

        if body["stream"]:
            return StreamingResponse(events(), media_type="text/event-stream")
        return Response(b"x" * 570, media_type="application/json")

    app = Starlette(routes=[Route(PATH, answer, methods=["POST"])])
    connections = Connections(app, getLogger(__name__))
    over = trio.Event()
    with bind(Listening(port=0)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(connections.serve, listener, over)
            yield listener.getsockname()[1]
            over.set()


def _ask(connection: HTTPConnection, *, stream: bool) -> HTTPResponse:
    """Send a request, and return the response when its head has come."""
    message = {"role": "user", "content": "hi"}
    body = msgspec.json.encode({"model": "talker", "messages": [message], "stream": stream})
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    connection.request("POST", PATH, body, headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def _ask_for_first_word(connection: HTTPConnection) -> HTTPResponse:
    response = _ask(connection, stream=True)
    response.readline()
    return response


def _ask_and_read(connection: HTTPConnection, *, stream: bool) -> None:
    _ask(connection, stream=stream).read()


async def count_requests(serve: Serve, *, words: int, stream: bool, times: int) -> Calls:
    """Count the calls of the server for each of several requests on one connection."""
    measured: list[Calls] = []
    async with serve(words, None) as port:
        connection = _connection(port)
        ask = partial(_ask_and_read, connection, stream=stream)
        for _ in range(3):
            await trio.to_thread.run_sync(ask)
        for _ in range(times):
            with counting(measured):
                await trio.to_thread.run_sync(ask)
        connection.close()
    return fewest(measured)


def _connection(port: int) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


async def count_first_word(serve: Serve) -> Calls:
    """Count the calls of the server from a request to the first word of its answer."""
    measured: list[Calls] = []
    for _ in range(3):
        goes_on = trio.Event()
        async with serve(1, goes_on) as port:
            connections = [_connection(port) for _ in range(6)]
            responses: list[HTTPResponse] = []
            for connection in connections:
                with counting(measured):
                    response = await trio.to_thread.run_sync(_ask_for_first_word, connection)
                responses.append(response)
            goes_on.set()
            for response in responses:
                await trio.to_thread.run_sync(response.read)
            for connection in connections:
                connection.close()
    return fewest(measured)


async def count_completion(serve: Serve) -> Calls:
    return await count_requests(serve, words=1, stream=False, times=20)


async def count_word(serve: Serve) -> Calls:
    small = await count_requests(serve, words=50, stream=True, times=8)
    large = await count_requests(serve, words=150, stream=True, times=8)
    return large.each_of(100, beyond=small)


WORKLOADS: Final[dict[str, Callable[[], Awaitable[Calls]]]] = {
    "a chat completion": lambda: count_completion(served),
    "an empty route": lambda: count_completion(served_empty),
    "the first word": lambda: count_first_word(served),
    "the first word of an empty route": lambda: count_first_word(served_empty),
    "a streamed word": lambda: count_word(served),
    "a streamed word of an empty route": lambda: count_word(served_empty),
}
