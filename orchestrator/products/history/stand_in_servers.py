"""The tools of servers in a replay and in a simulation, where no server is connected."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from orchestrator.agents import Tool, ToolCall
from orchestrator.agents.tools.mcp.listed_tools import SEPARATOR
from orchestrator.ports.execution import NoServers, ServerTools, TaskHost, WorkOrder


class StandInServers(NoServers):
    """Offer a stand-in for every server tool that a run may call (`ToolServers`)."""

    def __init__(self, names: Callable[[str], Iterable[str]]) -> None:
        self._names = names

    @asynccontextmanager
    async def open_turn(self, order: WorkOrder, host: TaskHost) -> AsyncGenerator[ServerTools]:
        yield ServerTools(
            [
                _stand_in(server.name, name)
                for server in order.agent.servers
                for name in self._names(f"{server.name}{SEPARATOR}")
            ]
        )


def _stand_in(server: str, name: str) -> Tool:
    return Tool(
        name=name,
        description=f"a tool of the server {server}",
        parameters={"type": "object", "properties": {}},
        run=_not_run,
        server=server,
    )


async def _not_run(call: ToolCall) -> str:
    await trio.lowlevel.checkpoint()
    raise AssertionError(f"{call.name} has a place that does not run it")
