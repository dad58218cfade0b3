"""The port for tools that servers have. `NO_SERVERS` is the default, and connects to nothing.

A replay and a simulation have others, which connect to nothing either.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import msgspec
import trio

from orchestrator.agents import Agent, Tool
from orchestrator.kernel.execution.executor import TaskHost, WorkOrder


class ServerTools(msgspec.Struct, frozen=True):
    """The tools that the servers of an agent offer in one turn."""

    tools: Sequence[Tool] = ()
    note: str = ""
    """A note for the model: the servers that cannot be reached, and the skills of the others."""


class ToolServers(Protocol):
    """Has the connections to the servers of all agents."""

    def require(self, agent: Agent[Any]) -> None:
        """Raise a `DefinitionError` if a server of an agent cannot be connected from here."""
        ...

    async def run_forever(self) -> None:
        """Run the connections. On cancellation it returns when all of them are closed."""
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
            host: the services of the task, for requests of a server.
        """
        ...


class NoServers:
    """Connects to nothing."""

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
NO_SERVERS: Final = NoServers()


class LateServers:
    """Connects when the first agent names a server, and imports nothing before (`ToolServers`)."""

    def __init__(self, connect: Callable[[], ToolServers]) -> None:
        """Connect to nothing yet.

        Args:
            connect: returns the connections; it is called once.
        """
        self._connect = connect
        self._connected: ToolServers | None = None
        self._needed = trio.Event()

    def require(self, agent: Agent[Any]) -> None:
        self._servers.require(agent)

    async def run_forever(self) -> None:
        await self._needed.wait()
        await self._servers.run_forever()

    def kill_now(self) -> None:
        if self._connected is not None:
            self._connected.kill_now()

    def open_turn(
        self, order: WorkOrder, host: TaskHost
    ) -> AbstractAsyncContextManager[ServerTools]:
        return self._servers.open_turn(order, host)

    @property
    def _servers(self) -> ToolServers:
        if self._connected is None:
            self._connected = self._connect()
            self._needed.set()
        return self._connected
