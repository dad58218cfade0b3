"""Agents with servers, and what they read, for the tests of the client."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    McpCommand,
    McpUrl,
    ModelRequest,
    ScriptedModel,
    Tool,
    ToolMessage,
    allow,
)
from orchestrator.agents.tools.mcp.server import McpServer
from tests.kit import run

HERE = Path(__file__).parent


def program(name: str, file: str, *arguments: str, **options: Any) -> McpCommand:
    """Return a server that is a Python program of this folder."""
    return McpCommand(name, [sys.executable, str(HERE / file), *arguments], **options)


def calculator(**options: Any) -> McpCommand:
    return program("calc", "calculator.py", **options)


class Caller(ScriptedModel):
    """A model that makes calls, one after another, and remembers what it read."""

    def __init__(self, *steps: Any) -> None:
        super().__init__([*steps, "done"])
        self.requests: list[ModelRequest] = []
        self._asked = trio.lowlevel.ParkingLot()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        self._asked.unpark_all()
        return await super().answer(request)

    async def wait_asked(self, times: int = 1) -> None:
        """Wait until it was asked so often."""
        await trio.lowlevel.checkpoint()
        with trio.fail_after(30):
            while len(self.requests) < times:
                await self._asked.park()

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that it was last given, by their names."""
        return {tool.name: tool for tool in self.requests[-1].tools}

    @property
    def answers(self) -> list[ToolMessage]:
        """The results of its calls."""
        transcript = self.requests[-1].transcript
        return [it for it in transcript if isinstance(it, ToolMessage)]


def user(model: Caller, *servers: McpServer, **options: Any) -> Agent:
    """Return an agent that may use all tools of some servers."""
    options = {"approve": [allow("*")], **options}
    return Agent("user", model=model, servers=servers, **options)


async def use(*servers: McpServer, calls: Sequence[Any] = (), **options: Any) -> Caller:
    """Have an agent make calls in an orchestrator of its own, and return its model."""
    model = Caller(*calls)
    done = await run(user(model, *servers), **options)
    assert done.output == "done"
    return model


def hostile(*arguments: str, **options: Any) -> McpCommand:
    """Return a server that is wrong in the ways that its arguments say."""
    # The files that it is told of are temporary, so its sandbox has to show them.
    named = {Path(it).parent for it in options.get("env", {}).values() if "/" in it}
    options = {"write": sorted(named), **options}
    return program("bad", "hostile.py", *arguments, **options)


class Log:
    """The messages that a hostile server gets, as they come."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        # For writing, too: so it does not end when the server closes it.
        self._stream = trio.lowlevel.FdStream(os.open(path, os.O_RDWR))
        self._rest = b""
        self.messages: list[dict[str, Any]] = []

    async def wait_heard(self, method: str, times: int = 1) -> None:
        """Wait until the server has got messages of a method."""
        await trio.lowlevel.checkpoint()
        with trio.fail_after(20):
            while self.count(method) < times:
                *lines, self._rest = (self._rest + await self._stream.receive_some()).split(b"\n")
                self.messages += map(json.loads, lines)

    def count(self, method: str) -> int:
        return sum(it.get("method") == method for it in self.messages)


@asynccontextmanager
async def serving(
    *arguments: str, port: int = 0, file: str = "hostile.py", **environ: str
) -> AsyncGenerator[int]:
    """Run a server on HTTP for the block, and give its port."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(HERE / file), "--http", str(port), *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(30):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some()
        yield int(line)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


def at(port: int, **options: Any) -> McpUrl:
    """Return a server that is reached by HTTP."""
    return McpUrl("bad", f"http://127.0.0.1:{port}/mcp", **options)


def is_running(word: str) -> bool:
    """Return whether there is a process with this word among its arguments, and no zombie."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            # Those of a zombie are empty.
            if word.encode() in file.read_bytes().split(b"\0"):
                return True
    return False
