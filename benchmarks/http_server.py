"""The cost of a chat completion over an empty route: `python -m benchmarks.http_server`.

One process serves both: our server, and a route that does nothing but read the request and send as
many bytes as we do, on anycorn as it is published. The client is a process of its own. It asks them
in turn, and reads the processor time of the server from outside, before a request and after it: so
what the client costs does not count, and neither do the other programs of the machine.
"""

import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import msgspec
import trio
from anycorn import serve  # pyright: ignore[reportUnknownVariableType]
from anycorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agents import Agent, AssistantMessage, ModelRequest, TextDelta
from benchmarks.measure import Report
from benchmarks.workloads import opened
from orchestrator.server.server import open_server
from orchestrator.server.state import Settings
from orchestrator.server.transport.listener import Listening

TOKEN: Final = "a-token-of-the-benchmarks"  # noqa: S105 (of nothing real)
MICRO: Final = 1_000_000
PATH: Final = "/v1/chat/completions"
CLIENTS: Final = 16
"""How many requests are under way at once, where the answer is not streamed."""
ROUNDS: Final = 40
FIRST_WORDS: Final = 120
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
async def ours(
    words: int, pause: float = 0, *, file: Path | None = None
) -> AsyncGenerator[str]:
    """Serve an agent."""
    agents = {"talker": Agent("talker", model=Talker(words, pause))}
    async with (
        opened(file) as orchestrator,
        open_server(
            orchestrator, agents, Settings(token=TOKEN), Listening(port=0)
        ) as server,
    ):
        yield server.addresses[0]


class Measured(msgspec.Struct):
    """What the client has seen of one server: seconds of its processor, for each request."""

    cpu: list[float]
    wall: list[float]


async def ask_in_turn(
    *served: Callable[[], Any], kind: str, rounds: int
) -> list[Measured]:
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
            for kind, name, routes, bar in (
                (
                    "plain",
                    f"a chat completion, {CLIENTS} at once, {where}",
                    (partial(bare, answer_at_once), partial(ours, 1)),
                    1.5,
                ),
                (
                    "first",
                    f"the first word of a streamed one, {where}",
                    (partial(bare, stream_first_word), partial(ours, 1, PAUSE)),
                    1.8,
                ),
                (
                    "stream",
                    f"a further word of it, {where}",
                    (partial(bare, stream_words), partial(ours, WORDS)),
                    None,
                ),
            ):
                empty, full = routes
                if where == "in a file":
                    full = partial(full, file=Path(folder, f"{kind}.db"))
                rounds = {"plain": ROUNDS, "first": FIRST_WORDS, "stream": 5}[kind]
                floor, it = trio.run(
                    partial(ask_in_turn, empty, full, kind=kind, rounds=rounds)
                )
                report.add(
                    name,
                    median(floor.cpu) * MICRO,
                    median(it.cpu) * MICRO,
                    target=bar,
                    wall=(median(floor.wall) * MICRO, median(it.wall) * MICRO),
                )


if __name__ == "__main__":
    measure_http_server(Report())
