"""The client that the official suite judges: an agent that calls every tool of one server.

The suite starts it for each scenario: `MCP_CONFORMANCE_SCENARIO` names it, the last argument is the
address of its server, and `MCP_CONFORMANCE_CONTEXT` may say which calls to make. It is a user of
the orchestrator: where that says to log in, it logs in.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import trio

from orchestrator import (
    Agent,
    Machine,
    Orchestrator,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    allow,
    open_orchestrator,
)
from orchestrator.products.mcp.client.login.file import logins_file
from orchestrator.products.mcp.client.login.person import LoginRequest, log_in
from orchestrator.tools import McpUrl

SERVER: Final = "server"
MOST_LOGINS: Final = 3
"""One that grants nothing new is not asked for ever."""
LOGIN: Final = re.compile(rf"`orchestrator mcp login {SERVER}((?: --scope [^ `]+)*)`")
CLIENT_METADATA_URL: Final = "https://conformance-test.local/client-metadata.json"

NAMED: Final = {"uri": "file:///path/to/file%20name.txt", "name": "test_prompt"}
"""The tools of the suite's servers."""
TYPED: Final[Mapping[str, Any]] = {
    "number": 5,
    "integer": 5,
    "boolean": True,
    "object": {},
    "array": [],
}


class EveryTool(ScriptedModel):
    """Calls every tool that it is offered, once, and then says what came back."""

    def __init__(self, calls: Sequence[Mapping[str, Any]]) -> None:
        super().__init__([])
        self._calls = calls
        self._rounds = 0

    async def answer(self, request: Any) -> Any:
        self._rounds += 1
        tools = {it.name.removeprefix(f"{SERVER}__"): it.parameters for it in request.tools}
        said: list[str | ToolCall] = []
        if self._rounds == 1:
            calls = self._calls or [
                {"name": name, "arguments": arguments_for(schema, tools)}
                for name, schema in tools.items()
            ]
            said = [
                ToolCall(f"{SERVER}__{it['name']}", it["arguments"])
                for it in calls
                if it["name"] in tools
            ]
        results = [it.text for it in request.transcript if isinstance(it, ToolMessage)]
        answered = ScriptedModel([said or "\n".join([request.instructions, *results])])
        return await answered.answer(request)


def arguments_for(
    schema: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return arguments that a tool takes: the scenarios look at how they are sent."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {
        name: _value(name, properties.get(name, {}), tools) for name in schema.get("required", ())
    }


def _value(name: str, schema: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]) -> Any:
    if name == "schema":
        # The schema of the other tool, as it came.
        return next(it for it in tools.values() if "$schema" in it)
    return NAMED.get(name) or TYPED.get(str(schema.get("type")), "text")


async def main() -> None:
    """Run one scenario."""
    scenario, url = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[-1]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with TemporaryDirectory() as home:
        environ = {**os.environ, "ORCHESTRATOR_HOME": home}
        scopes: dict[str, None] = {}
        for _ in range(MOST_LOGINS):
            said = await run_agent(url, context.get("toolCalls", ()), environ)
            print(said, file=sys.stderr)
            wanted = LOGIN.search(said)
            if wanted is None:
                return
            scopes |= dict.fromkeys(wanted[1].replace(" --scope ", " ").split())
            request = LoginRequest(
                url=url,
                scope=" ".join(scopes),
                client_id=context.get("client_id", ""),
                client_secret=context.get("client_secret", ""),
                client_metadata_url=CLIENT_METADATA_URL,
            )
            await log_in(request, logins_file(environ), show_link=agree)
        raise SystemExit(f"{scenario}: {MOST_LOGINS} logins were not enough")


async def run_agent(
    url: str, calls: Sequence[Mapping[str, Any]], environ: Mapping[str, str]
) -> str:
    """Let an agent call all tools, and return what it was told."""
    agent = Agent(
        name="caller",
        instructions="Call every tool.",
        model=EveryTool(calls),
        servers=[McpUrl(SERVER, url, timeout=20, elicitation=True)],
        approve=[allow("*")],
    )
    home = Path(environ["ORCHESTRATOR_HOME"])
    async with (
        open_orchestrator(":memory:", machine=Machine(workspace=home, environ=environ)) as it,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(say_yes, it)
        done = await it.run(agent, "Call every tool.", attended=True)
        nursery.cancel_scope.cancel()
        return done.output


async def say_yes(orchestrator: Orchestrator) -> None:
    """Be the person who approves: yes to everything, and the defaults of every form."""
    async for question in orchestrator.questions:
        await orchestrator.answer(question.id, "once")


async def agree(link: str) -> None:
    """Be the person: open the page, and follow it to where the browser is sent."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=20) as browser:
        await browser.get(link)


if __name__ == "__main__":
    trio.run(main)
