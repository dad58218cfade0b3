"""A process of `orchestrator serve`: prepared before its event loop starts, and then run."""

import ctypes
import gc
import os
import platform
import secrets as random_secrets
import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkstemp
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.secret_references import resolve_references
from orchestrator.backends import IN_MEMORY, is_database
from orchestrator.cli.agent_file import LoadedTeam, file_name, variables_of
from orchestrator.cli.errors import CommandError
from orchestrator.cli.job_targets import JobTargets, targets_for
from orchestrator.cli.options import (
    SETS,
    journals_of,
    on_change_of,
    require_known_models,
    server_folder,
)
from orchestrator.cli.retention import Retention
from orchestrator.cli.sandbox_line import choose_sandbox
from orchestrator.cli.server import printed_lines
from orchestrator.cli.server.journal_opener import JournalOpener
from orchestrator.cli.server.options import OidcOptions, ServeOptions
from orchestrator.cli.signals import Drainable, Stop
from orchestrator.ports.execution import host_of
from orchestrator.ports.files import foreign_folder
from orchestrator.ports.journals import MOST_SHARDS, Journals, OneJournal
from orchestrator.ports.sessions import Push
from orchestrator.products.cluster.database.address import DatabaseAddress, parse_address
from orchestrator.products.cluster.database.left_commands import end_left_commands
from orchestrator.products.cluster.work.postgres.exchange import exchange_opener
from orchestrator.products.cluster.work.shared_exchange import SharedExchange
from orchestrator.products.mcp.server.tools import parse_modes
from orchestrator.products.schedule import require_jobs
from orchestrator.products.server.audit_export import Receiver, open_export, receiver_at
from orchestrator.products.server.cluster import cluster_server
from orchestrator.products.server.cluster.proxy import is_address, is_own_machine
from orchestrator.products.server.console.oidc import OidcSettings, parse_groups
from orchestrator.products.server.console.sign_in import FILE as SIGNED_IN
from orchestrator.products.server.keys.file import FILE as KEYS
from orchestrator.products.server.keys.file import make_keys_file, read_keys
from orchestrator.products.server.keys.key import DEFAULT
from orchestrator.products.server.server import Server, open_server
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.access import accepted_hosts
from orchestrator.products.server.transport.api_key import (
    VARIABLE,
    StoredSecret,
    has_token,
    is_loopback,
    load_or_create_secret,
    token_for,
)
from orchestrator.products.server.transport.listener import Listening, require_usable
from orchestrator.products.server.webhook import SECRET, Webhook, open_webhooks, webhooks_for
from orchestrator.products.telemetry.settings import Telemetry

FOLDER: Final = "keys"
"""The folder of the file; a sandboxed command of an agent cannot read it."""
PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Console</title>
<p><a href="{link}">Open the console</a></p>
"""


@contextmanager
def console_file(folder: Path, link: str) -> Generator[Path]:
    """Keep a file that leads to the one-time link, as long as the block lasts."""
    # Every user of the machine sees the arguments of a process, so the browser gets the file.
    # Made for this user alone, and under a name of its own: a folder may have several servers.
    descriptor, name = mkstemp(".html", "open-console-", folder / FOLDER)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(PAGE.format(link=escape(link)))
        yield Path(name).absolute()
    finally:
        Path(name).unlink(missing_ok=True)


async def open_browser(file: Path, link: str) -> None:
    """Open a browser, if there is one; the link was printed, too."""
    # A browser of Windows cannot read the files of the Linux beside it.
    is_beside_windows = "microsoft" in platform.release().lower()
    address = link if is_beside_windows else file.as_uri()
    await trio.to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True)


SWITCH_SECONDS: Final = 0.000_5
"""The seconds that a thread computes before it hands the interpreter to the event loop."""
M_MMAP_THRESHOLD: Final = -3
"""The number of that setting in `malloc.h`."""
LARGE_BLOCK: Final = 1_000_000
OIDC_SECRET: Final = "ORCHESTRATOR_OIDC_SECRET"  # noqa: S105 (the name of a variable)
INSTALL_OIDC: Final = "pip install 'delegation-orchestrator[oidc]'"
SHARED_NAME: Final = "ORCHESTRATOR_CLUSTER_SECRET"
"""The name of the servers' shared secret among the redacted ones; no variable has it."""


def prepare_server(
    file: str, team: LoadedTeam, options: ServeOptions, retention: Retention
) -> "ServerProcess":
    """Check the options of a server, make its keys, and return it ready to run."""
    listening = Listening(
        host=options.listen.host,
        port=options.listen.port,
        certificate=options.connections.tls_cert,
        key=options.connections.tls_key,
        is_insecure=options.connections.insecure,
        connections_per_peer=options.connections.connections_per_peer,
        keep_alive=options.connections.keep_alive,
    )
    require_usable(listening)
    journal = options.journal
    journals = journals_of(journal)
    database = parse_address(journal) if journal and is_database(journal) else None
    _require_for_database(database, options, listening)
    retention.require_file(is_database=database is not None)
    folder = server_folder(journals)
    if problem := foreign_folder(folder):
        raise CommandError(f"{problem}; the journal and the keys are to be there")
    is_insecure = options.webhooks.insecure_webhook
    values = resolve_references(os.environ)
    environ = {**os.environ, **values}
    webhooks = webhooks_for(options.webhooks.webhook, environ, folder, is_insecure=is_insecure)
    targets = targets_for(team.jobs, folder, environ, is_insecure=is_insecure)
    make_keys_file(folder / KEYS)
    # If there are other keys, make no key that the commands of agents could read.
    token = (
        token_for(environ, folder, is_local=is_loopback(listening.host))
        if has_token(environ, folder) or not read_keys(folder / KEYS)
        else None
    )
    _favour_event_loop()
    _give_memory_back()
    return ServerProcess(
        team=team,
        options=options,
        listening=listening,
        journals=journals,
        database=database,
        folder=folder,
        retention=retention,
        webhooks=webhooks,
        targets=targets,
        token=token,
        receiver=None if options.audit_export is None else receiver_at(options.audit_export),
        settings=attrs.evolve(
            _settings(file, team, options, folder, token), oidc=_oidc(options.oidc, environ)
        ),
        secrets={
            **values,
            **_named(VARIABLE, token),
            **_webhook_secrets(webhooks),
            **targets.secrets,
        },
    )


def _oidc(options: OidcOptions, environ: Mapping[str, str]) -> OidcSettings | None:
    """Return the provider where people sign in, if there is one."""
    if options.oidc_issuer is None:
        return None
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise CommandError(f"--oidc-issuer needs PyJWT: {INSTALL_OIDC}")
    return OidcSettings(
        issuer=options.oidc_issuer,
        client_id=options.oidc_client,
        client_secret=environ.get(OIDC_SECRET, "").strip(),
        groups=parse_groups(options.oidc_group),
        claim=options.oidc_claim,
    )


def _settings(
    file: str, team: LoadedTeam, options: ServeOptions, folder: Path, token: StoredSecret | None
) -> Settings:
    is_in_memory = str(options.journal) == IN_MEMORY
    requests = options.requests
    own_name = urlsplit(options.cluster.address or "").hostname
    return Settings(
        token=None if token is None else token.value,
        # Without a journal, the token is in this folder, which commands can read.
        may_default_approve=False if is_in_memory else None,
        keys=folder / KEYS,
        hosts=accepted_hosts(
            [options.listen.host, *filter(None, [own_name])], options.listen.allowed_host
        ),
        body_limit=requests.body_limit,
        audit_reads=options.audit_reads,
        text_limit=requests.text_limit,
        is_strict=requests.strict,
        ignores_hosted_tools=requests.ignore_hosted_tools,
        origins=frozenset(requests.allow_origin),
        logs_access=requests.access_log,
        console_keys=None if is_in_memory else folder / SIGNED_IN,
        is_view_only=options.console.view,
        task_modes=parse_modes(options.mcp_tasks, team.agents),
        jobs=team.jobs,
        language_models=require_known_models(options.language_model),
        evaluations=SETS.absolute(),
        file=file_name(file),
        variables=variables_of(team.agents),
    )


@attrs.frozen(kw_only=True)
class ServerProcess:
    """A server that is ready to run: its values, its keys and its secrets."""

    team: LoadedTeam
    options: ServeOptions
    listening: Listening
    journals: Journals
    database: DatabaseAddress | None
    folder: Path
    """The folder of its keys and secrets."""
    retention: Retention
    webhooks: Sequence[Webhook]
    targets: JobTargets
    token: StoredSecret | None
    receiver: Receiver | None
    """Gets a copy of the audit."""
    settings: Settings
    secrets: Mapping[str, str] = attrs.field(repr=False)
    """Secrets, by name: redacted from texts, and not in the environment of commands."""

    async def work(self, stop: Stop) -> int:
        """Serve until a signal comes, and return the exit code."""
        choice = await choose_sandbox(self.options.sandbox, self.team.agents.values())
        shared = await self._cluster_secret()
        secrets = {**self.secrets, SHARED_NAME: shared} if shared else self.secrets
        opener = JournalOpener(
            journals=self.journals,
            secrets=secrets,
            webhooks=[it.url for it in self.webhooks],
            hidden=[*filter(None, [self.listening.key or self.listening.certificate])],
            workspace=self.options.workspace,
            sandbox=choice,
            policy=self.options.policy or self.team.policy or "shortest",
            retention=self.retention,
            telemetry=None if self.options.otlp is None else Telemetry(self.options.otlp),
            on_change=on_change_of(accept_changes=self.options.accept_changes),
            exchange=None
            if self.database is None
            else SharedExchange(exchange_opener(self.database.url, os.environ)),
        )
        async with AsyncExitStack() as opened:
            if self.receiver is not None:
                export = open_export(self.receiver, printed_lines.report)
                opener = attrs.evolve(opener, export=await opened.enter_async_context(export))
            if self.database is not None:
                # Ends commands that earlier processes left on this machine for writers elsewhere.
                left = end_left_commands(self.database.url, _host_name())
                await opened.enter_async_context(left)
            if opener.exchange is not None:
                await opened.enter_async_context(opener.exchange.held())
            is_insecure = self.options.webhooks.insecure_webhook
            push = await opened.enter_async_context(
                open_webhooks(self.webhooks, is_insecure=is_insecure)
            )
            targets = await opened.enter_async_context(self.targets.open())
            # Before a journal is taken: a mistake in the file is said at the start.
            require_jobs(self.team.jobs, targets, now=time.time())
            settings = attrs.evolve(self.settings, job_targets=targets)
            cluster = self._cluster(opener, shared, choice) if shared else None
            server, stopped = await opened.enter_async_context(
                self._open_server(opener, settings, push, cluster)
            )
            stop.set_orchestrator(stopped)
            link = self._print(server)
            if self.options.console.browser:
                page = opened.enter_context(console_file(self.folder, link))
                await open_browser(page, link)
            # Objects made so far stay: garbage collection does not look at them again.
            gc.collect()
            gc.freeze()
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    def _cluster(
        self, opener: JournalOpener, secret: str, sandbox: SandboxChoice
    ) -> cluster_server.ClusterSettings:
        environ = {**os.environ, **opener.secrets}
        return cluster_server.ClusterSettings(
            secret=secret.encode(),
            open_orchestrator=opener.open,
            clock=time.time,
            redactor=Redactor(secret_values(environ, tuple(opener.secrets))),
            sandbox=sandbox,
            report=printed_lines.report,
            host=_host_name(),
            address=self.options.cluster.address,
            database=self.database,
            shards=self.options.cluster.shards,
            grace=self.options.grace,
        )

    async def _cluster_secret(self) -> str:
        """Return the secret that servers of the same journals share; it is made of no key."""
        await trio.lowlevel.checkpoint()
        if isinstance(self.journals, OneJournal):
            return ""
        if self.database is not None:
            return await cluster_server.secret_of_database(self.database)
        file = self.folder / "cluster_secret"
        return load_or_create_secret(file, lambda: random_secrets.token_hex(32)).value

    @asynccontextmanager
    async def _open_server(
        self,
        opener: JournalOpener,
        settings: Settings,
        push: Mapping[str, Push],
        cluster: cluster_server.ClusterSettings | None,
    ) -> AsyncGenerator[tuple[Server, Drainable]]:
        """Serve one journal, or a folder; yield the server, and the part that signals drain."""
        journals, agents = self.journals, self.team.agents
        if isinstance(journals, OneJournal):
            async with (
                journals.open_free() as held,
                opener.open(held) as orchestrator,
                open_server(orchestrator, agents, settings, self.listening, push) as server,
            ):
                yield server, orchestrator
            return
        assert cluster is not None, "it is for all but one journal"
        async with cluster_server.open_cluster_server(
            journals, agents, settings, self.listening, push=push, cluster=cluster
        ) as served:
            yield served.server, served

    def _print(self, server: Server) -> str:
        """Print the lines for clients, and return the link to the console."""
        journal = self.options.journal
        printed_lines.print_signed(self.webhooks)
        printed_lines.print_retention(self.retention)
        for it in server.state.journals:
            printed_lines.print_unserved(it.unserved_sessions)
        agents = self.team.agents
        printed_lines.print_warnings(
            server.state.unusable_agents, agents, journal, self.options.workspace
        )
        printed_lines.print_address(
            server.addresses[0], self.team, self.token, self.listening, journal
        )
        if self.settings.oidc is not None:
            print(f"single sign-on: {self.settings.oidc.issuer}, back to the console's address + /")
        if not server.state.settings.is_view_only:
            code = server.state.sign_ins.approval_code
            print(f"approval code: {code} (the console asks for it before you approve or prune)")
        link = printed_lines.console_link(server)
        print(f"console: {link} (signs you in, once)", flush=True)
        return link


def _webhook_secrets(webhooks: Iterable[Webhook]) -> dict[str, str]:
    found: dict[str, str] = {}
    for it in webhooks:
        name = SECRET if it.owner == DEFAULT else f"{SECRET}_{it.owner}"
        found |= _named(name, it.secret)
    return found


def _named(name: str, secret: StoredSecret | None) -> dict[str, str]:
    """Return the values of a secret by name; there may be two, each with a name of its own."""
    values = [] if secret is None else secret.value.split()
    return {
        name if not number else f"{name}_{number + 1}": value for number, value in enumerate(values)
    }


def _host_name() -> str:
    return host_of(None, os.environ, spans_hosts=True).name


def _favour_event_loop() -> None:
    """Keep other code of this process from delaying the answers to clients.

    Imported objects live as long as the server, so they are exempt from garbage collection: a full
    collection blocks all answers while it walks through them. Threads also hand over the
    interpreter sooner, because an answer takes it a dozen times.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


def _give_memory_back() -> None:
    """Return the memory of large bodies to the system as soon as they are freed.

    By default glibc raises its threshold with each one, and the heap keeps holes: 80 chats with
    images of 5 MB left 100 MB behind, and with this setting 32 MB.
    """
    with suppress(AttributeError):  # another C library has no such setting
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def _require_for_database(
    database: DatabaseAddress | None, options: ServeOptions, listening: Listening
) -> None:
    """Refuse options that fit no server, or no server of a database."""
    shards, address = options.cluster.shards, options.cluster.address
    if address is not None and not is_address(address):
        raise CommandError(f"--address is {address!r}; it is http://HOST:PORT")
    is_clear = urlsplit(address or "").scheme == "http"
    if address and is_clear and not (listening.is_insecure or is_own_machine(address)):
        raise CommandError(
            f"--address is {address}, and keys and texts would come from other servers in the"
            " clear: give https://HOST:PORT, with --tls-cert; or --insecure, if that network"
            " is yours"
        )
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise CommandError(f"--shards is {shards}; it must be 1 to {MOST_SHARDS}")
    if database is None:
        if shards is not None:
            raise CommandError("--shards is for servers of one database: --journal postgresql://…")
        return
    named = listening.host if address is None else urlsplit(address).hostname
    cluster_server.require_named(named or "")
    if not os.environ.get("ORCHESTRATOR_API_KEY", "").strip():
        raise CommandError(
            "the journal is a database, which other servers have, too: set ORCHESTRATOR_API_KEY"
            " to the same token on all of them (openssl rand -hex 32)"
        )
