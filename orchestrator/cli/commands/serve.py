"""`orchestrator serve`: serve the agents of a file over HTTP, until a signal comes."""

import gc
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import trio
from cyclopts import Parameter

from agents import Agent, raising_one_error
from delegation import SessionRecord
from orchestrator.cli.agent_file import load_agents
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import parse_age
from orchestrator.cli.options import JournalOption, journal_path
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import command
from orchestrator.control.server import open_control
from orchestrator.journal.backends import IN_MEMORY
from orchestrator.runtime import Orchestrator, open_orchestrator

if TYPE_CHECKING:
    from orchestrator.server.transport.api_key import StoredSecret
    from orchestrator.server.transport.listener import Listening

GRACE_SECONDS: Final = 10
PRUNE_SECONDS: Final = 3600
"""How long after a pruning the next one begins."""
INSTALL: Final = "pip install 'delegation-orchestrator[server]'"
REACHABLE_AT: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared, not bound)
"""An address to reach a server that listens at all addresses."""


def serve(
    file: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    allowed_host: tuple[str, ...] = (),
    workspace: Path | None = None,
    body_limit: int = 10_000_000,
    certificate: Path | None = None,
    key: Path | None = None,
    webhook: Annotated[str | None, Parameter(show_default=False)] = None,
    grace: float = GRACE_SECONDS,
    keep: str | None = None,
    journal: JournalOption = None,
) -> int:
    """Put the agents of a file behind HTTP: each is a model for OpenAI's clients.

    Clients show a token: ORCHESTRATOR_API_KEY, or the one that is made and kept beside the
    journal. Exits with 0 when a signal has stopped it in good order.

    Args:
        file: A Python file that defines agents: FILE for all of them, FILE:NAME for one.
        host: Where to listen; others than this machine can connect only where that is asked for.
        port: 0 takes any that is free, and says which.
        allowed_host: A name by which clients may call this server, besides its address; * is any.
        workspace: The folder that tools work in; by default this one.
        body_limit: How many bytes a request may have.
        certificate: A PEM file; then the server speaks TLS.
        key: The PEM file of its key, if that is another one.
        webhook: A URL that receives the replies, signed.
        grace: How many seconds what runs may go on after the first signal.
        keep: Delete runs that have ended and have no fact that is newer than this: 12h, 30d, 2w.
            By default all are kept.
    """
    kept_seconds = None if keep is None else parse_age(keep, "--keep")
    _require_positive(body_limit, "--body-limit")
    if not 0 <= port < 2**16:
        raise CommandError(f"--port is {port}; it must be 0 to 65535")
    if not 0 <= grace < math.inf:
        raise CommandError(f"--grace is {grace}; it must be 0 or more")
    if workspace is not None and not workspace.is_dir():
        raise CommandError(f"--workspace {workspace} is no folder")
    try:
        # Imported late: these libraries are an extra.
        from orchestrator.server.server import open_server
        from orchestrator.server.state import Settings
        from orchestrator.server.transport.access import accepted_hosts
        from orchestrator.server.transport.api_key import (
            VARIABLE,
            is_loopback,
            token_for,
        )
        from orchestrator.server.transport.listener import (
            Listening,
            require_certificate,
        )
        from orchestrator.server.webhook import SECRET, open_webhook, secret_for
    except ModuleNotFoundError as exc:
        raise CommandError(f"a server needs {exc.name}: {INSTALL}") from exc

    # The file may run any code, so it is loaded before the event loop starts.
    agents = load_agents(file)
    listening = Listening(host=host, port=port, certificate=certificate, key=key)
    require_certificate(listening)
    folder = journal_path(journal).parent
    token = token_for(os.environ, folder, is_local=is_loopback(host))
    secret = None if webhook is None else secret_for(os.environ, folder)
    # Under these names both are redacted from texts and removed from the environment of commands.
    secrets = {VARIABLE: token.value} | (
        {} if secret is None else {SECRET: secret.value}
    )

    _freeze_imports()

    async def work(stop: Stop) -> int:
        async with AsyncExitStack() as opened:
            orchestrator = await opened.enter_async_context(
                open_orchestrator(
                    journal,
                    environ={**os.environ, **secrets},
                    secrets=secrets,
                    workspace=workspace,
                )
            )
            if str(journal) != IN_MEMORY:
                await opened.enter_async_context(
                    open_control(orchestrator, journal_path(journal))
                )
            push = None
            if webhook is not None and secret is not None:
                push = await opened.enter_async_context(
                    open_webhook(webhook, secret.value)
                )
            settings = Settings(
                token=token.value,
                hosts=accepted_hosts([host], allowed_host),
                body_limit=body_limit,
            )
            server = await opened.enter_async_context(
                open_server(orchestrator, agents, settings, listening, push)
            )
            stop.set_orchestrator(orchestrator)
            if kept_seconds is not None:
                opened.enter_context(raising_one_error())
                nursery = await opened.enter_async_context(trio.open_nursery())
                opened.callback(nursery.cancel_scope.cancel)
                nursery.start_soon(_prune_forever, orchestrator, kept_seconds)
            if secret is not None:
                where = SECRET if secret.file is None else secret.file.absolute()
                print(f"webhooks are signed with the secret in {where}")
            _print_unserved(server.state.unserved_sessions)
            _print_unusable(server.state.unusable_agents)
            _print_address(server.addresses[0], agents, token, listening, journal)
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    return run_stoppable(work, grace)


async def _prune_forever(orchestrator: Orchestrator, kept_seconds: int) -> NoReturn:
    """Delete the runs that are older, now and again every hour."""
    while True:
        await orchestrator.prune(before=orchestrator.now() - kept_seconds)
        await trio.sleep(PRUNE_SECONDS)


def _freeze_imports() -> None:
    """Exempt what is imported from garbage collection: it lives as long as the server.

    A full collection, during which no client is answered, walks through all other objects.
    """
    gc.collect()
    gc.freeze()


def _require_positive(number: int, option: str) -> None:
    if number <= 0:
        raise CommandError(f"{option} is {number}; it must be 1 or more")


def _print_unserved(left: "Sequence[SessionRecord]") -> None:
    if left:
        missing = ", ".join(sorted({session.root.agent for session in left}))
        print(f"{len(left)} unfinished, of agents that are not served here: {missing}")


def _print_unusable(problems: Mapping[str, str]) -> None:
    for name, problem in problems.items():
        print(f"warning: agent {name} cannot run: {problem}", file=sys.stderr)


def _print_address(
    address: str,
    agents: Mapping[str, Agent[Any]],
    token: "StoredSecret",
    listening: "Listening",
    journal: Path | None,
) -> None:
    """Print what a client needs: the address, the agents, the token."""
    scheme, _, authority = address.partition("://")
    bound_host, _, port = authority.rpartition(":")
    url = f"{scheme}://{REACHABLE_AT.get(bound_host, bound_host)}:{port}"
    print(f"listening at {url}")
    print(f"agents: {', '.join(agents)}")
    if token.file is None:
        shown = "$ORCHESTRATOR_API_KEY"
        print("token: the one in ORCHESTRATOR_API_KEY")
    else:
        shown = f"$(cat {shlex.quote(str(token.file.absolute()))})"
        once = f"{token.value} (it is shown only now), " if token.is_new else ""
        print(f"token: {once}kept in {token.file.absolute()}")
    # Another shell need not have the same environment.
    where = journal_path(journal) if "ORCHESTRATOR_HOME" in os.environ else journal
    trusting = ""
    if listening.certificate is not None:
        trusting = f" --cacert {shlex.quote(str(listening.certificate.absolute()))}"
    print(
        f'try: curl{trusting} -H "Authorization: Bearer {shown}" {url}/v1/models',
        f"watch: {command('watch', journal=where)}",
        sep="\n",
        flush=True,
    )
