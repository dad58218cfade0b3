"""The tools of a fork: the same definitions as its original has, so that the requests are equal."""

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from orchestrator.agents import Agent, Tool, ToolCall, ToolError
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.originals import original


def tools_of_fork(agent: Agent[Any], task: TaskRecord) -> Sequence[Tool]:
    """Return the agent's own tools for a fork; a client runs its tools for the root alone."""
    if not is_fork_of_root(task):
        return agent.plan.child_tools
    return [unavailable(tool) if tool.runs_at_caller else tool for tool in agent.tools]


def is_fork_of_root(task: TaskRecord) -> bool:
    """Return whether a task has the tools of the root of its session."""
    return original(task).is_root


def unavailable(tool: Tool) -> Tool:
    """Return a tool that a fork sees and cannot use."""

    async def run(call: ToolCall) -> str:
        await trio.lowlevel.checkpoint()
        raise ToolError(
            f"a fork cannot use {call.name}: answer what your original shall do with it"
        )

    return attrs.evolve(tool, run=run, runs_at_caller=False, idempotent=True, acts_outside=False)
