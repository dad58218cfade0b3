"""The tools for MCP clients: one for each agent, and whether its calls are tasks.

A name that MCP does not take is an error when the server starts, not when a client comes.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, DefinitionError, Pipeline
from orchestrator.agents.agent_arguments import AgentArguments

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The names of tools that MCP takes."""


class TaskMode(StrEnum):
    """Whether the calls of an agent are tasks, which outlive their request."""

    FORBIDDEN = "forbidden"
    """Never: the answer comes with the response."""
    OPTIONAL = "optional"
    """If the request declares that its client can poll for the answer."""
    REQUIRED = "required"
    """Always: a request that does not declare it is refused."""


_MODES: Final = frozenset(it.value for it in TaskMode)


@attrs.frozen
class AgentTool:
    """One agent as a tool."""

    name: str
    agent: Agent[Any]
    mode: TaskMode
    arguments: AgentArguments

    @property
    def description(self) -> str:
        agent = self.agent
        if agent.description:
            return agent.description
        if isinstance(agent, Pipeline) and agent.function is not None:
            # The instructions of a function repeat its schema, for models that see no other one.
            about = inspect.getdoc(agent.function) or ""
        else:
            about = agent.instructions if isinstance(agent.instructions, str) else ""
        paragraph, _, _ = about.partition("\n\n")
        return " ".join(paragraph.split()) or f"Ask the agent {self.name}."

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer, if that is an object: older clients take no other."""
        schema = self.arguments.answer_schema
        is_object = schema is not None and schema.get("type") == "object"
        return schema if is_object else None


def tools_of(
    agents: Mapping[str, Agent[Any]], modes: Mapping[str, TaskMode]
) -> dict[str, AgentTool]:
    """Return the tools for agents, `optional` unless a mode says so, or raise `DefinitionError`."""
    for name in agents:
        if not NAME.fullmatch(name):
            raise DefinitionError(
                f"{name!r} cannot be the name of a tool over MCP: it has 1 to 128 letters, digits"
                " and _ - . only; give the agent another name"
            )
    for name in modes:
        if name not in agents:
            raise DefinitionError(
                f"there is no agent {name!r} whose calls could be tasks; there are:"
                f" {', '.join(agents)}"
            )
    return {
        name: AgentTool(name, agent, modes.get(name, TaskMode.OPTIONAL), AgentArguments.of(agent))
        for name, agent in agents.items()
    }


def parse_modes(options: Sequence[str], agents: Iterable[str]) -> dict[str, TaskMode]:
    """Return the modes in `required` or `AGENT=required` options, or raise `DefinitionError`."""
    modes: dict[str, TaskMode] = {}
    general: list[TaskMode] = []
    for option in options:
        name, _, mode = option.rpartition("=")
        if mode not in _MODES or (name and name in modes):
            raise DefinitionError(
                f"{option!r} is no mode of tasks: give forbidden, optional or required, or"
                " AGENT=MODE once for an agent"
            )
        if name:
            modes[name] = TaskMode(mode)
        else:
            general.append(TaskMode(mode))
    if len(general) > 1:
        raise DefinitionError("two modes of tasks are for all agents: give one")
    for name in agents if general else ():
        modes.setdefault(name, general[0])
    return modes
