"""The port for tools that servers have. `NO_SERVERS` is the default, and connects to nothing.

A run again and a simulation have others, which connect to nothing either.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import attrs

from agents import Agent, Tool
from orchestrator.execution.executor import TaskHost, WorkOrder


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

    @asynccontextmanager
    async def open_turn(
        self, order: WorkOrder, host: TaskHost
    ) -> AsyncGenerator[ServerTools]:
        yield NO_TOOLS


NO_TOOLS: Final = ServerTools()
NO_SERVERS: Final = _NoServers()
