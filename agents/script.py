"""The agent that runs scripts: a pipeline whose goal is a program over agents, written by a model.

The orchestrator interprets the program, and makes a child task of every call.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import attrs
import msgspec
import trio

from orchestrator.agents.agent import Agent
from orchestrator.agents.errors import AgentError, DefinitionError
from orchestrator.agents.messages import AssistantMessage, ToolCall, ToolMessage, Usage
from orchestrator.agents.models.model import ModelRequest, Price
from orchestrator.agents.pipelines.pipeline import Pipeline, PipelineContext
from orchestrator.agents.tools.tool import Tool
from orchestrator.agents.turn_plan import SCRIPT


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A program over agents."""

    goal: str = ""
    """Its purpose, for people; the first field, because a tree shows the beginning."""
    code: str
    """Async Python."""


@attrs.frozen(kw_only=True)
class ScriptLimits:
    """The most that one script may use."""

    seconds: float = 10
    """The seconds that it may compute between two stops; waits for calls do not count."""
    megabytes: int = 64
    calls: int = 10_000
    """How many agents and tools it may call."""
    characters: int = 20_000
    """The characters of its result; the rest of it is cut off."""


@attrs.frozen
class ScriptTeam:
    """The agents, tools and limits of a script."""

    agents: Mapping[str, Agent[Any]]
    tools: Mapping[str, Agent[Any]]
    """An agent for each tool, whose goal is the arguments of one call."""
    limits: ScriptLimits = ScriptLimits()
    takes_goal: bool = False
    """A script has its goal as the variable `goal`."""

    @property
    def stubs(self) -> str:
        """The declarations of the functions that a script may call."""
        lines = ["from typing import Any, Awaitable, Literal, overload"]
        for name, agent in self.agents.items():
            output = "str" if agent.output is str else "Any"
            lines += ["@overload"] if len(self.agents) > 1 else []
            lines.append(
                f"async def agent(name: Literal[{name!r}], /, goal: Any, *, context: str = '',"
                " output_schema: dict[str, Any] | None = None, model: str = '', effort: str = '',"
                f" budget: dict[str, float] | None = None) -> {output}: ..."
            )
        if self.tools:
            names = ", ".join(repr(it) for it in self.tools)
            lines.append(f"async def tool(name: Literal[{names}], /, **arguments: Any) -> str: ...")
        lines += [
            "async def race(*calls: Awaitable[Any]) -> Any: ...",
            "async def budget_left() -> dict[str, float | None]: ...",
            "def log(text: object) -> None: ...",
            *(["goal: str"] if self.takes_goal else []),
        ]
        return "\n".join(lines) + "\n"


def script_agent(
    agents: Iterable[Agent[Any]],
    tools: Iterable[Tool] = (),
    limits: ScriptLimits | None = None,
    *,
    takes_goal: bool = False,
) -> Pipeline[Script, str]:
    """Return an agent whose goal is a script over these agents and tools."""
    if find_spec("pydantic_monty") is None:
        raise DefinitionError(
            "scripts need the interpreter Monty, which is not installed: install"
            " delegation-orchestrator[scripts]"
        )
    team = ScriptTeam(
        {agent.name: agent for agent in agents},
        {tool.name: _tool_agent(tool) for tool in tools},
        ScriptLimits() if limits is None else limits,
        takes_goal,
    )

    async def run_script(context: PipelineContext, script: Script) -> str:
        return await context.run_script(script, team)

    return Pipeline(
        SCRIPT,
        instructions="Runs a script.",
        program=run_script,
        input=Script,
        output=str,
        parts=(*team.agents.values(), *team.tools.values()),
    )


def script_agent_of(agent: Agent[Any]) -> Pipeline[Script, str]:
    """Return the agent that runs scripts over the delegates and tools of an agent.

    A script for an agent without delegates calls that agent.
    """
    return script_agent(_team_of(agent), agent.tools)


def script_pipeline(
    name: str, code: str, agent: Agent[Any], instructions: str = ""
) -> Pipeline[str, str]:
    """Return a pipeline that runs a script over the delegates and tools of an agent.

    The script has the goal of the pipeline as the variable `goal`.
    """
    runner = script_agent(_team_of(agent), agent.tools, takes_goal=True)

    async def run(context: PipelineContext, goal: str) -> str:
        return await context.delegate(runner, Script(goal=goal, code=code))

    return Pipeline(
        name,
        instructions=instructions or "Runs a script.",
        program=run,
        input=str,
        output=str,
        parts=(runner,),
    )


def script_stubs_of(agent: Agent[Any]) -> str:
    """Return the declarations for the scripts of an agent."""
    tools = {tool.name: agent for tool in agent.tools}
    return ScriptTeam({it.name: it for it in _team_of(agent)}, tools).stubs


def _team_of(agent: Agent[Any]) -> tuple[Agent[Any], ...]:
    return agent.delegates or (agent,)


class _OneCall:
    """A model that calls one tool with its goal as the arguments, and answers with the result."""

    price = Price()

    def __init__(self, tool: str) -> None:
        self.name = SCRIPT
        self._tool = tool

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        last = request.transcript[-1]
        if isinstance(last, ToolMessage):
            if last.failed:
                raise ScriptToolError(last.text)
            return AssistantMessage(last.text, usage=Usage())
        call = ToolCall(self._tool, json.loads(request.transcript[0].text))
        return AssistantMessage(calls=(call,), usage=Usage())


class ScriptToolError(AgentError):
    """The tool that a script called has failed."""


def _tool_agent(tool: Tool) -> Agent[Any]:
    """Return an agent whose goal is the arguments of one call of a tool, as JSON."""
    return Agent(tool.name, model=_OneCall(tool.name), tools=[tool])
