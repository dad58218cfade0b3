"""Loads agents of `FILE` or `FILE:NAME`: a Python file, a folder of `*.md`, a `team.yaml`."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import attrs

from orchestrator.agents import Agent, is_agent
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.cli.errors import CommandError
from orchestrator.cli.trust import require_trust
from orchestrator.delegation import printable
from orchestrator.ports.execution import known_providers
from orchestrator.ports.settings import MODULE, loads_agents
from orchestrator.products.schedule import Job
from orchestrator.products.schedule.file_jobs import built_jobs

MONTY: Final = "pydantic_monty"
"""The interpreter of scripts, an optional library."""
DEFINITIONS: Final = frozenset({".md", ".yaml", ".yml"})
"""The suffixes of files that define agents without code."""


@attrs.frozen
class _Found:
    """The agents of a file, by their names and by the names of their variables."""

    agents: dict[str, Agent[Any]]
    lead: str | None = None
    """The name of the agent that the file declares as its lead."""
    jobs: tuple[Job, ...] = ()
    """The jobs that start them by the clock."""
    policy: str | None = None
    """The order of model calls that wait for a provider, if the file names one."""


@attrs.frozen
class LoadedTeam:
    """The agents and jobs of a file."""

    agents: dict[str, Agent[Any]]
    """Its agents, by their own names."""
    jobs: tuple[Job, ...]
    """The jobs that start them by the clock."""
    policy: str | None = None
    """The order of model calls that wait for a provider, if the file names one."""


def load_agent(target: str, *, model: str | None = None, trust: bool = False) -> Agent[Any]:
    """Return the agent of FILE or FILE:NAME; only a Python file runs code."""
    file, name = _split(target)
    return _leading(_agents_in(file, model, trust=trust), file, name)


def agent_of_run(agent: Agent[Any], run: str) -> Agent[Any]:
    """Return the agent for a run whose agent has a name: the run may be a script over its team."""
    if run != SCRIPT or agent.name == SCRIPT:
        return agent
    # Imported late: most runs are no scripts.
    from orchestrator.agents.script import script_agent_of

    return script_agent_of(agent)


def load_agent_to_look_at(target: str, *, model: str | None = None) -> Agent[Any]:
    """Return the agent of FILE or FILE:NAME, which calls no model and starts no server."""
    file, name = _split(target)
    return _leading(_agents_in(file, model, acts=False), file, name)


def load_agent_and_jobs(target: str, *, trust: bool = False) -> tuple[Agent[Any], tuple[Job, ...]]:
    """Return the agent of a file, like `load_agent`, and the jobs of the file."""
    file, name = _split(target)
    found = _agents_in(file, trust=trust)
    return _leading(found, file, name), found.jobs


def _leading(found: _Found, file: Path, name: str) -> Agent[Any]:
    if name or found.lead:
        return _named(name or str(found.lead), found.agents, file)
    agents = {id(agent): agent for agent in found.agents.values()}
    roots = [
        agent
        for agent in agents.values()
        if not any(id(agent) in _team_of(other) for other in agents.values() if other is not agent)
    ]
    if not agents:
        raise CommandError(f"{file} defines no Agent at its top level")
    if len(roots) != 1:
        which = "FILE:NAME" if file.is_file() else f"{file}/:NAME"
        raise CommandError(f"say which agent of {file}: {which}; {_choice(found.agents)}")
    return roots[0]


def load_agents(target: str, *, trust: bool = False) -> dict[str, Agent[Any]]:
    """Return all agents of a file by their own names, or the one named."""
    return load_team(target, trust=trust).agents


def load_agents_of_runs(target: str) -> dict[str, Agent[Any]]:
    """Return all agents of a file, and the agent that runs scripts over the team of its lead."""
    file, name = _split(target)
    found = _agents_in(file)
    agents = _team(found, file, name).agents
    try:
        lead = _leading(found, file, name)
    except CommandError:
        return agents  # it has no lead
    return {**agents, SCRIPT: agent_of_run(lead, SCRIPT)} if find_spec(MONTY) else agents


def load_team(target: str, *, trust: bool = False) -> LoadedTeam:
    """Return all agents of a file and its jobs, or the named agent and its jobs."""
    file, name = _split(target)
    return _team(_agents_in(file, trust=trust), file, name)


def _team(found: _Found, file: Path, name: str) -> LoadedTeam:
    if name:
        agent = _named(name, found.agents, file)
        jobs = tuple(it for it in found.jobs if it.agent is agent)
        return LoadedTeam({agent.name: agent}, jobs, found.policy)
    agents: dict[str, Agent[Any]] = {}
    for agent in found.agents.values():
        if agents.setdefault(agent.name, agent) is not agent:
            raise CommandError(
                f"{file} has two agents of the name {agent.name!r}: give one of them another"
            )
    if not agents:
        raise CommandError(f"{file} defines no Agent at its top level")
    return LoadedTeam(agents, found.jobs, found.policy)


def file_name(target: str) -> str:
    """Return the file or folder of FILE or FILE:NAME, as a command in this folder accepts it."""
    file, _ = _split(target)
    return f"{file.name}/" if file.is_dir() else file.name


def variables_of(agents: Mapping[str, Agent[Any]]) -> dict[str, str]:
    """Return the variables of agents in the Python file that was loaded last, by their names."""
    module = sys.modules.get(MODULE)
    found = {} if module is None else vars(module)
    variables = {id(value): variable for variable, value in found.items()}
    return {name: variables[id(agent)] for name, agent in agents.items() if id(agent) in variables}


def load_schedule(target: str, *, trust: bool = False) -> LoadedTeam:
    """Return the agents and jobs of a Python file (all variables of type `Job`) or a team.yaml."""
    file, name = _split(target)
    if name or file.is_dir() or file.suffix.lower() == ".md":
        raise CommandError(
            f"{target} has no jobs: a schedule is the variable of a Python file, such as"
            " schedule = [Job(...)], or the key 'schedule' of a team.yaml"
        )
    found = _agents_in(file, trust=trust)
    if not found.jobs:
        raise CommandError(
            f"{file} defines no Job at its top level; write one, such as schedule ="
            ' [Job("0 8 * * MON", editor, "Write the brief.")]'
        )
    agents = {agent.name: agent for agent in found.agents.values()}
    return LoadedTeam(agents, found.jobs)


def _jobs_in(value: Any) -> Iterator[Job]:
    if isinstance(value, Job):
        yield value
    elif isinstance(value, list | tuple):
        yield from (it for it in cast("Sequence[object]", value) if isinstance(it, Job))


def _named(name: str, found: dict[str, Agent[Any]], file: Path) -> Agent[Any]:
    if name not in found:
        raise CommandError(f"{file} has no agent {name!r}; {_choice(found)}")
    return found[name]


def _team_of(agent: Agent[Any]) -> set[int]:
    """Return the ids of all direct and indirect delegates of an agent."""
    found: set[int] = set()
    pending = list(agent.team)
    while pending:
        delegate = pending.pop()
        if id(delegate) not in found:
            found.add(id(delegate))
            pending += delegate.team
    return found


def _split(target: str) -> tuple[Path, str]:
    if target and Path(target).exists():
        return Path(target), ""
    file, _, name = target.rpartition(":")
    path = Path(file or target)
    if not target or not (path.is_file() or path.is_dir()):
        raise CommandError(f"there is no file {path}")
    return path, name


def _agents_in(
    file: Path, model: str | None = None, *, acts: bool = True, trust: bool = False
) -> _Found:
    if file.is_dir() or file.suffix.lower() in DEFINITIONS:
        return _defined_in(file, model, acts=acts, trust=trust)
    return _run(file)


def _defined_in(file: Path, model: str | None, *, acts: bool, trust: bool) -> _Found:
    # Imported late: these read YAML.
    from orchestrator.products.agent_files.effects import effects_of_team
    from orchestrator.products.agent_files.load import read_agents

    services = (*known_providers(os.environ), "local") if acts else None
    team = read_agents(file, model=model, services=services)
    for warning in team.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    if acts:
        require_trust(file, effects_of_team(team), trust=trust)
    jobs = built_jobs(team.jobs, team.agents)
    return _Found(dict(team.agents), team.lead, jobs, team.policy)


def _run(file: Path) -> _Found:
    agents: dict[str, Agent[Any]] = {}
    jobs: dict[int, Job] = {}
    for variable, value in _module(file).items():
        if is_agent(value):
            agents[variable] = value
            agents.setdefault(value.name, value)
        jobs |= {id(it): it for it in _jobs_in(value)}
    return _Found(agents, jobs=tuple(jobs.values()))


def load_variables(file: Path, name: str) -> dict[str, Any]:
    """Run a Python file of a user under the name of a module, and return its variables."""
    return _module(file, f"{MODULE}_{name}")


def loaded_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of the Python file of agents that was loaded last, by their names."""
    module = sys.modules.get(MODULE)
    found = {} if module is None else vars(module)
    return {name: it for name, it in found.items() if isfunction(it) and it.__module__ == MODULE}


def _module(file: Path, name: str = MODULE) -> dict[str, Any]:
    """Run a Python file, and return its variables."""
    # The file can import modules beside it. Its folder comes last, so that a file of an agent hides
    # no module.
    if (folder := str(file.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    # Under a reserved name: a file called agents.py must not hide the package, and its classes
    # must find their module when type hints are resolved.
    loader = SourceFileLoader(name, str(file))
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(file)
    try:
        with loads_agents(module):
            loader.exec_module(module)
    except SyntaxError as exc:
        raise CommandError(f"{file}, line {exc.lineno}: {exc.msg}") from exc
    except SystemExit as exc:
        raise CommandError(f"{file} ends the program instead of defining an agent") from exc
    except Exception as exc:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(exc.__traceback__)
            if frame.filename == str(file)
        ]
        where = f"{file}, line {lines[-1]}" if lines else str(file)
        raise CommandError(f"{where}: {type(exc).__name__}: {exc}") from exc
    return vars(module)


def _choice(found: dict[str, Agent[Any]]) -> str:
    names = sorted({agent.name for agent in found.values()})
    return f"it has: {', '.join(names)}" if names else "it defines no Agent"
