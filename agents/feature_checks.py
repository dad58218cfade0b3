"""The checks of the rarer features of an agent: settings, servers, places, jobs, choices.

Imported late: most agents use none of them.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from orchestrator.agents.agent import DELEGATION_TOOLS, Agent, require_parts
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.hooks import Hooks
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.settings import EFFORTS, NO_SETTINGS, ModelSettings
from orchestrator.agents.models.token_estimate import estimated_tokens, usable_tokens
from orchestrator.agents.output.typed import output_schema, type_name
from orchestrator.agents.tools.place_name import require_place_name
from orchestrator.agents.tools.task_context import is_narrower
from orchestrator.agents.tools.tool import Tool
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.agents.type_checks import has_type

ASK_PARENT: Final = "ask_parent"
"""The tool that an agent with `asks_parent` has as a child."""
RUN_SCRIPT: Final = "run_script"
"""The tool that an agent with `scripts` has."""
BOARD: Final = "board"
"""The tool that an agent with `board` has."""
MEMORY: Final = "memory"
"""The tool that an agent with `memory` has."""
JOB: Final = "job"
"""The tool that an agent with `schedules` has as the root of a session."""
DELEGATION_TOKENS: Final = 900
"""About how long the delegation tools are."""
SHORTEST_MESSAGE: Final = 50
"""The tokens of a message that a model must have room for."""


def require_features(agent: Agent[Any]) -> None:
    """Refuse an agent whose features do not fit together."""
    _require_types(agent)
    _require_settings(agent)
    _require_choices(agent)
    _require_room(agent)
    _require_servers(agent)
    _require_deps_of_tools(agent)
    _require_agent_tools(agent)
    if agent.place:
        _require_leaf_at_place(agent)
    if agent.asks_parent:
        _require_free_name(agent, ASK_PARENT, "asks_parent")
        _require_no_place(agent, "asks its parent, which workers cannot reach")
    if agent.board:
        _require_free_name(agent, BOARD, "board=True")
        _require_no_place(agent, "has a board, which workers cannot reach")
    if agent.scripts:
        _require_free_name(agent, RUN_SCRIPT, "scripts=True")
        _require(
            agent,
            all(it.name != SCRIPT for it in agent.delegates),
            f"it has a delegate called {SCRIPT!r}, the name of the tasks that run its scripts: give"
            " it another name",
        )
    if agent.memory is not None:
        _require(agent, has_type(agent.memory, Path), "its memory must be the path of a file")
        _require_free_name(agent, MEMORY, "memory=...")
        _require_no_place(agent, "has a memory, which is where the run is")
    if agent.skills:
        _require_no_place(agent, "has skills, which are read where the run is")
    if agent.schedules:
        _require_free_name(agent, JOB, "schedules")
        _require_no_place(agent, "schedules, which workers cannot do")


def _require_types(agent: Agent[Any]) -> None:
    """Refuse values of other types, which no type checker has seen."""
    if agent.compaction is not None:
        from orchestrator.agents.compaction import Compaction

        is_one = has_type(agent.compaction, Compaction)
        _require(agent, is_one, "its compaction must be Compaction(...)")
    if agent.sandbox is not None:
        from orchestrator.agents.sandbox.sandbox import Sandbox

        _require(agent, has_type(agent.sandbox, Sandbox), "its sandbox must be Sandbox(...)")
    for hooks in agent.hooks:
        _require(agent, has_type(hooks, Hooks), f"{hooks!r} in hooks= must be Hooks(...)")
    for check in agent.checks:
        is_function = callable(check)
        _require(agent, is_function, f"{check!r} in checks= must be a function of the final answer")
    _require(
        agent,
        not agent.handoff or bool(agent.delegates),
        "handoff=True, and it has no delegates to hand its conversation to",
    )


def _require_free_name(agent: Agent[Any], name: str, feature: str) -> None:
    """Refuse a tool that has the name of the tool that a feature brings."""
    _require(
        agent,
        all(tool.name != name for tool in agent.tools),
        f"it has a tool of its own called {name!r}, and {feature} brings one of that name: give"
        " it another one with @tool(name=...)",
    )


def _require_no_place(agent: Agent[Any], feature: str) -> None:
    """Refuse a feature that needs the process of the run."""
    _require(agent, not agent.place, f"it has the place {agent.place!r} and {feature}")


def _require_settings(agent: Agent[Any]) -> None:
    """Refuse settings that the model is known to reject."""
    settings = agent.settings
    if settings is NO_SETTINGS:
        return
    _require(agent, has_type(settings, ModelSettings), "its settings must be ModelSettings(...)")
    # Imported late: most agents leave all of it to the provider.
    from orchestrator.agents.models.registry import settings_problem

    for model in (agent.model, *agent.models):
        if problem := settings_problem(model, settings):
            raise DefinitionError(f"agent {agent.name!r}: its settings cannot be kept: {problem}")
    choice = settings.tool_choice
    names = {tool.name for tool in agent.tools if has_type(tool, Tool)}
    if agent.may_delegate:
        names |= DELEGATION_TOOLS
    if agent.schedules:
        names.add(JOB)
    if agent.scripts:
        names.add(RUN_SCRIPT)
    if agent.memory is not None:
        names.add(MEMORY)
    # Which tools a server has is known when it is connected.
    names |= {f"{it.name}__" for it in agent.servers if hasattr(it, "name")}
    _require(
        agent,
        choice in {None, "auto", "none"}
        or (bool(names) if choice == "required" else _is_named(choice, names)),
        f"its tool_choice is {choice!r}, and it has no such tool"
        if choice != "required"
        else "its tool_choice is 'required', and it has no tools",
    )


def _require_room(agent: Agent[Any]) -> None:
    """Refuse a window that has no room for a message beside the instructions and tools."""
    if agent.compaction is None or not isinstance(agent.instructions, str):
        return
    request = ModelRequest(
        instructions=agent.whole_instructions(agent.instructions),
        transcript=(),
        tools=[tool for tool in agent.tools if has_type(tool, Tool)],
        output=output_schema(agent.output),
    )
    needed = estimated_tokens(request) + DELEGATION_TOKENS * agent.may_delegate
    usable = usable_tokens(agent.compaction.window)
    _require(
        agent,
        needed + SHORTEST_MESSAGE <= usable,
        f"its compaction has a window of {agent.compaction.window} tokens: a"
        f" request can use {usable} of them, and its instructions, tools and answer need about"
        f" {needed}: no message fits beside them",
    )


def _require_servers(agent: Agent[Any]) -> None:
    if not agent.servers:
        return
    # Imported late: most agents have none.
    from orchestrator.agents.tools.mcp.server import McpCommand, McpUrl

    require_parts(
        agent, "servers", agent.servers, McpCommand | McpUrl, "McpCommand(...) or McpUrl(...)"
    )
    _require(
        agent,
        not agent.place,
        f"it has the place {agent.place!r}, and servers, which are connected where the run is",
    )
    prefixes = tuple(f"{server.name}__" for server in agent.servers)
    for tool in agent.tools:
        _require(
            agent,
            not tool.name.startswith(prefixes),
            f"its tool {tool.name!r} has a name that a tool of its server may have",
        )


def _require_leaf_at_place(agent: Agent[Any]) -> None:
    """Refuse a place for an agent that one worker cannot run alone."""
    require_place_name(agent.place, f"agent {agent.name!r}")
    _require(
        agent,
        not agent.may_delegate,
        f"it has the place {agent.place!r} and may delegate: whole turns run at workers for"
        " leaves only. Give the place to its delegates, or to single tools:"
        f" @tool(place={agent.place!r})",
    )
    _require(
        agent,
        agent.workspace != "worktree",
        f"it has the place {agent.place!r} and works in a worktree, which is only made where"
        " the run is: name a folder of its workers, or none",
    )
    for tool in agent.tools:
        _require(
            agent,
            tool.place in {"", agent.place},
            f"it has the place {agent.place!r}, and its tool {tool.name!r} has"
            f" {tool.place!r}: all calls of a turn run at one worker",
        )
    _require(
        agent,
        agent.deps is None,
        f"it has the place {agent.place!r}, and deps, which are values of this process",
    )


def _require_deps_of_tools(agent: Agent[Any]) -> None:
    for tool in agent.tools:
        if tool.deps is None:
            continue
        _require(
            agent,
            agent.deps is not None,
            f"its tool {tool.name!r} takes a TaskContext[{type_name(tool.deps)}], and it has"
            f" no dependencies: Agent(deps={type_name(tool.deps)})",
        )
        _require(
            agent,
            is_narrower(agent.deps, tool.deps),
            f"its tool {tool.name!r} takes a TaskContext[{type_name(tool.deps)}], and its"
            f" dependencies are of type {type_name(agent.deps)}",
        )


def _require_agent_tools(agent: Agent[Any]) -> None:
    """Refuse tools that are agents where their names cannot tell them apart."""
    known = {it.name: it for it in agent.delegates}
    for tool in agent.tools:
        if tool.task is None:
            continue
        its_agent = tool.task.agent
        _require(
            agent,
            known.setdefault(its_agent.name, its_agent) is its_agent,
            f"its tool {tool.name!r} is an agent called {its_agent.name!r}, and it delegates to"
            " another agent of that name: rename one of them",
        )
        _require(
            agent,
            tool.name not in DELEGATION_TOOLS,
            f"its tool {tool.name!r} has a name that the delegation tools have: give it another"
            " one with as_tool(name=...)",
        )
        _require(
            agent,
            not agent.place,
            f"it has the place {agent.place!r}, and its tool {tool.name!r} delegates, which"
            " workers cannot do",
        )


def _require_choices(agent: Agent[Any]) -> None:
    """Refuse models and efforts that no parent could choose."""
    for model in agent.models:
        _require(
            agent,
            has_type(model, str) or (hasattr(model, "answer") and not has_type(model, type)),
            f"{model!r} in models= is neither the name of a model nor a Model",
        )
    names = [it if isinstance(it, str) else it.name for it in agent.models]
    _require(
        agent, len(set(names)) == len(names), f"two of its models have one name: {', '.join(names)}"
    )
    for effort in agent.efforts:
        _require(
            agent, effort in EFFORTS, f"{effort!r} in efforts= must be one of {', '.join(EFFORTS)}"
        )
    _require(
        agent,
        agent.may_delegate or not agent.gives_budgets,
        "gives_budgets=True, and it has no delegates to give a budget to",
    )
    _require(
        agent,
        agent.may_delegate or not agent.summaries,
        "summaries=True, and it has no delegates to give a summary to",
    )


def _is_named(tool: str | None, names: Collection[str]) -> bool:
    return any(
        tool == name or (name.endswith("__") and str(tool).startswith(name)) for name in names
    )


def _require(agent: Agent[Any], condition: bool, problem: str) -> None:
    if not condition:
        raise DefinitionError(f"agent {agent.name!r}: {problem}")
