"""Agents that are served over MCP, and requests of a client that says what it can do in each."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import httpx2
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from orchestrator import Orchestrator, delegate
from orchestrator.agents import (
    Agent,
    Failure,
    ModelError,
    ScriptedModel,
    ToolCall,
    Transcript,
    agent,
    confirm,
    tool,
)
from orchestrator.testing import GatedModel
from tests.mcp.conformance_agents import calls_then
from tests.server.kit import TOKEN, Served

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
TASKS: Final = "io.modelcontextprotocol/tasks"
NAMES: Final = {"tools/call": "name", "resources/read": "uri"}


@attrs.define(kw_only=True)
class Rpc:
    """Sends single requests of the newer protocol, as JSON."""

    http: httpx2.AsyncClient
    orchestrator: Orchestrator | None = None
    """Its server, if it is in this process."""
    token: str = TOKEN
    can_poll: bool = True
    can_ask: bool = False

    async def send(self, method: str, params: Mapping[str, Any], **headers: str) -> Any:
        """Return the response to a request; a header that is empty is not sent."""
        capabilities: dict[str, Any] = {}
        if self.can_poll:
            capabilities["extensions"] = {TASKS: {}}
        if self.can_ask:
            capabilities["elicitation"] = {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        named = params.get(NAMES.get(method, "taskId"), "")
        sent = {"mcp_method": method, "mcp_name": named, **headers}
        return await self.http.post(
            "/mcp",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": method,
                "params": {**params, "_meta": {**meta, **params.get("_meta", {})}},
            },
            headers={
                "accept": "application/json, text/event-stream",
                "authorization": f"Bearer {self.token}",
                "mcp-protocol-version": MODERN,
                **{name.replace("_", "-"): of for name, of in sent.items() if of},
            },
        )

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request."""
        answer = (await self.send(method, params)).json()
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, **params: Any) -> Any:
        """Return the error of a request."""
        answer = (await self.send(method, params)).json()
        assert "error" in answer, answer
        return answer["error"]

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call an agent, and return the result."""
        return await self.ask("tools/call", name=name, arguments=arguments)

    async def task(self, id_: str) -> Any:
        return await self.ask("tasks/get", taskId=id_)

    async def until(self, id_: str, status: str) -> Any:
        """Return a task once it has a status."""
        with trio.fail_after(20):
            seq = 0
            while (task := await self.task(id_))["status"] != status:
                if self.orchestrator is None:
                    # A client in another process can only ask again.
                    await trio.sleep(0.05)
                else:
                    seq = await self.orchestrator.wait_changed(after=seq)
        return task


def rpc_of(served: Served, **given: Any) -> Rpc:
    return Rpc(http=served.http, orchestrator=served.orchestrator, **given)


@asynccontextmanager
async def official_client(
    served: Served, token: str = TOKEN, **options: Any
) -> AsyncGenerator[Client]:
    """Connect the official client over HTTP."""
    headers = {"authorization": f"Bearer {token}"}
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with Client(transport, **options) as client:
            yield client


@tool
async def delete_file(filename: str) -> str:
    """Delete a file."""
    await trio.lowlevel.checkpoint()
    return f"{filename} is deleted"


@attrs.frozen
class Report:
    """The answer of a reporter."""

    title: str
    pages: int


@agent
async def add(left: int, right: int) -> int:
    """Add two numbers.

    This is said to nobody.
    """
    await trio.lowlevel.checkpoint()
    return left + right


@agent
async def greet(name: str) -> str:
    """Greet a person by name."""
    await trio.lowlevel.checkpoint()
    return f"Hello, {name}!"


@agent
async def broken() -> str:
    """Meet a fault."""
    await trio.lowlevel.checkpoint()
    raise RuntimeError("the program has a fault")


_failing = Agent(
    "failing", model=ScriptedModel.always(ModelError("no such model", kind=Failure.BAD_REQUEST))
)


@agent
async def failing_job() -> str:
    """Fail, as a job does."""
    return await delegate(_failing, "the job")


def reporter() -> Agent[Report]:
    model = ScriptedModel.always('{"title": "Peru", "pages": 3}')
    return Agent("reporter", description="Reports.", output=Report, model=model)


def deleter() -> Agent[str]:
    """Return an agent that asks before it deletes a file."""
    return Agent(
        "deleter",
        instructions="Delete files.",
        model=calls_then("done", ToolCall("delete_file", {"filename": "a.txt"})),
        tools=[delete_file],
        approve=[confirm("delete_file")],
    )


def slow_team() -> tuple[Agent[str], GatedModel]:
    """Return an agent that waits for its child, and what lets the child answer."""
    gate = GatedModel("read")
    child = Agent("reader", model=gate)

    def decide(transcript: Transcript) -> str | ToolCall:
        is_first = len(transcript) == 1
        return ToolCall("delegate_task", {"goal": "read it"}) if is_first else "decided"

    boss = Agent("boss", model=ScriptedModel.always(decide), delegates=[child])
    return boss, gate
