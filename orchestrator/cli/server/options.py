"""The options of `orchestrator serve`, grouped by the part of the server that they configure."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

import attrs
from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import parse_age
from orchestrator.cli.options import AcceptChangesOption, JournalOption, LanguageModelOption
from orchestrator.cli.retention import DEFAULT_DAYS, Retention, parse_size
from orchestrator.cli.sandbox_line import SandboxOption
from orchestrator.cli.trust import TrustOption

GRACE_SECONDS: Final = 10
FOREVER: Final = "forever"
"""The value of --keep that deletes no run by its age."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ListenOptions:
    """The addresses and names of the server."""

    host: str = "127.0.0.1"
    """The address to listen at; by default only this machine can connect."""
    port: int = 8642
    """The port to listen at; 0 takes a free one and prints it."""
    allowed_host: tuple[str, ...] = ()
    """A name that clients may use for this server, besides its address; * allows any."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RequestOptions:
    """The requests that the server accepts, and how it answers them."""

    body_limit: int = 10_000_000
    """The most bytes of a request."""
    text_limit: int = 1_000_000
    """The most characters of one text in a request."""
    strict: bool = False
    """Refuse parameters of OpenAI's protocols that an agent cannot honour, such as a seed; by
    default they are named in the header X-Ignored-Parameters of the answer."""
    ignore_hosted_tools: bool = False
    """Leave out tools that only OpenAI can run, such as web_search, and name them in that header;
    by default they are refused."""
    allow_origin: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """An origin whose web pages may call this server, such as https://chat.example.org; repeat it
    for several, * for any."""
    access_log: bool = False
    """Write a line to stderr for each request: time, client, request, status, seconds, run."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """The clients that may connect, and the encryption of connections."""

    tls_cert: Path | None = None
    """A PEM file with a certificate; then the server speaks TLS. It is read again when it changes.
    """
    tls_key: Path | None = None
    """The PEM file of the private key, if it is not in the certificate's file."""
    insecure: bool = False
    """Let other machines connect without TLS: a proxy in front of it speaks TLS."""
    connections_per_peer: int | None = None
    """The most connections of one address; by default 100, and half of all for this machine. Behind
    a proxy every client has the address of the proxy."""
    keep_alive: float = 75
    """The most seconds between two requests on a connection. Behind a proxy, give more than its
    own."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class WebhookOptions:
    """The receivers of replies."""

    webhook: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """A URL that receives the replies, signed; https beyond this machine. OWNER=URL is for the
    replies of another owner than default; repeat it for several."""
    insecure_webhook: bool = False
    """Let the URL, and the URLs of jobs, be http, also beyond this machine."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RetentionOptions:
    """The ended runs that are kept."""

    keep: str | None = None
    """Delete runs that have ended and have no fact newer than this: 12h, 30d, 2w. By default 90d;
    `forever` keeps them."""
    keep_size: str | None = None
    """Delete the oldest ended runs while the file of a journal is larger than this: 500MB, 2GB."""

    def retention(self) -> Retention:
        size = None if self.keep_size is None else parse_size(self.keep_size, "--keep-size")
        if self.keep == FOREVER:
            return Retention(size=size)
        age = f"{DEFAULT_DAYS}d" if self.keep is None else self.keep
        return Retention(seconds=parse_age(age, "--keep"), size=size, is_default=self.keep is None)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ClusterOptions:
    """How servers of the same journals find each other."""

    shards: int | None = None
    """The number of journals that the servers of a database share, chosen when it is first served;
    by default 16."""
    address: str | None = None
    """The address where the other servers of the same journals reach this one, such as
    https://10.0.0.5:8642; by default the address it listens at. http beyond this machine needs
    --insecure."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ConsoleOptions:
    """The console, the web page of the server."""

    view: bool = False
    """Make the console, the page at /, read-only."""
    browser: bool = False
    """Open the console in a browser of this machine."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class OidcOptions:
    """The OpenID Connect provider where people sign in to the console."""

    oidc_issuer: str | None = None
    """The address of an OpenID Connect provider, where people sign in to the console. The secret of
    this client, if it has one, is in ORCHESTRATOR_OIDC_SECRET."""
    oidc_client: str = ""
    """The id of this server at that provider."""
    oidc_group: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """The scopes of a group: GROUP=read,run,steer,approve,admin; repeat it for several."""
    oidc_claim: str = "groups"
    """The claim of the ID token that lists the groups of a person."""


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
    """The seconds that running work may go on after the first signal."""
    kept: RetentionOptions = RetentionOptions()
    audit_reads: bool = False
    """Record reads of clients in the audit, too; by default only changes."""
    audit_export: str | None = None
    """Copy the audit to a file of JSON lines, or to syslog: PATH, syslog:/dev/log,
    syslog://HOST:PORT (UDP) or syslog+tcp://HOST:PORT."""
    otlp: str | None = None
    """Send the spans of all runs to this collector of OpenTelemetry, such as http://HOST:4318."""
    mcp_tasks: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """Whether calls over MCP are tasks that outlive their request: forbidden, optional (the
    default: if the client can poll) or required; AGENT=MODE for one agent, repeat it for several.
    """
    language_model: LanguageModelOption = ()
    policy: Literal["shortest", "fair", "fifo"] | None = None
    """The order of model calls that wait for a provider: the run with the least predicted work
    first (the default), the run with the fewest calls under way, or first come, first served."""
    cluster: ClusterOptions = ClusterOptions()
    console: ConsoleOptions = ConsoleOptions()
    oidc: OidcOptions = OidcOptions()
    journal: JournalOption = None
    sandbox: SandboxOption = None
    trust: TrustOption = False
    accept_changes: AcceptChangesOption = False

    def require_valid(self) -> None:
        """Refuse numbers out of range, and a workspace that is not a folder."""
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
        if not 0 < self.connections.keep_alive < math.inf:
            raise CommandError(
                f"--keep-alive is {self.connections.keep_alive}; it must be more than 0 seconds"
            )
        if not 0 <= self.grace < math.inf:
            raise CommandError(f"--grace is {self.grace}; it must be 0 or more")
        if self.workspace is not None and not self.workspace.is_dir():
            raise CommandError(f"--workspace {self.workspace} is not a folder")
