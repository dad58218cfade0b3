"""Several servers in processes of their own on the same journals, and an oracle outside of them.

A tool of their agents connects to the oracle, and waits until the test lets it go on. So a test
knows what runs where, and sees the end of what was cancelled or killed.
"""

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from tests.server.server_process import PATIENCE, ServerProcess

TOKEN: Final = "a-token-of-the-tests-of-clusters"
SHARDS: Final = 4
"""Fewer than usual: each takes a moment to open."""
AGENTS: Final = '''
import os

import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, confirm, tool


@tool(idempotent=True)
async def report(name: str) -> str:
    """Tell the test that this runs, and wait for its word."""
    async with await trio.open_tcp_stream("127.0.0.1", int(os.environ["ORACLE"])) as stream:
        await stream.send_all(f"{os.getpid()} {name}\\n".encode())
        return (await stream.receive_some()).decode()


def reports(transcript):
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return f"it said {last.text}"
    return ToolCall("report", {"name": last.text})


def delegates(transcript):
    if any(isinstance(it, ToolMessage) for it in transcript):
        return "the helper has ended"
    return ToolCall("delegate_task", {"agent": "helper", "goal": transcript[-1].text})


helper = Agent("helper", model=ScriptedModel.always(reports), tools=[report])
editor = Agent("editor", model=ScriptedModel.always(delegates), delegates=[helper])
RULES = (confirm("report"),)
asker = Agent("asker", model=ScriptedModel.always(reports), tools=[report], approve=RULES)
quick = Agent("quick", model=ScriptedModel.always("42"))
'''


class Report:
    """A call that runs now, in one of the servers."""

    def __init__(self, stream: trio.SocketStream, process: int, name: str) -> None:
        self._stream = stream
        self.process = process
        self.name = name

    async def answer(self, text: str) -> None:
        """Let the call go on."""
        await self._stream.send_all(text.encode())
        await self._stream.aclose()

    async def wait_ended(self) -> None:
        """Wait until the call has ended without an answer: it was cancelled, or killed."""
        with trio.fail_after(PATIENCE):
            assert await self._stream.receive_some() == b""
        await self._stream.aclose()


class Oracle:
    """Hears from the calls of all servers."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    @property
    def port(self) -> int:
        port: int = self._listener.socket.getsockname()[1]
        return port

    async def next(self) -> Report:
        """Wait for the next call that begins."""
        with trio.fail_after(PATIENCE):
            stream = await self._listener.accept()
            line = b""
            while not line.endswith(b"\n"):
                line += await stream.receive_some()
        process, _, name = line.decode().strip().partition(" ")
        return Report(stream, int(process), name)


class ClusterServer(ServerProcess):
    """One server of several on the same journals."""

    def __init__(self, folder: Path, journal: str, environ: Mapping[str, str]) -> None:
        shards = ("--shards", str(SHARDS)) if "://" in journal else ()
        super().__init__(folder, ("--grace", "5", *shards), environ)
        self.address = journal

    @property
    def address(self) -> str:
        return str(self.journal)

    @address.setter
    def address(self, address: str) -> None:
        # A URL is no path: its slashes stay as they are.
        self.journal = address  # type: ignore[assignment]


class Cluster:
    """Servers, and clients of each."""

    def __init__(self, stack: AsyncExitStack, folder: Path, journal: str, oracle: Oracle) -> None:
        self._stack = stack
        self._folder = folder
        self._journal = journal
        self.oracle = oracle

    async def start(self, *, journal: str = "", **environ: str) -> "Client":
        """Start another server, and return a client of it; `journal` is its own way there."""
        server = ClusterServer(
            self._folder,
            journal or self._journal,
            {
                "ORCHESTRATOR_API_KEY": TOKEN,
                "ORACLE": str(self.oracle.port),
                "ORCHESTRATOR_HOME": str(self._folder / "home"),
                **environ,
            },
        )
        self._stack.push_async_callback(server.stop)
        await server.start()
        http = await self._stack.enter_async_context(server.http())
        return Client(server, http)


class Client:
    """A client of one server."""

    def __init__(self, server: ClusterServer, http: httpx2.AsyncClient) -> None:
        self.server = server
        self.http = http

    async def begin(self, agent: str, goal: str, **headers: str) -> str:
        """Begin a run, and return its id."""
        body = {"model": agent, "input": goal}
        answer = await self.http.post("/v1/runs", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        id_: str = answer.json()["id"]
        return id_

    async def get(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def end_of(self, run: str) -> Any:
        """Follow the events of a run to its end, and return the run."""
        path = f"/v1/runs/{run}/events"
        with trio.fail_after(PATIENCE):
            async with self.http.stream("GET", path) as events:
                assert events.status_code == 200
                lines = [line async for line in events.aiter_lines()]
        assert "event: end" in lines, lines[-4:]
        return await self.get(f"/v1/runs/{run}")

    async def wait_fact(self, run: str, kind: str) -> None:
        """Follow the events of a run until a fact of this kind, and hang up."""
        host, _, port = self.server.url.partition("://")[2].partition(":")
        received = b""
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(
                    f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}\r\n"
                    f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
                )
                while kind.encode() not in received:
                    received += await stream.receive_some()


@asynccontextmanager
async def open_cluster(folder: Path, journal: str) -> AsyncGenerator[Cluster]:
    """Give servers on the same journals, as long as the block lasts."""
    await trio.Path(folder / "agents_file.py").write_text(AGENTS)
    listening = trio.socket.socket()
    await listening.bind(("127.0.0.1", 0))
    listening.listen(socket.SOMAXCONN)
    async with AsyncExitStack() as stack, trio.SocketListener(listening) as listener:
        try:
            yield Cluster(stack, folder, journal, Oracle(listener))
        finally:
            with trio.CancelScope(shield=True):
                await stack.aclose()
