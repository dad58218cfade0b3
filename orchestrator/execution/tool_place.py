"""The port for where a tool call runs. `HERE` is the default, and costs nothing."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

import attrs

from agents import Agent, CallKey, DefinitionError, Tool, ToolCall
from agents.tools.result_text import ToolResult
from delegation import TaskRecord


class ToolPlace(Protocol):
    """Runs the tool calls that it takes; the others run in this process."""

    has_effects: bool
    """Tools act on the world: calls are approved, and the task's workspace is opened."""
    resumes_calls: bool
    """It knows what became of its calls that a crash has interrupted: they are run there again,
    and it finds out whether they run, have ended, or must be broken off."""

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        """Return whether this place runs the calls of a tool."""
        ...

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        """Run a call, and return its result.

        On cancellation it returns when nothing of the call runs any more.

        Raises:
            ToolError: the model reads why.
        """
        ...


class _Here:
    """The process of the turn: every call runs where it is made."""

    has_effects = True
    resumes_calls = False

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return False

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        return await tool.run(call)


HERE: Final = _Here()


def require_here(here: Collection[str], agent: Agent[Any]) -> None:
    """Refuse an agent whose tools need workers, where none can be reached.

    Args:
        here: the places that this process is, by choice.
        agent: the agent.
    """
    for tool in agent.tools:
        if tool.place and tool.place not in here:
            raise DefinitionError(
                f"agent {agent.name!r}: tool {tool.name!r} runs at workers of the place"
                f" {tool.place!r}, which find their work in Postgres: use a journal there"
                " (--journal postgresql://...), or run it in this process by choice"
                f" (ORCHESTRATOR_HERE={tool.place}, open_orchestrator(here=[{tool.place!r}]))"
            )


def placed_tools(
    tools: Sequence[Tool], task: TaskRecord, place: ToolPlace
) -> Sequence[Tool]:
    """Return the tools of a task, those that a place takes running there."""
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
