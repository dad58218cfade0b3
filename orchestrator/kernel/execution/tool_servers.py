"""The port for tools that servers have. `NO_SERVERS` is the default, and connects to nothing.

A replay and a simulation have others, which connect to nothing either.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import attrs
import trio

from orchestrator.agents import Agent, Tool, ToolCall
from orchestrator.agents.tools.mcp.listed_tools import SEPARATOR
from orchestrator.kernel.execution.executor import TaskHost, WorkOrder


@attrs.frozen
class ServerTools:
    """What the servers of an agent give to one turn."""

    tools: Sequence[Tool] = ()
    note: str = ""
    """What the model reads of those that are away."""


class ToolServers(Protocol):
    """Has the connections to the servers of all agents."""

    def require(self, agent: Agent[Any]) -> None:
        """Raise a `DefinitionError` if a server of an agent cannot be connected from here."""
        ...

    async def run_forever(self) -> None:
        """Run the connections. On cancellation it returns when nothing of them is left."""
        ...

    def kill_now(self) -> None:
        """Kill the commands of all servers at once, for a process that is about to exit."""
        ...

    def open_turn(
        self, order: WorkOrder, host: TaskHost
    ) -> AbstractAsyncContextManager[ServerTools]:
        """Give the tools of the servers of an agent to one turn.

        Args:
            order: the turn.
            host: the way home of the task, for what a server asks of it.
        """
        ...


class _NoServers:
    def require(self, agent: Agent[Any]) -> None:
        pass

    async def run_forever(self) -> None:  # noqa: ASYNC910 (there is nothing to run)
        pass

    def kill_now(self) -> None:
        pass

    @asynccontextmanager
    async def open_turn(self, order: WorkOrder, host: TaskHost) -> AsyncGenerator[ServerTools]:
        yield NO_TOOLS


NO_TOOLS: Final = ServerTools()
NO_SERVERS: Final = _NoServers()


class StandInServers(_NoServers):
    """Has a tool for every name that a run may call, where no tool of an agent is run."""

    def __init__(self, names: Callable[[str], Iterable[str]]) -> None:
        """Connect to nothing.

        Args:
            names: returns the names of tools that begin with that of a server.
        """
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
