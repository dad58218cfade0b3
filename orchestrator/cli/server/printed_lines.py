"""The lines that `orchestrator serve` prints: its address, its keys, and its warnings."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.agents import Agent
from orchestrator.cli.agent_file import LoadedTeam
from orchestrator.cli.exposed_journal import warn_of_exposed_journal
from orchestrator.cli.options import journals_of
from orchestrator.cli.retention import DEFAULT_DAYS, Retention
from orchestrator.cli.terminal.console import command
from orchestrator.delegation import SessionRecord
from orchestrator.products.server.server import Server
from orchestrator.products.server.transport.api_key import StoredSecret
from orchestrator.products.server.transport.listener import Listening
from orchestrator.products.server.webhook import SECRET, Webhook

REACHABLE_AT: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared, not bound)
"""An address to reach a server that listens at all addresses."""


def report(sentence: str) -> None:
    print(f"orchestrator: {sentence}", file=sys.stderr, flush=True)


def print_signed(webhooks: Iterable[Webhook]) -> None:
    for it in webhooks:
        where = SECRET if it.secret.file is None else it.secret.file.absolute()
        print(f"webhooks of {it.owner} are signed with the secret in {where}")


def print_retention(retention: Retention) -> None:
    if retention.is_default:
        print(
            f"retention: ended runs are deleted after {DEFAULT_DAYS} days, for the first time in an"
            " hour (--keep 30d for another age, --keep forever to keep all)"
        )


def print_unserved(left: Sequence[SessionRecord]) -> None:
    if left:
        missing = ", ".join(sorted({session.root.agent for session in left}))
        print(f"{len(left)} unfinished, of agents that are not served here: {missing}")


def print_warnings(
    problems: Mapping[str, str],
    agents: Mapping[str, Agent[Any]],
    journal: str | None,
    workspace: Path | None,
) -> None:
    warn_of_exposed_journal(agents.values(), journal, workspace)
    for name, problem in problems.items():
        print(f"warning: agent {name} cannot run: {problem}", file=sys.stderr)


def _reachable(address: str) -> str:
    """Return the URL that reaches a server from this machine."""
    scheme, _, authority = address.partition("://")
    bound_host, _, port = authority.rpartition(":")
    return f"{scheme}://{REACHABLE_AT.get(bound_host, bound_host)}:{port}"


def console_link(server: Server) -> str:
    """Return a link that signs one browser in."""
    code = server.state.sign_ins.new_link()
    return f"{_reachable(server.addresses[0])}/#/login/{code}"


def print_address(
    address: str,
    team: LoadedTeam,
    token: StoredSecret | None,
    listening: Listening,
    journal: str | None,
) -> None:
    """Print the address, the agents and the token for clients."""
    url = _reachable(address)
    print(f"listening at {url}")
    print(f"agents: {', '.join(team.agents)}")
    if team.jobs:
        print(f"jobs: {', '.join(it.id for it in team.jobs)}")
    # Another shell need not have the same environment.
    where = journal
    if journal is None and "ORCHESTRATOR_HOME" in os.environ:
        where = journals_of(journal).address
    if token is None:
        shown = "$TOKEN"
        print(f"keys: those of {command('keys', 'list', journal=where)}")
    elif token.file is None:
        shown = "$ORCHESTRATOR_API_KEY"
        print("token: the one in ORCHESTRATOR_API_KEY")
    else:
        shown = f"$(cat {shlex.quote(str(token.file.absolute()))})"
        once = f"{token.value} (it is shown only now), " if token.is_new else ""
        print(f"token: {once}kept in {token.file.absolute()}")
    trusting = ""
    if listening.certificate is not None:
        trusting = f" --cacert {shlex.quote(str(listening.certificate.absolute()))}"
    print(
        f'try: curl{trusting} -H "Authorization: Bearer {shown}" {url}/v1/models',
        f"watch: {command('watch', journal=where)}",
        sep="\n",
        flush=True,
    )
