"""The port for where a tool call runs. `HERE` is the default, and costs nothing."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol

import attrs

from orchestrator.agents import Agent, AgentError, CallKey, DefinitionError, Tool, ToolCall
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.turn_host import PastChecks
from orchestrator.delegation import TaskRecord


class WorkerLostError(AgentError):
    """The worker that ran a turn is gone, and the state of its tools with it."""

    def __init__(
        self, path: str, *, place: str, worker: str, why: str, begun: Sequence[str]
    ) -> None:
        broken_off = f" Broken off, with an unknown effect: {', '.join(begun)}." if begun else ""
        super().__init__(
            f"{path} has lost its worker at {place!r} ({worker}), and the state of its tools with"
            f" it: {why}.{broken_off}"
        )


class PlacedTurn(Protocol):
    """A place for one turn: all calls that it takes run on one machine."""

    note: str
    """A note about files left on that machine, set when the turn has ended."""

    @property
    def place(self) -> "ToolPlace":
        """The place that runs the calls of the turn."""
        ...


class ToolPlace(Protocol):
    """Runs the tool calls that it takes; the others run in this process."""

    has_effects: bool
    """Tools act on the world: calls are approved, and the task's workspace is opened."""
    resumes_calls: bool
    """It knows the state of calls that a crash has interrupted: they are run there again, and it
    finds out whether they run, have ended, or must be broken off."""

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        """Return whether this place runs the calls of a tool."""
        ...

    def past_checks(self, task: TaskRecord) -> PastChecks | None:
        """Return the recorded results of checks of a task's answers, if tools have no effect.

        None calls the checks.
        """
        ...

    def open_turn(
        self, task: TaskRecord, agent: Agent[Any]
    ) -> "AbstractAsyncContextManager[PlacedTurn] | None":
        """Return the place of a turn of an agent with a place; None if its calls run here.

        It closes when the turn has ended at that place, or the next writer has taken it over.
        """
        ...

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        """Run a call, and return its result.

        A cancelled call returns when all of its processes have ended.

        Raises:
            ToolError: the model reads why.
            WorkerLostError: the machine that had the state of the turn is gone.
        """
        ...


class _Here:
    """The process of the turn: every call runs where it is made."""

    has_effects = True
    resumes_calls = False

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return False

    def past_checks(self, task: TaskRecord) -> None:
        return None

    def open_turn(self, task: TaskRecord, agent: Agent[Any]) -> None:
        return None

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        return await tool.run(call)


HERE: Final = _Here()


def require_here(here: Collection[str], agent: Agent[Any]) -> None:
    """Refuse an agent whose tools need workers, if no worker can be reached.

    Args:
        here: the places that this process runs.
        agent: the agent.
    """
    lent = {f"tool {tool.name!r}": tool.place for tool in agent.tools}
    if agent.place:
        lent = {"it": agent.place}
    for what, place in lent.items():
        if place and place not in here:
            raise DefinitionError(
                f"agent {agent.name!r}: {what} runs at workers of the place {place!r}, which find"
                " their work in Postgres: use a journal there (--journal postgresql://...), or run"
                f" it in this process by choice (ORCHESTRATOR_HERE={place},"
                f" open_orchestrator(workers=Workers(here=[{place!r}])))"
            )


def placed_tools(tools: Sequence[Tool], task: TaskRecord, place: ToolPlace) -> Sequence[Tool]:
    """Return the tools of a task; a place runs the tools that it takes."""
    if place is HERE or not any(place.takes(tool, task) for tool in tools):
        return tools
    return [
        attrs.evolve(
            tool,
            run=partial(_run_at, place, tool, task),
            idempotent=tool.idempotent or place.resumes_calls,
        )
        if place.takes(tool, task)
        else tool
        for tool in tools
    ]


async def _run_at(
    place: ToolPlace, tool: Tool, task: TaskRecord, call: ToolCall
) -> str | ToolResult:
    key = CallKey(f"{task.call_prefix}/{call.id}")
    return await place.run(tool, call, key, task)
