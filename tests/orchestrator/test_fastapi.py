"""Agents in a FastAPI application under uvicorn: a hundred clients at once, and one that leaves."""

import asyncio  # noqa: TID251 (the loop of the application)
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.asyncio import (
    ClientGoneError,
    Orchestrator,
    open_orchestrator,
    tool,
    while_connected,
)
from orchestrator.delegation import Tree
from tests.kit import hand_on

CLIENTS = 100
SAFETY = 100


class Application:
    """A web application whose agent waits in a tool until its gate is open."""

    def __init__(self, journal: Path) -> None:
        self.gate = asyncio.Event()
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.answered: asyncio.Queue[int] = asyncio.Queue()
        self.orchestrator: Orchestrator | None = None
        self._journal = journal

        @tool
        async def wait(who: str) -> str:
            """Wait for the gate."""
            self.begun.put_nowait(who)
            try:
                await self.gate.wait()
            finally:
                await asyncio.sleep(0)
                self.ended.put_nowait(who)
            return who

        def team(who: str) -> Agent:
            call = ToolCall("wait", {"who": who})
            script = ScriptedModel([call, lambda transcript: transcript[-1].text])
            waiter = Agent("waiter", model=script, tools=[wait])
            boss = ScriptedModel([hand_on("wait"), f"Done for {who}."])
            return Agent("boss", model=boss, delegates=[waiter])

        self.app = app = FastAPI(lifespan=self._lifespan)

        @app.get("/run/{who}")
        async def run(who: str, request: Request) -> str:
            try:
                done = await while_connected(request, self.opened.run(team(who), "go"))
            except ClientGoneError:
                self.answered.put_nowait(499)
                raise
            return done.output

        @app.exception_handler(ClientGoneError)
        def forget(_: Request, __: ClientGoneError) -> Response:
            return Response(status_code=499)

        @app.get("/stream/{who}")
        async def stream(who: str) -> StreamingResponse:
            async def lines() -> AsyncIterator[str]:
                try:
                    async with self.opened.stream(team(who), "go") as streamed:
                        async for event in streamed:
                            yield f"{type(event).__name__} {event.path}\n"
                finally:
                    self.answered.put_nowait(0)

            await asyncio.sleep(0)
            return StreamingResponse(lines())

    @property
    def opened(self) -> Orchestrator:
        assert self.orchestrator is not None
        return self.orchestrator

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with open_orchestrator(self._journal) as self.orchestrator:
            yield

    async def tree(self) -> Tree:
        """Return the tree of the only run."""
        [run] = await self.opened.read_runs()
        return await self.opened.read_tree(run)


def serve(journal: Path, use: Callable[[Application, int], Awaitable[None]]) -> None:
    """Serve the application with uvicorn while it is used."""

    async def main() -> None:
        application = Application(journal)
        listener = socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS)
        server = uvicorn.Server(uvicorn.Config(application.app, log_level="error", http="h11"))
        served = asyncio.create_task(server.serve([listener]))
        try:
            async with asyncio.timeout(SAFETY):
                await use(application, listener.getsockname()[1])
        finally:
            server.should_exit = True
            await served

    asyncio.run(main())


def test_a_hundred_requests_are_answered_at_once(tmp_path: Path) -> None:
    async def use(application: Application, port: int) -> None:
        limits = httpx2.Limits(max_connections=CLIENTS)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=SAFETY, trust_env=False
        ) as client:
            gets = [asyncio.create_task(client.get(f"/run/{number}")) for number in range(CLIENTS)]
            # All of them are in their tools at the same time.
            begun = [await application.begun.get() for _ in range(CLIENTS)]
            assert await application.opened.count_working() == 2 * CLIENTS
            application.gate.set()
            answers = [(await get).json() for get in gets]

        assert sorted(begun) == sorted(str(number) for number in range(CLIENTS))
        assert answers == [f"Done for {number}." for number in range(CLIENTS)]
        assert await application.opened.count_working() == 0

    serve(tmp_path / "journal.db", use)


def test_a_client_that_hangs_up_cancels_its_tree(tmp_path: Path) -> None:
    """Its handler ends when everything in the tree has ended, and others are not disturbed."""

    async def use(application: Application, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /run/leaver HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await application.begun.get() == "leaver"
        writer.close()
        await writer.wait_closed()

        assert await application.answered.get() == 499
        assert application.ended.get_nowait() == "leaver"
        assert await application.opened.count_working() == 0
        tree = await application.tree()
        assert tree.counts() == {"cancelled": 2}
        assert reader.at_eof() or not await reader.read()

    serve(tmp_path / "journal.db", use)


def test_a_reader_that_hangs_up_cancels_the_streamed_run(tmp_path: Path) -> None:
    async def use(application: Application, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream/leaver HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await application.begun.get() == "leaver"
        await reader.readuntil(b"TaskDelegated /boss/waiter[1]")
        writer.close()
        await writer.wait_closed()

        assert await application.answered.get() == 0
        assert application.ended.get_nowait() == "leaver"
        assert (await application.tree()).counts() == {"cancelled": 2}

    serve(tmp_path / "journal.db", use)


def test_a_stream_that_is_read_to_its_end_is_whole(tmp_path: Path) -> None:
    async def use(application: Application, port: int) -> None:
        application.gate.set()
        async with httpx2.AsyncClient(timeout=SAFETY, trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/stream/all")

        lines = answer.text.splitlines()
        assert lines[0] == "ToolCalled /boss"
        assert lines[-2:] == ["TextWritten /boss", "TaskEnded /boss"]
        assert "ToolReturned /boss/waiter[1]" in lines

    serve(tmp_path / "journal.db", use)


def test_stopping_the_server_ends_its_runs(tmp_path: Path) -> None:
    """The lifespan of the application closes the orchestrator, after its requests."""

    async def use(application: Application, port: int) -> None:
        async with httpx2.AsyncClient(timeout=SAFETY, trust_env=False) as client:
            get = asyncio.create_task(client.get(f"http://127.0.0.1:{port}/run/a"))
            await application.begun.get()
            application.gate.set()
            assert json.loads((await get).text) == "Done for a."

    serve(tmp_path / "journal.db", use)
    assert not (tmp_path / "journal.db-wal").exists()
