"""`team.yaml`: the agents of a team in one file, with their common settings."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.products.agent_files.entry import AgentEntry
from orchestrator.products.agent_files.located import AgentFileError, Located
from orchestrator.products.agent_files.markdown import has_front_matter, read_agent
from orchestrator.products.agent_files.source_text import read_text
from orchestrator.products.agent_files.yaml_text import read_yaml

KEYS: Final = ("agents", "lead", "model", "pipelines", "policy", "schedule")
EXAMPLE: Final = "agents: {editor: {instructions: ...}}"
MOST_FILES: Final = 1_000


@attrs.frozen(kw_only=True)
class TeamEntries:
    """The agents of a file or a folder, as they are written."""

    entries: tuple[AgentEntry, ...]
    lead: Located | None = None
    """The name of the agent that is run, if the file says so."""
    model: Located | None = None
    """The model of agents that name none."""
    pipelines: Located | None = None
    """The scripts over its agents, by their names."""
    policy: Located | None = None
    """The order of model calls that wait for a provider."""
    schedule: Located | None = None
    """The jobs that begin its agents by the clock."""
    files: tuple[Path, ...]
    """All that was read."""
    folder: Path | None = None
    """Where a file that is added is an agent of the team, too."""


def read_team(path: Path) -> TeamEntries:
    """Return the agents of a Markdown file, of a folder of them, or of a team file."""
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() == ".md":
        entry = read_agent(path)
        return TeamEntries(entries=(entry,), files=(path,))
    return _read_team_file(path)


def _read_folder(folder: Path) -> TeamEntries:
    files = sorted(folder.rglob("*.md"))
    if len(files) > MOST_FILES:
        raise AgentFileError(folder, 0, f"it has more than {MOST_FILES:,} files *.md")
    # What people read about the folder is no agent.
    found = [
        file for file in files if file.stem.upper() != "README" or has_front_matter(read_text(file))
    ]
    if not found:
        team = next(iter(sorted(folder.glob("*.y*ml"))), None)
        hint = f"name the file: {team}" if team else "an agent is a file such as editor.md"
        raise AgentFileError(folder, 0, f"no agent is in this folder; {hint}")
    return TeamEntries(entries=tuple(map(read_agent, found)), files=tuple(found), folder=folder)


def _read_team_file(file: Path) -> TeamEntries:
    document = read_yaml(read_text(file), file)
    keys = document.as_mapping("a team", EXAMPLE)
    for key, value in keys.items():
        if key not in KEYS:
            value.refuse(f"a team has no key {key!r}; {did_you_mean(key, KEYS)}")
    if "agents" not in keys:
        document.refuse(f"a team has agents: write {EXAMPLE!r}")
    teams = [*_members(keys["agents"], file)]
    return TeamEntries(
        entries=tuple(entry for team in teams for entry in team.entries),
        lead=keys.get("lead"),
        model=keys.get("model"),
        pipelines=keys.get("pipelines"),
        policy=keys.get("policy"),
        schedule=keys.get("schedule"),
        files=(file, *(it for team in teams for it in team.files)),
        folder=next((team.folder for team in teams if team.folder), None),
    )


def _members(agents: Located, file: Path) -> Iterable[TeamEntries]:
    if isinstance(agents.value, str):
        return [_referred(agents, file, "agents")]
    members = agents.as_mapping("agents", EXAMPLE)
    if not members:
        agents.refuse(f"a team has agents: write {EXAMPLE!r}")
    return _each(members, file)


def _each(members: Mapping[str, Located], file: Path) -> Iterator[TeamEntries]:
    for name, member in members.items():
        own_name = Located(name, file, member.key_line)
        if isinstance(member.value, str):
            team = _referred(member, file, name)
            if len(team.entries) != 1:
                member.refuse(f"{name!r} is one agent: name its file, such as agents/{name}.md")
            entry = attrs.evolve(team.entries[0], name=own_name)
            yield attrs.evolve(team, entries=(entry,), folder=None)
            continue
        fields = dict(member.as_mapping(f"agent {name!r}", "instructions: ..."))
        if "name" in fields:
            fields["name"].refuse(f"its name is its key: {name}")
        instructions = fields.pop("instructions", Located("", file, member.key_line))
        entry = AgentEntry(name=own_name, fields=fields, instructions=instructions, at=own_name)
        yield TeamEntries(entries=(entry,), files=())


def _referred(where: Located, file: Path, name: str) -> TeamEntries:
    path = file.parent / where.as_text(name)
    if not path.exists():
        where.refuse(f"there is no {path}: paths begin at the folder of this file")
    if not path.is_dir() and path.suffix.lower() != ".md":
        where.refuse(f"{path} is neither a folder nor a Markdown file of an agent")
    return read_team(path)
