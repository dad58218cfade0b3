"""`load_agents`: the agents of a folder, a Markdown file or a team file, by name."""

import os
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path

import attrs

from orchestrator.agents import Agent, Model, Tool
from orchestrator.agents.tools.files.own_code import protect_definitions
from orchestrator.products.agent_files.agent_graph import BuiltTeam, build_team, wanted_delegates
from orchestrator.products.agent_files.located import AgentFileError
from orchestrator.products.agent_files.team_file import TeamEntries, read_team
from orchestrator.products.agent_files.tool_names import ALL


def load_agents(
    path: str | os.PathLike[str], *, tools: Iterable[Tool] = (), model: str | Model | None = None
) -> dict[str, Agent[str]]:
    """Return the agents of files, by name: of a folder of `*.md`, of one file, or of a `team.yaml`.

    No code in a file is run. A `UserWarning` names keys that have no meaning here.

    Args:
        path: the folder or the file.
        tools: functions of this program that files may name, besides the tools that ship.
        model: the model of agents that name none.

    Raises:
        DefinitionError: a file defines no agent; the error names the place and the correction.
    """
    team = read_agents(Path(path), tools=tools, model=model)
    for warning in team.warnings:
        warnings.warn(warning, stacklevel=2)
    return dict(team.agents)


def read_agents(
    path: Path,
    *,
    tools: Iterable[Tool] = (),
    model: str | Model | None = None,
    services: Collection[str] | None = None,
) -> BuiltTeam:
    """Return the agents of files, and the keys that have no meaning here.

    `services` are the service names of models; None if they are not known yet, since a program can
    name more of them when it opens an orchestrator.
    """
    if not path.exists():
        raise AgentFileError(path, 0, "there is no such file or folder")
    team = read_team(path)
    is_one = path.suffix.lower() == ".md"
    if is_one:
        team = _with_delegates(team, path)
    built = build_team(team, tools=tools, model=model, services=services)
    # An agent that could write these would give itself tools at the next start.
    protect_definitions(team.files, team.folder)
    return attrs.evolve(built, lead=next(iter(built.agents))) if is_one else built


def _with_delegates(team: TeamEntries, path: Path) -> TeamEntries:
    """Add the agents beside a file that its agent delegates to, directly or not."""
    (own,) = team.entries
    if not wanted_delegates(own):
        return team
    beside = [it for it in read_team(path.parent).entries if it.at.file.name != path.name]
    found = [own]
    for entry in found:
        wanted = {it.as_text("a delegate") for it in wanted_delegates(entry)}
        found += [
            it for it in beside if (it.name.value in wanted or ALL in wanted) and it not in found
        ]
    files = tuple(it.at.file for it in found)
    return attrs.evolve(team, entries=tuple(found), files=files)
