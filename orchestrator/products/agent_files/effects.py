"""The effects of agent files: the acts that need no further approval.

A file may come from a stranger. It starts programs, sends variables away, opens folders and
replaces questions by rules of its own, so a person reads these effects before it is used.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import attrs

from orchestrator.agents import Agent
from orchestrator.agents.approval import ApprovalRule, Verdict
from orchestrator.agents.tools.mcp.server import VARIABLE, McpCommand, McpServer
from orchestrator.ports.execution import reachable_agents
from orchestrator.products.agent_files.agent_graph import BuiltTeam
from orchestrator.products.agent_files.job_entry import JobEntry

FILE: Final = "file:"
WEBHOOK: Final = "webhook:"
JOB: Final = "job"


@attrs.frozen
class Effects:
    """The effects of files, as a person reads them, and the digest of everything behind them."""

    lines: tuple[str, ...]
    digest: str
    """It changes with each definition that has an effect, also in parts that no line shows."""


def effects_of_team(team: BuiltTeam) -> Effects:
    """Return the effects of the agents and jobs of files."""
    agents = team.agents.values()
    servers = [server for agent in agents for server in agent.servers]
    lines = [
        *map(_server_line, servers),
        *(line for agent in agents for line in _agent_lines(agent)),
        *(line for job in team.jobs for line in _job_lines(job)),
    ]
    rules = {agent.name: [attrs.asdict(it) for it in agent.approve] for agent in agents}
    return _effects(lines, servers, rules)


def effects_of_servers(servers: Iterable[McpServer]) -> Effects:
    """Return the effects of the servers of a `.mcp.json`."""
    servers = [*servers]
    return _effects(map(_server_line, servers), servers, {})


def _effects(
    lines: Iterable[str], servers: Iterable[McpServer], rules: Mapping[str, Any]
) -> Effects:
    shown = tuple(dict.fromkeys(lines))
    whole = [shown, sorted(map(_whole, servers)), rules if shown else None]
    return Effects(shown, sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest())


def _whole(server: McpServer) -> str:
    def plain(value: object) -> object:
        is_mapping = isinstance(value, Mapping)
        return dict(cast("Mapping[str, str]", value)) if is_mapping else str(value)

    return json.dumps([type(server).__name__, attrs.asdict(server)], default=plain, sort_keys=True)


def _server_line(server: McpServer) -> str:
    if not isinstance(server, McpCommand):
        return f"sends {_named(server.headers)} to {server.url}"
    line = f"starts `{shlex.join(server.command)}`"
    if server.env:
        line += f" with {_named(server.env)}"
    if not server.sandbox:
        return f"{line}, with all your rights"
    rights = [
        *_listed("writes", server.write),
        *_listed("reads", server.read or ()),
        *_listed("starts in", [server.cwd] if server.cwd else ()),
        "any network"
        if server.network is True
        else f"network: {', '.join(server.network)}"
        if server.network
        else "no network",
    ]
    return f"{line}, in a sandbox ({'; '.join(rights)})"


def _named(values: Mapping[str, str]) -> str:
    """Return the variables of this process in values, or the names of values without one."""
    found = {it[1]: None for value in values.values() for it in VARIABLE.finditer(value)}
    return ", ".join(found or values) or "requests"


def _listed(verb: str, paths: Iterable[Path]) -> Iterator[str]:
    if names := ", ".join(map(str, paths)):
        yield f"{verb} {names}"


def _agent_lines(agent: Agent[Any]) -> Iterator[str]:
    if isinstance(agent.workspace, Path) and _may_lead_out(agent.workspace):
        yield f"lets {agent.name} read and write {agent.workspace}"
    if agent.memory is not None:
        yield f"lets {agent.name} write its memory {agent.memory}"
    for skill in agent.skills:
        if not (isinstance(skill, str) or skill.folder.is_relative_to(Path.cwd())):
            yield f"lets {agent.name} load the skill {skill.folder}"
    if not agent.approve:
        return
    below = [*reachable_agents(agent)]
    tools = [it.name for one in below for it in one.tools if it.machine not in {None, "read"}]
    tools += [JOB for one in below if one.schedules]
    tools += [name for one in below for it in one.servers for name in _of_server(it, agent)]
    unasked = dict.fromkeys(it for it in tools if not _is_asked(it, agent.approve))
    if unasked:
        yield f"lets {agent.name} call {', '.join(unasked)} without asking you"


def _of_server(server: McpServer, agent: Agent[Any]) -> Iterator[str]:
    """Yield all tools of a server as a pattern, and those that a rule names."""
    yield f"{server.name}__*"
    yield from (it.tool for it in agent.approve if it.tool.startswith(f"{server.name}__"))


def _may_lead_out(folder: Path) -> bool:
    return folder.is_absolute() or bool({"..", "~"}.intersection(folder.parts))


def _is_asked(tool: str, rules: Iterable[ApprovalRule]) -> bool:
    """Return whether rules let no call of a tool pass unasked."""
    for rule in rules:
        if not fnmatchcase(tool, rule.tool):
            continue
        if rule.verdict is Verdict.ALLOW:
            return False
        if rule.command is None and rule.path is None:
            return True
    return False


def _job_lines(job: JobEntry) -> Iterator[str]:
    targets = job.options.get("deliver", ())
    for target in targets if isinstance(targets, tuple) else ():
        verb = "writes" if target.startswith(FILE) else "sends"
        where = target.removeprefix(FILE).removeprefix(WEBHOOK)
        yield f"{verb} answers of the job {job.name} to {where}"
