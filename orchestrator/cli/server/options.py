"""The options of `orchestrator serve`, grouped by the part of the server that they configure."""

import math
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import parse_age
from orchestrator.cli.options import JournalOption, LanguageModelOption
from orchestrator.cli.retention import Retention, parse_size
from orchestrator.cli.sandbox_line import SandboxOption

GRACE_SECONDS: Final = 10


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ListenOptions:
    """Where the server listens, and under which names."""

    host: str = "127.0.0.1"
    """Where to listen; others than this machine can connect only where that is asked for."""
    port: int = 8642
    """0 takes any that is free, and says which."""
    allowed_host: tuple[str, ...] = ()
    """A name by which clients may call this server, besides its address; * is any."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RequestOptions:
    """Which requests the server accepts, and how it answers them."""

    body_limit: int = 10_000_000
    """How many bytes a request may have."""
    text_limit: int = 1_000_000
    """How many characters one text of a request may have."""
    strict: bool = False
    """Refuse parameters of OpenAI's protocols that an agent cannot keep, such as a seed; by default
    they are named in the header X-Ignored-Parameters of the answer."""
    ignore_hosted_tools: bool = False
    """Leave out tools that only OpenAI can run, such as web_search, and name them in that header;
    by default they are refused."""
    allow_origin: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """An origin whose web pages may ask this server, such as https://chat.example.org; several
    times for several, * for any."""
    access_log: bool = False
    """Write a line to stderr for each request: when, who, what, status, seconds, run."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """Who may connect, and with which encryption."""

    tls_cert: Path | None = None
    """A PEM file with a certificate; then the server speaks TLS. It is read again when it
    changes."""
    tls_key: Path | None = None
    """The PEM file of its key, if that is another one."""
    insecure: bool = False
    """Let other machines connect without TLS: a proxy in front of it speaks TLS."""
    connections_per_peer: int | None = None
    """How many connections one address may have; by default 100, and this machine half of all.
    Behind a proxy every client has the address of the proxy."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class WebhookOptions:
    """Where replies are sent."""

    webhook: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """A URL that receives the replies, signed; https beyond this machine. OWNER=URL is for the
    replies of another owner than default; several times for several."""
    insecure_webhook: bool = False
    """Let the URL be http, also beyond this machine; and those of jobs."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RetentionOptions:
    """Which ended runs are kept."""

    keep: str | None = None
    """Delete runs that have ended and have no fact that is newer than this: 12h, 30d, 2w. By
    default all are kept."""
    keep_size: str | None = None
    """Delete the oldest runs that have ended while the file of a journal is larger than this:
    500MB, 2GB."""

    def retention(self) -> Retention:
        return Retention(
            seconds=None if self.keep is None else parse_age(self.keep, "--keep"),
            size=None if self.keep_size is None else parse_size(self.keep_size, "--keep-size"),
        )


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ClusterOptions:
    """How servers of the same journals find each other."""

    shards: int | None = None
    """How many journals the servers of a database divide among themselves, chosen when it is first
    served; by default 16."""
    address: str | None = None
    """Where the other servers of the same journals reach this one, such as https://10.0.0.5:8642;
    by default where it listens. http beyond this machine needs --insecure."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ConsoleOptions:
    """The console, the web page of the server."""

    view: bool = False
    """Let people change nothing by the console, the page at /."""
    browser: bool = False
    """Open the console in a browser of this machine."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ServeOptions:
    """All options of `orchestrator serve`, in the order of its help."""

    listen: ListenOptions = ListenOptions()
    workspace: Path | None = None
    """The folder that tools work in; by default this one."""
    requests: RequestOptions = RequestOptions()
    connections: ConnectionOptions = ConnectionOptions()
    webhooks: WebhookOptions = WebhookOptions()
    grace: float = GRACE_SECONDS
    """How many seconds what runs may go on after the first signal."""
    kept: RetentionOptions = RetentionOptions()
    audit_reads: bool = False
    """Record in the audit what clients read, too; by default only what they change."""
    mcp_tasks: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """Whether calls over MCP are tasks that outlive their request: forbidden, optional (where the
    client can poll, which is the default) or required; AGENT=MODE for one agent, several times for
    several."""
    language_model: LanguageModelOption = ()
    cluster: ClusterOptions = ClusterOptions()
    console: ConsoleOptions = ConsoleOptions()
    journal: JournalOption = None
    sandbox: SandboxOption = None

    def require_valid(self) -> None:
        """Refuse numbers out of range, and a workspace that is no folder."""
        limits = {
            "--body-limit": self.requests.body_limit,
            "--text-limit": self.requests.text_limit,
            "--connections-per-peer": self.connections.connections_per_peer,
        }
        for option, number in limits.items():
            if number is not None and number <= 0:
                raise CommandError(f"{option} is {number}; it must be 1 or more")
        if not 0 <= self.listen.port < 2**16:
            raise CommandError(f"--port is {self.listen.port}; it must be 0 to 65535")
        if not 0 <= self.grace < math.inf:
            raise CommandError(f"--grace is {self.grace}; it must be 0 or more")
        if self.workspace is not None and not self.workspace.is_dir():
            raise CommandError(f"--workspace {self.workspace} is no folder")
