"""An agent as a tool of another agent: the fields of a type are the parameters of the tool.

A call delegates a task, so it has a place in the tree, and joins or detaches like `delegate_task`.
"""

from typing import TYPE_CHECKING, Any

import attrs
import trio

from orchestrator.agents.agent import Agent
from orchestrator.agents.agent_arguments import AgentArguments
from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.messages import ToolCall
from orchestrator.agents.tools.tool import NAME, RESERVED_NAME, Tool

if TYPE_CHECKING:
    from typing_extensions import TypeForm


@attrs.frozen
class ToolTask:
    """The task that a call of the tool delegates."""

    agent: Agent[Any]
    arguments: AgentArguments
    background: bool | None
    """As in `delegate_task`."""

    def goal(self, call: ToolCall) -> str:
        """Return the goal in the arguments of a call, or raise `ToolError` if they do not fit."""
        if problems := self.arguments.problems(call.arguments):
            raise ToolError(f"the arguments of {call.name} do not fit: {'; '.join(problems)}")
        return self.arguments.goal(call.arguments)


def agent_tool(
    agent: Agent[Any],
    name: str | None,
    description: str,
    input_type: "TypeForm[Any] | None",
    background: bool | None,
) -> Tool:
    """Return the tool that delegates to an agent."""
    name = agent.name if name is None else name
    if not NAME.fullmatch(name) or name == RESERVED_NAME:
        raise DefinitionError(f"{name!r} cannot be the name of a tool")
    arguments = AgentArguments.of(agent, input_type)
    about = description or agent.description
    if not about and isinstance(agent.instructions, str):
        about = agent.instructions

    async def run(call: ToolCall) -> str:
        await trio.lowlevel.checkpoint()
        raise ToolError(f"{call.name} delegates a task, and works only for an agent that runs")

    return Tool(
        name=name,
        description=about,
        parameters=arguments.schema,
        run=run,
        # A call that a crash interrupted finds the task that it requested.
        idempotent=True,
        acts_outside=False,
        task=ToolTask(agent, arguments, background),
    )
