"""The agent of a session: the agent of the team, with the servers and the model of the editor."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, DefinitionError, Model, Pipeline
from orchestrator.agents.tools.mcp.server import McpCommand, McpServer, McpUrl
from orchestrator.products.acp import schema

MODEL: Final = "model"
"""The id of the option that chooses the model."""
LONGEST_NAME: Final = 32
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9]+")


def with_servers(agent: Agent[Any], servers: Sequence[schema.ClientServer]) -> Agent[Any]:
    """Return an agent that has the tools of the editor's servers, too.

    A program has no tools. Where two servers have one name, the server of the agent stays.
    """
    if isinstance(agent, Pipeline):
        return agent
    names = {it.name for it in agent.servers}
    added = [it for it in map(_server, servers) if it.name not in names]
    return attrs.evolve(agent, servers=(*agent.servers, *added)) if added else agent


def _server(server: schema.ClientServer) -> McpServer:
    name = _NO_NAME.sub("-", server.name).strip("-")[:LONGEST_NAME].rstrip("-")
    if not name[:1].isalpha():
        name = f"server-{name}"[:LONGEST_NAME].rstrip("-")
    match server.type:
        case "stdio":
            command = (server.command, *server.args)
            # The user of the editor has configured it, as in a shell. It starts in a folder of its
            # own: in the workspace it could import a file of an agent.
            return McpCommand(name, command, env=_values(server.env), sandbox=False)
        case "http":
            return McpUrl(name, server.url, headers=_values(server.headers))
        case other:
            raise DefinitionError(
                f"server {server.name!r} is of the type {other!r}: mcpCapabilities name the types"
            )


def _values(named: Iterable[schema.Named]) -> dict[str, str]:
    return {it.name: it.value for it in named}


def options_of(agent: Agent[Any]) -> tuple[schema.ConfigOption, ...]:
    """Return the options of a session: the model, if its agent names several."""
    if not agent.models:
        return ()
    names = [_name(it) for it in (agent.model, *agent.models)]
    return (
        schema.ConfigOption(
            id=MODEL,
            name="Model",
            category="model",
            current_value=names[0],
            options=[schema.SelectOption(value=it, name=it) for it in dict.fromkeys(names)],
        ),
    )


def with_option(agent: Agent[Any], option: str, value: str | bool) -> Agent[Any]:
    """Return an agent with another value of an option, which the editor has chosen."""
    models = {_name(it): it for it in (agent.model, *agent.models)}
    if option != MODEL or not agent.models:
        raise DefinitionError(f"the session has no option {option!r}")
    if not isinstance(value, str) or value not in models:
        raise DefinitionError(f"{value!r} is no model of the agent: {', '.join(models)}")
    others = [it for name, it in models.items() if name != value]
    return attrs.evolve(agent, model=models[value], models=tuple(others))


def _name(model: str | Model) -> str:
    return model if isinstance(model, str) else model.name
