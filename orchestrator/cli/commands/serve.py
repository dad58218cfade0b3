"""`orchestrator serve`: serve the agents of a file over HTTP, until a signal comes."""

import ctypes
import gc
import math
import os
import secrets as random_secrets
import shlex
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from cyclopts import Parameter

from orchestrator.agents import Agent, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor, secret_values
from orchestrator.agents.sandbox.detection import SandboxChoice
from orchestrator.cli.agent_file import LoadedTeam, file_name, load_team, variables_of
from orchestrator.cli.console_browser import console_file, open_browser
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exposed_journal import warn_of_exposed_journal
from orchestrator.cli.job_targets import targets_for
from orchestrator.cli.journal_queries import parse_age
from orchestrator.cli.options import (
    JournalOption,
    LanguageModelOption,
    journals_of,
    require_known_models,
    server_folder,
)
from orchestrator.cli.retention import Retention, parse_size
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import command
from orchestrator.delegation import SessionRecord
from orchestrator.kernel.control.server import open_control
from orchestrator.kernel.journal.audit import AuditEvent, local_actor
from orchestrator.kernel.journal.backends import IN_MEMORY
from orchestrator.kernel.journal.journals import HeldJournal, Journals
from orchestrator.kernel.journal.separate_journals import OneJournal
from orchestrator.kernel.journal.shards import MOST_SHARDS
from orchestrator.kernel.private_files import foreign_folder
from orchestrator.kernel.runtime import Orchestrator, exchange_opener, open_orchestrator
from orchestrator.kernel.state_files import FIRST_JOURNAL, state_files
from orchestrator.products.cluster.database.address import (
    DatabaseAddress,
    is_database,
    parse_address,
)
from orchestrator.products.cluster.work.shared_exchange import SharedExchange
from orchestrator.products.mcp.server.tools import parse_modes
from orchestrator.products.schedule import require_jobs
from orchestrator.products.server.keys.file import FILE as KEYS
from orchestrator.products.server.keys.file import make_keys_file, read_keys
from orchestrator.products.server.keys.key import DEFAULT

if TYPE_CHECKING:
    from orchestrator.cli.signals import Drainable
    from orchestrator.kernel.doors.kept import Push
    from orchestrator.products.server.cluster.cluster_server import ClusterSettings
    from orchestrator.products.server.server import Server
    from orchestrator.products.server.state import Settings
    from orchestrator.products.server.transport.api_key import StoredSecret
    from orchestrator.products.server.transport.listener import Listening
    from orchestrator.products.server.webhook import Webhook

GRACE_SECONDS: Final = 10
SWITCH_SECONDS: Final = 0.000_5
"""How long a thread computes before it lets the event loop have the interpreter."""
M_MMAP_THRESHOLD: Final = -3
"""The number of that setting in `malloc.h`."""
LARGE_BLOCK: Final = 1_000_000
"""How long after a pruning the next one begins."""
SHARED_NAME: Final = "ORCHESTRATOR_CLUSTER_SECRET"
"""Names the secret of the servers among those that are redacted; no variable has it."""
INSTALL: Final = "pip install 'delegation-orchestrator[server]'"
REACHABLE_AT: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared, not bound)
"""An address to reach a server that listens at all addresses."""


def serve(  # noqa: PLR0915 (a command with many options)
    file: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    allowed_host: tuple[str, ...] = (),
    workspace: Path | None = None,
    body_limit: int = 10_000_000,
    text_limit: int = 1_000_000,
    strict: bool = False,
    ignore_hosted_tools: bool = False,
    allow_origin: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    access_log: bool = False,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    insecure: bool = False,
    connections_per_peer: int | None = None,
    webhook: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    insecure_webhook: bool = False,
    grace: float = GRACE_SECONDS,
    keep: str | None = None,
    keep_size: str | None = None,
    audit_reads: bool = False,
    mcp_tasks: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    language_model: LanguageModelOption = (),
    shards: int | None = None,
    address: str | None = None,
    view: bool = False,
    browser: bool = False,
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Put the agents of a file behind HTTP: each is a model for OpenAI's clients.

    Clients show the token of a key: ORCHESTRATOR_API_KEY, the one that is made and kept beside the
    journal, or those of `orchestrator keys add`. Exits with 0 when a signal has stopped it in good
    order.

    Args:
        file: What defines agents: a Python file, a folder of agents (*.md), or a team.yaml, for all
            of them; FILE:NAME for one.
        host: Where to listen; others than this machine can connect only where that is asked for.
        port: 0 takes any that is free, and says which.
        allowed_host: A name by which clients may call this server, besides its address; * is any.
        workspace: The folder that tools work in; by default this one.
        body_limit: How many bytes a request may have.
        text_limit: How many characters one text of a request may have.
        strict: Refuse parameters of OpenAI's protocols that an agent cannot keep, such as a seed;
            by default they are named in the header X-Ignored-Parameters of the answer.
        ignore_hosted_tools: Leave out tools that only OpenAI can run, such as web_search, and name
            them in that header; by default they are refused.
        allow_origin: An origin whose web pages may ask this server, such as
            https://chat.example.org; several times for several, * for any.
        access_log: Write a line to stderr for each request: when, who, what, status, seconds, run.
        tls_cert: A PEM file with a certificate; then the server speaks TLS. It is read again when
            it changes.
        tls_key: The PEM file of its key, if that is another one.
        insecure: Let other machines connect without TLS: a proxy in front of it speaks TLS.
        connections_per_peer: How many connections one address may have; by default 100, and this
            machine half of all. Behind a proxy every client has the address of the proxy.
        webhook: A URL that receives the replies, signed; https beyond this machine. OWNER=URL is
            for the replies of another owner than default; several times for several.
        insecure_webhook: Let the URL be http, also beyond this machine; and those of jobs.
        grace: How many seconds what runs may go on after the first signal.
        keep: Delete runs that have ended and have no fact that is newer than this: 12h, 30d, 2w.
            By default all are kept.
        keep_size: Delete the oldest runs that have ended while the file of a journal is larger
            than this: 500MB, 2GB.
        audit_reads: Record in the audit what clients read, too; by default only what they change.
        mcp_tasks: Whether calls over MCP are tasks that outlive their request: forbidden, optional
            (where the client can poll, which is the default) or required; AGENT=MODE for one agent,
            several times for several.
        shards: How many journals the servers of a database divide among themselves, chosen when
            it is first served; by default 16.
        address: Where the other servers of the same journals reach this one, such as
            https://10.0.0.5:8642; by default where it listens. http beyond this machine needs
            --insecure.
        view: Let people change nothing by the console, the page at /.
        browser: Open the console in a browser of this machine.
    """
    retention = Retention(
        seconds=None if keep is None else parse_age(keep, "--keep"),
        size=None if keep_size is None else parse_size(keep_size, "--keep-size"),
    )
    _require_positive(
        {
            "--body-limit": body_limit,
            "--text-limit": text_limit,
            "--connections-per-peer": connections_per_peer,
        }
    )
    _require_range(port, grace)
    if workspace is not None and not workspace.is_dir():
        raise CommandError(f"--workspace {workspace} is no folder")
    try:
        # Imported late: these libraries are an extra.
        from orchestrator.products.server.cluster.cluster_server import ClusterSettings
        from orchestrator.products.server.console.sign_in import FILE as SIGNED_IN
        from orchestrator.products.server.state import Settings
        from orchestrator.products.server.transport.access import accepted_hosts
        from orchestrator.products.server.transport.api_key import (
            VARIABLE,
            has_token,
            is_loopback,
            token_for,
        )
        from orchestrator.products.server.transport.listener import Listening, require_usable
        from orchestrator.products.server.webhook import SECRET, open_webhooks, webhooks_for
    except ModuleNotFoundError as exc:
        raise CommandError(f"a server needs {exc.name}: {INSTALL}") from exc

    # The file may run any code, so it is loaded before the event loop starts.
    team = load_team(file)
    agents = team.agents
    listening = Listening(
        host=host,
        port=port,
        certificate=tls_cert,
        key=tls_key,
        is_insecure=insecure,
        connections_per_peer=connections_per_peer,
    )
    require_usable(listening)
    journals = journals_of(journal)
    database = parse_address(journal) if journal and is_database(journal) else None
    _require_for_database(database, shards, address, listening)
    retention.require_file(is_database=database is not None)
    is_one = isinstance(journals, OneJournal)
    folder = server_folder(journals)
    if problem := foreign_folder(folder):
        raise CommandError(f"{problem}; the journal and the keys are to be there")
    webhooks = webhooks_for(webhook, os.environ, folder, is_insecure=insecure_webhook)
    targets = targets_for(team.jobs, folder, is_insecure=insecure_webhook)
    make_keys_file(folder / KEYS)
    # Where there are other keys, none is made that commands of agents could read.
    token = (
        token_for(os.environ, folder, is_local=is_loopback(host))
        if has_token(os.environ, folder) or not read_keys(folder / KEYS)
        else None
    )
    # Under these names all are redacted from texts and removed from the environment of commands.
    secrets = _named(VARIABLE, token) | _webhook_secrets(webhooks, SECRET)
    secrets |= targets.secrets

    _favour_event_loop()
    _give_memory_back()

    settings = Settings(
        token=None if token is None else token.value,
        # Without a journal, the token is in this folder, which commands can read.
        may_default_approve=False if str(journal) == IN_MEMORY else None,
        keys=folder / KEYS,
        hosts=accepted_hosts(
            [host, *filter(None, [urlsplit(address or "").hostname])], allowed_host
        ),
        body_limit=body_limit,
        audit_reads=audit_reads,
        text_limit=text_limit,
        is_strict=strict,
        ignores_hosted_tools=ignore_hosted_tools,
        origins=frozenset(allow_origin),
        logs_access=access_log,
        console_keys=None if str(journal) == IN_MEMORY else folder / SIGNED_IN,
        is_view_only=view,
        task_modes=parse_modes(mcp_tasks, agents),
        jobs=team.jobs,
        language_models=require_known_models(language_model),
        file=file_name(file),
        variables=variables_of(agents),
    )

    async def work(stop: Stop) -> int:
        choice = await choose_sandbox(sandbox, agents.values())
        shared = "" if is_one else await _cluster_secret(database, folder)
        hidden = {**secrets, SHARED_NAME: shared} if shared else secrets
        opener = JournalOpener(
            journals=journals,
            secrets=hidden,
            webhooks=[it.url for it in webhooks],
            hidden=[*filter(None, [tls_key or tls_cert])],
            workspace=workspace,
            sandbox=choice,
            retention=retention,
            exchange=None if database is None else _shared_exchange(database),
        )
        cluster = None
        if not is_one:
            from orchestrator.kernel.execution.workspace.host import host_of

            environ = {**os.environ, **hidden}
            cluster = ClusterSettings(
                secret=shared.encode(),
                open_orchestrator=opener.open,
                clock=time.time,
                redactor=Redactor(secret_values(environ, tuple(hidden))),
                sandbox=choice,
                report=_report,
                host=host_of(None, os.environ, spans_hosts=True).name,
                address=address,
                database=database,
                shards=shards,
                grace=grace,
            )
        async with AsyncExitStack() as opened:
            if database is not None:
                await opened.enter_async_context(_end_left_commands(database))
            if opener.exchange is not None:
                await opened.enter_async_context(opener.exchange.held())
            push = await opened.enter_async_context(
                open_webhooks(webhooks, is_insecure=insecure_webhook)
            )
            job_targets = await opened.enter_async_context(targets.open())
            # Before a journal is taken: a mistake in the file is said at the start.
            require_jobs(team.jobs, job_targets, now=time.time())
            server, stopped = await opened.enter_async_context(
                _open_server(
                    opener,
                    agents,
                    attrs.evolve(settings, job_targets=job_targets),
                    listening,
                    push=push,
                    cluster=cluster,
                )
            )
            stop.set_orchestrator(stopped)
            _print_signed(webhooks, SECRET)
            for it in server.state.journals:
                _print_unserved(it.unserved_sessions)
            _print_warnings(server.state.unusable_agents, agents, journal, workspace)
            _print_address(server.addresses[0], team, token, listening, journal)
            link = _console_link(server)
            print(f"console: {link} (signs you in, once)", flush=True)
            if browser:
                page = opened.enter_context(console_file(folder, link))
                await open_browser(page, link)
            # What is there by now stays: no collection of garbage looks at it again.
            gc.collect()
            gc.freeze()
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    return run_stoppable(work, grace)


def _webhook_secrets(webhooks: "Iterable[Webhook]", variable: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for it in webhooks:
        name = variable if it.owner == DEFAULT else f"{variable}_{it.owner}"
        found |= _named(name, it.secret)
    return found


def _named(name: str, secret: "StoredSecret | None") -> dict[str, str]:
    """Return the values of a secret under names of their own: it may be two."""
    values = [] if secret is None else secret.value.split()
    return {
        name if not number else f"{name}_{number + 1}": value for number, value in enumerate(values)
    }


@attrs.frozen(kw_only=True)
class JournalOpener:
    """Opens the orchestrators of a server, each with all that belongs to one journal."""

    journals: Journals
    secrets: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    webhooks: Sequence[str] = attrs.field(default=(), repr=False)
    hidden: Sequence[Path] = ()
    workspace: Path | None
    sandbox: SandboxChoice
    retention: Retention = attrs.Factory(Retention)
    exchange: SharedExchange | None = None
    """What all journals lend tool calls by, where they are in a database."""

    @asynccontextmanager
    async def open(self, held: HeldJournal) -> AsyncGenerator[Orchestrator]:
        """Open an orchestrator on a journal, as long as the block lasts."""
        file = self.journals.store(held.name).file
        async with AsyncExitStack() as opened:
            orchestrator = await opened.enter_async_context(
                open_orchestrator(
                    held.journal,
                    environ={**os.environ, **self.secrets},
                    secrets=self.secrets,
                    hide=[*self.hidden, *self._state_files(file)],
                    workspace=self.workspace,
                    sandbox=self.sandbox,
                    queue=None if self.exchange is None else self.exchange.open,
                )
            )
            if file is not None:
                await opened.enter_async_context(open_control(orchestrator, file))
            for url in self.webhooks:
                orchestrator.services.book.audit(_webhook_set(url))
            if self.retention != Retention():
                opened.enter_context(raising_one_error())
                nursery = await opened.enter_async_context(trio.open_nursery())
                opened.callback(nursery.cancel_scope.cancel)
                nursery.start_soon(self.retention.prune_forever, orchestrator, file)
            yield orchestrator

    def _state_files(self, file: Path | None) -> Iterator[Path]:
        if file is not None:
            yield from state_files(file)
        # The journal may be a link: its file is elsewhere, and the keys are beside the link.
        if self.journals.folder is not None:
            yield from state_files(self.journals.folder / FIRST_JOURNAL)


@asynccontextmanager
async def _open_server(
    opener: JournalOpener,
    agents: Mapping[str, Agent[Any]],
    settings: "Settings",
    listening: "Listening",
    *,
    push: "Mapping[str, Push]",
    cluster: "ClusterSettings | None",
) -> "AsyncGenerator[tuple[Server, Drainable]]":
    """Serve one journal, or those of a folder; yield the server, and what a signal stops."""
    from orchestrator.products.server.cluster.cluster_server import open_cluster_server
    from orchestrator.products.server.server import open_server

    journals = opener.journals
    if isinstance(journals, OneJournal):
        async with (
            journals.open_free() as held,
            opener.open(held) as orchestrator,
            open_server(orchestrator, agents, settings, listening, push) as server,
        ):
            yield server, orchestrator
        return
    assert cluster is not None, "it is for all but one journal"
    async with open_cluster_server(
        journals, agents, settings, listening, push=push, cluster=cluster
    ) as served:
        yield served.server, served


async def _cluster_secret(database: DatabaseAddress | None, folder: Path) -> str:
    """Return the secret by which servers of the same journals know each other.

    It is never a key, nor made of one: clients have keys.
    """
    from orchestrator.products.server.cluster.cluster_server import secret_of_database
    from orchestrator.products.server.transport.api_key import load_or_create_secret

    await trio.lowlevel.checkpoint()
    if database is not None:
        return await secret_of_database(database)
    file = folder / "cluster_secret"
    return load_or_create_secret(file, lambda: random_secrets.token_hex(32)).value


def _report(sentence: str) -> None:
    print(f"orchestrator: {sentence}", file=sys.stderr, flush=True)


def _webhook_set(url: str) -> AuditEvent:
    """Return what the audit says of a webhook: where it is, without what may be secret in it."""
    parts = urlsplit(url)
    return AuditEvent(
        actor=local_actor(os.getuid()),
        action="webhook.set",
        target=f"{parts.scheme}://{parts.hostname}",
        peer=f"pid {os.getpid()}",
    )


def _favour_event_loop() -> None:
    """Keep all other code of this process from delaying the answers to clients.

    What is imported lives as long as the server, and is exempt from garbage collection: a full
    collection, during which no client is answered, walks through all other objects. And a thread
    hands the interpreter over sooner: an answer takes it a dozen times.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


def _give_memory_back() -> None:
    """Have the system get the memory of large bodies as soon as they are freed.

    By itself glibc reserves more for later with each one, and the heap has holes between them: 80
    chats with images of 5 MB left 100 MB behind, and leave 32 so.
    """
    with suppress(AttributeError):  # another C library has no such setting
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def _require_positive(options: Mapping[str, int | None]) -> None:
    for option, number in options.items():
        if number is not None and number <= 0:
            raise CommandError(f"{option} is {number}; it must be 1 or more")


def _require_for_database(
    database: DatabaseAddress | None,
    shards: int | None,
    address: str | None,
    listening: "Listening",
) -> None:
    """Refuse options that fit no server, or not one of a database."""
    from orchestrator.products.server.cluster.cluster_server import require_named
    from orchestrator.products.server.cluster.proxy import is_address, is_own_machine

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
    require_named(named or "")
    if not os.environ.get("ORCHESTRATOR_API_KEY", "").strip():
        raise CommandError(
            "the journal is a database, which other servers have, too: set ORCHESTRATOR_API_KEY"
            " to the same token on all of them (openssl rand -hex 32)"
        )


def _shared_exchange(database: DatabaseAddress) -> SharedExchange:
    return SharedExchange(exchange_opener(database.url, os.environ))


@asynccontextmanager
async def _end_left_commands(database: DatabaseAddress) -> AsyncGenerator[None]:
    """End what earlier processes left on this machine for writers elsewhere."""
    from orchestrator.kernel.execution.workspace.host import host_of
    from orchestrator.products.cluster.database.left_commands import end_left_commands

    host = host_of(None, os.environ, spans_hosts=True)
    async with end_left_commands(database.url, host.name):
        yield


def _require_range(port: int, grace: float) -> None:
    if not 0 <= port < 2**16:
        raise CommandError(f"--port is {port}; it must be 0 to 65535")
    if not 0 <= grace < math.inf:
        raise CommandError(f"--grace is {grace}; it must be 0 or more")


def _print_signed(webhooks: "Iterable[Webhook]", variable: str) -> None:
    for it in webhooks:
        where = variable if it.secret.file is None else it.secret.file.absolute()
        print(f"webhooks of {it.owner} are signed with the secret in {where}")


def _print_unserved(left: "Sequence[SessionRecord]") -> None:
    if left:
        missing = ", ".join(sorted({session.root.agent for session in left}))
        print(f"{len(left)} unfinished, of agents that are not served here: {missing}")


def _print_warnings(
    problems: Mapping[str, str],
    agents: Mapping[str, Agent[Any]],
    journal: str | None,
    workspace: Path | None,
) -> None:
    warn_of_exposed_journal(agents.values(), journal, workspace)
    for name, problem in problems.items():
        print(f"warning: agent {name} cannot run: {problem}", file=sys.stderr)


def _reachable(address: str) -> str:
    """Return the URL at which a server can be reached from this machine."""
    scheme, _, authority = address.partition("://")
    bound_host, _, port = authority.rpartition(":")
    return f"{scheme}://{REACHABLE_AT.get(bound_host, bound_host)}:{port}"


def _console_link(server: "Server") -> str:
    """Return a link that signs one browser in."""
    code = server.state.sign_ins.new_link()
    return f"{_reachable(server.addresses[0])}/#/login/{code}"


def _print_address(
    address: str,
    team: LoadedTeam,
    token: "StoredSecret | None",
    listening: "Listening",
    journal: str | None,
) -> None:
    """Print what a client needs: the address, the agents, the token."""
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
