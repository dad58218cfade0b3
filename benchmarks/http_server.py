"""The cost of a chat completion over an empty route: `python -m benchmarks.http_server`.

Both are served by the same HTTP server, in the same process and in turn; the empty route sends as
many bytes as we do. The client is a process of its own: only the processor time of the server
counts.
"""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import trio
from anycorn import serve  # pyright: ignore[reportUnknownVariableType]
from anycorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agents import Agent, AssistantMessage, ModelRequest, TextDelta
from benchmarks.measure import Cost, Report, cost_of, in_turn
from benchmarks.workloads import opened
from orchestrator.server.server import open_server
from orchestrator.server.state import Settings
from orchestrator.server.transport.listener import Listening

TOKEN: Final = "a-token-of-the-benchmarks"  # noqa: S105 (of nothing real)
MICRO: Final = 1_000_000
REQUESTS: Final = 300
CHUNKS: Final = 2_000
WORD: Final = "word "
PATH: Final = "/v1/chat/completions"

# Sends the same request again and again on one connection, and counts the events.
CLIENT: Final = """
import http.client, json, sys
host, path, token, times, stream = sys.argv[1:]
body = json.dumps({"model": "talker", "messages": [{"role": "user", "content": "go"}],
                   "stream": stream == "stream"})
headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
connection = http.client.HTTPConnection(host)
events = 0
for _ in range(int(times)):
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    body_bytes = answer.read()
    assert answer.status == 200, body_bytes
    events += body_bytes.count(b"data: ")
print(events)
"""

# As long as our answer.
ANSWER: Final = b"x" * 570
EVENT: Final = b"data: %b\n\n" % (b"x" * 232)


async def think() -> None:
    """Wait long enough for a word to be sent, so that words are not merged into one event."""
    for _ in range(5):
        await trio.lowlevel.checkpoint()


class Talker:
    """Streams some words, one after the other."""

    name = "talker"

    def __init__(self, words: int) -> None:
        self._words = words

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        for _ in range(self._words):
            request.tell(TextDelta(WORD))
            await think()
        return AssistantMessage(WORD * self._words)


async def answer_at_once(request: Request) -> Response:
    await request.body()
    return Response(ANSWER, media_type="application/json")


async def stream_at_once(request: Request) -> Response:
    await request.body()

    async def events() -> AsyncGenerator[bytes]:
        for _ in range(CHUNKS):
            await think()
            yield EVENT

    return StreamingResponse(events(), media_type="text/event-stream")


@asynccontextmanager
async def bare(route: Callable[[Request], Awaitable[Response]]) -> AsyncGenerator[str]:
    """Serve one route with nothing around it."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    app = Starlette(routes=[Route(PATH, route, methods=["POST"])])
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(serve, cast("Any", app), config, shutdown_trigger=over.wait)
        )
        yield url
        over.set()


@asynccontextmanager
async def ours(words: int) -> AsyncGenerator[str]:
    """Serve an agent."""
    agents = {"talker": Agent("talker", model=Talker(words))}
    async with (
        opened() as orchestrator,
        open_server(
            orchestrator, agents, Settings(token=TOKEN), Listening(port=0)
        ) as server,
    ):
        yield server.addresses[0]


def each(
    served: Callable[[], Any], *, times: int, stream: bool = False
) -> Callable[[], Awaitable[Cost]]:
    """Measure a request, or an event of a stream; the first one does not count."""

    async def measured() -> Cost:
        count = 0

        async def ask(often: int) -> None:
            nonlocal count
            asks = [sys.executable, "-c", CLIENT, host, PATH, TOKEN, str(often)]
            kind = "stream" if stream else "plain"
            done = await trio.run_process([*asks, kind], capture_stdout=True)
            count = int(done.stdout) if stream else often

        async with served() as url:
            host = url.removeprefix("http://")
            await ask(1)
            cost = await cost_of(partial(ask, times))
            return Cost(cost.cpu / count, cost.wall / count)

    return measured


def measure_http_server(report: Report) -> None:
    floor, plain = in_turn(
        each(partial(bare, answer_at_once), times=REQUESTS),
        each(partial(ours, 1), times=REQUESTS),
        rounds=5,
    )
    name = "a chat completion, over an empty route"
    report.add(name, floor.cpu * MICRO, plain.cpu * MICRO)
    floor, streamed = in_turn(
        each(partial(bare, stream_at_once), times=1, stream=True),
        each(partial(ours, CHUNKS), times=1, stream=True),
        rounds=5,
    )
    name = "a chunk of a streamed one, over an empty stream"
    report.add(name, floor.cpu * MICRO, streamed.cpu * MICRO)


if __name__ == "__main__":
    measure_http_server(Report())
