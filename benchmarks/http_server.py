"""The cost of a chat completion over an empty route: `python -m benchmarks.http_server`.

One process serves all: our server, and a route that does nothing but read the request and send as
many bytes as we do, once on anycorn as it is published, and once on our own connections. The client
is a process of its own. It asks them in turn, and reads the processor time of the server from
outside, before a request and after it: so what the client costs does not count.
"""

import logging
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import attrs
import msgspec
import trio
from anycorn import serve  # pyright: ignore[reportUnknownVariableType]
from anycorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.measure import Report
from benchmarks.workloads import opened
from orchestrator.agents import Agent, AssistantMessage, ModelRequest, TextDelta
from orchestrator.products.server.server import open_server
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.listener import Listening, bind

TOKEN: Final = "a-token-of-the-benchmarks"  # noqa: S105 (of nothing real)
MICRO: Final = 1_000_000
PATH: Final = "/v1/chat/completions"
CLIENTS: Final = 16
"""How many requests are under way at once, where the answer is not streamed."""
WORDS: Final = 500
WORD: Final = "word "
PAUSE: Final = 0.008
"""How long a model is silent after its first word: until then the server has sent it, and rests."""

CLIENT: Final = Path(__file__).with_name("http_client_process.py")

# As long as our answers.
ANSWER: Final = b"x" * 570
EVENT: Final = b"data: %b\n\n" % (b"x" * 232)


async def think() -> None:
    """Wait long enough for a word to be sent, so that words are not merged into one event."""
    for _ in range(5):
        await trio.lowlevel.checkpoint()


class Talker:
    """Streams some words, one after the other."""

    name = "talker"

    def __init__(self, words: int, pause: float = 0) -> None:
        self._words = words
        self._pause = pause

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        for left in reversed(range(self._words)):
            request.tell(TextDelta(WORD))
            if self._pause:
                await trio.sleep(self._pause)
            elif left:
                await think()
        return AssistantMessage(WORD * self._words)


async def answer_at_once(request: Request) -> Response:
    await request.body()
    return Response(ANSWER, media_type="application/json")


async def stream_first_word(request: Request) -> Response:
    """Send what we send until the first word is there: the role, and the word."""
    await request.body()

    async def events() -> AsyncGenerator[bytes]:
        yield EVENT
        yield EVENT
        await trio.sleep(PAUSE)
        yield EVENT

    return StreamingResponse(events(), media_type="text/event-stream")


async def stream_words(request: Request) -> Response:
    await request.body()

    async def events() -> AsyncGenerator[bytes]:
        for _ in range(WORDS):
            await think()
            yield EVENT

    return StreamingResponse(events(), media_type="text/event-stream")


def _one_route(route: Callable[[Request], Awaitable[Response]]) -> Starlette:
    return Starlette(routes=[Route(PATH, route, methods=["POST"])])


@asynccontextmanager
async def bare_on_ours(route: Callable[[Request], Awaitable[Response]]) -> AsyncGenerator[str]:
    """Serve one route on our own connections, with nothing else around it."""
    connections = Connections(_one_route(route), logging.getLogger(__name__))
    over = trio.Event()
    with bind(Listening(port=0)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(connections.serve, listener, over)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            over.set()


@asynccontextmanager
async def bare(route: Callable[[Request], Awaitable[Response]]) -> AsyncGenerator[str]:
    """Serve one route with nothing around it."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    app = _one_route(route)
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(serve, cast("Any", app), config, shutdown_trigger=over.wait)
        )
        yield url
        over.set()


@asynccontextmanager
async def ours(words: int, pause: float = 0, *, file: Path | None = None) -> AsyncGenerator[str]:
    """Serve an agent."""
    agents = {"talker": Agent("talker", model=Talker(words, pause))}
    async with (
        opened(file) as orchestrator,
        open_server(orchestrator, agents, Settings(token=TOKEN), Listening(port=0)) as server,
    ):
        yield server.addresses[0]


class Measured(msgspec.Struct):
    """The processor and wall seconds of one server, for each request."""

    cpu: list[float]
    wall: list[float]


@attrs.frozen(kw_only=True)
class Workload:
    """A kind of request that is sent to all servers in turn."""

    kind: str
    name: str
    empty: Callable[[Request], Awaitable[Response]]
    words: int
    pause: float = 0
    rounds: int
    bar: float | None = None
    """The goal for the ratio to the empty route."""


MEASURED: Final = (
    Workload(
        kind="plain",
        name=f"a chat completion, {CLIENTS} at once",
        empty=answer_at_once,
        words=1,
        rounds=40,
        bar=1.5,
    ),
    Workload(
        kind="first",
        name="the first word of a streamed one",
        empty=stream_first_word,
        words=1,
        pause=PAUSE,
        rounds=120,
        bar=1.8,
    ),
    Workload(kind="stream", name="a further word of it", empty=stream_words, words=WORDS, rounds=5),
)


async def ask_in_turn(*served: Callable[[], Any], kind: str, rounds: int) -> list[Measured]:
    """Serve several servers in this process, and let a client ask them in turn."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(it()) for it in served]
        hosts = [it.removeprefix("http://") for it in urls]
        client = [sys.executable, str(CLIENT), PATH, TOKEN, kind]
        done = await trio.run_process(
            [*client, str(rounds), str(CLIENTS), *hosts], capture_stdout=True
        )
        return msgspec.json.decode(done.stdout, type=list[Measured])


def measure_http_server(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for where in ("in memory", "in a file"):
            for it in MEASURED:
                file = Path(folder, f"{it.kind}.db") if where == "in a file" else None
                anycorn, same, full = trio.run(
                    partial(
                        ask_in_turn,
                        partial(bare, it.empty),
                        partial(bare_on_ours, it.empty),
                        partial(ours, it.words, it.pause, file=file),
                        kind=it.kind,
                        rounds=it.rounds,
                    )
                )
                report.add(
                    f"{it.name}, {where}",
                    median(anycorn.cpu) * MICRO,
                    median(full.cpu) * MICRO,
                    target=it.bar,
                    wall=(median(anycorn.wall) * MICRO, median(full.wall) * MICRO),
                )
                report.add(
                    "  over the same route on our connections",
                    median(same.cpu) * MICRO,
                    median(full.cpu) * MICRO,
                )


if __name__ == "__main__":
    measure_http_server(Report())
