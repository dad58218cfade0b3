"""Calls of tools that are agents: each delegates one task, and returns its output."""

import attrs

from orchestrator.agents import Tool, ToolCall
from orchestrator.delegation.task import Origin, TaskId
from orchestrator.delegation.tools.delegator_port import Assignment, Delegator


def delegating(tool: Tool, parent: TaskId, origin: Origin, delegator: Delegator) -> Tool:
    """Return the tool of an agent for one task of its parent."""
    task = tool.task

    async def run(call: ToolCall) -> str:
        return await delegator.delegate(
            [Assignment(task.goal(call), agent=task.agent.name)],
            parent=parent,
            origin=origin,
            call=call.id,
            background=task.background,
            by_tool=True,
        )

    return attrs.evolve(tool, run=run)
