"""The sandbox of a command line: its option, and the line that describes it."""

import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from orchestrator.agents import Agent, McpCommand
from orchestrator.agents.sandbox.choice import SandboxChoice, SandboxName
from orchestrator.agents.sandbox.detection import Detected
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.settings import SANDBOX_VARIABLE

SandboxOption = Annotated[
    SandboxName | None,
    Parameter(
        help="The sandbox of the agents' commands: bubblewrap, landlock, none, or the strongest"
        " one that works here (auto). By default ORCHESTRATOR_SANDBOX, else auto.",
        show_default=False,
    ),
]


async def choose_sandbox(
    name: SandboxName | None, agents: Iterable[Agent[Any]], *, quiet: bool = False
) -> SandboxChoice:
    """Return the sandbox of a command line; print its name if an agent may need it."""
    choice = SandboxChoice(name or os.environ.get(SANDBOX_VARIABLE) or "auto")
    if not quiet and any(_starts_programs(one) for it in agents for one in reachable_agents(it)):
        print(describe_sandbox(await choice.detect()), file=sys.stderr)
    return choice  # noqa: ASYNC910 (most agents need none)


def _starts_programs(agent: Agent[Any]) -> bool:
    return any(tool.machine for tool in agent.tools) or any(
        isinstance(server, McpCommand) for server in agent.servers
    )


def describe_sandbox(found: Detected) -> str:
    """Return one line about a sandbox: its strength, its gaps, and why no stronger one works."""
    backend = found.backend
    what = "a wall" if backend.is_wall else "NO wall: commands may do what you may"
    if backend.name != "none" and not backend.is_wall:
        what = "a fence, and no wall"
    lacks = f"; not held: {', '.join(backend.lacks)}" if backend.lacks else ""
    refused = "".join(f"; no {name}: {why}" for name, why in found.refused.items())
    return f"sandbox of commands: {backend.name} ({what}{lacks}{refused})"
