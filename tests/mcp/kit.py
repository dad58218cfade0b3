"""Agents with servers, and what they read, for the tests of the client."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    AssistantMessage,
    McpCommand,
    ModelRequest,
    ScriptedModel,
    Tool,
    ToolMessage,
    allow,
)
from agents.tools.mcp.server import McpServer
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

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        return await super().answer(request)

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that it was last given, by their names."""
        return {tool.name: tool for tool in self.requests[-1].tools}

    @property
    def answers(self) -> list[ToolMessage]:
        """What its calls came to."""
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
    return program("bad", "hostile.py", *arguments, **options)
