"""The state that all routes of one server share."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from starlette.responses import Response

from orchestrator.agents import Agent
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.files import FIRST_JOURNAL
from orchestrator.products.mcp.ports import AgentTool, TaskMode
from orchestrator.products.schedule.ports import NO_TARGETS, Job, Target
from orchestrator.products.server.audit import HttpAudit
from orchestrator.products.server.cluster.placement import Placement, counts_in_a_journal
from orchestrator.products.server.console.oidc import OidcSettings, OidcSignIn
from orchestrator.products.server.console.sign_in import SignIns
from orchestrator.products.server.keys.key import DEFAULT, Key, Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.metrics import Metrics
from orchestrator.products.server.quotas import Quotas
from orchestrator.products.server.served_journal import ONLY, HeldJournals, ServedJournal
from orchestrator.products.server.transport.errors import HttpError

if TYPE_CHECKING:
    from orchestrator.products.server.api_call import ApiCall
    from orchestrator.products.server.cluster.other_processes import OtherProcesses
    from orchestrator.products.server.cluster.peers import Peers
    from orchestrator.products.server.cluster.session_list import SessionListing
    from orchestrator.products.server.mcp_endpoint import McpEndpoint

BODY_LIMIT: Final = 10_000_000
TEXT_LIMIT: Final = 1_000_000


@attrs.frozen(kw_only=True)
class Settings:
    """The configuration of a server."""

    token: str | None
    """The token of the key `default`; None has no such key."""
    may_default_approve: bool | None = None
    """Whether the key `default` may answer approvals, because no command of an agent can read its
    token. None allows it if the sandbox of commands is a wall."""
    keys: Path | None = None
    """The file of all other keys."""
    hosts: frozenset[str] | None = None
    """The host names that the server answers to; None allows any."""
    body_limit: int = BODY_LIMIT
    """The most bytes of a request."""
    audit_reads: bool = False
    """Also record reads in the audit."""
    cluster_secret: bytes | None = attrs.field(default=None, repr=False)
    """Other servers sign the requests that they forward with it; None trusts no server."""
    is_strict: bool = False
    """Refuse parameters of OpenAI's protocols that an agent cannot honour, instead of naming them
    in a header of the answer."""
    ignores_hosted_tools: bool = False
    """Ignore tools of a request that only OpenAI could run, such as `web_search`, instead of
    refusing them."""
    origins: frozenset[str] = frozenset()
    """The origins whose web pages may call the server, such as `https://chat.example.org`; `*`
    allows any."""
    logs_access: bool = False
    """Write a line to stderr for each request."""
    text_limit: int = TEXT_LIMIT
    """The most characters of one text in a request."""
    console_keys: Path | None = None
    """The file of the console's sign-ins; None forgets them with the process."""
    is_view_only: bool = False
    """Whether people may change nothing in the console."""
    oidc: OidcSettings | None = None
    """The OpenID Connect provider where people sign in to the console."""
    file: str = ""
    """The name of the file that defines the agents, without its folder, for the commands that the
    console shows: `team.py`."""
    variables: Mapping[str, str] = {}
    """The variables of the agents in that file, by the names of the agents."""
    language_models: tuple[str, ...] = ()
    """The models that a run may choose instead of its agent's own, besides the models of the
    agents."""
    task_modes: Mapping[str, TaskMode] = {}
    """Whether MCP calls of an agent are tasks, if not `optional`."""
    jobs: Sequence[Job] = ()
    """The program's jobs, which begin by the clock in one of the journals."""
    job_targets: Mapping[str, Target] = NO_TARGETS
    """The targets for the replies of jobs besides files, by the word before the colon."""
    evaluations: Path | None = None
    """The folder with the sets of `orchestrator eval`, which the console shows."""
    clock: Callable[[], float] = time.time
    """Returns the time of day; jobs begin by it."""


@attrs.define(kw_only=True)
class ServerState:
    """One running server."""

    agents: Mapping[str, Agent[Any]]
    """The agents, by the model name that clients use."""
    tools: Mapping[str, AgentTool]
    """The agents as tools for MCP clients."""
    journals: HeldJournals
    metrics: Metrics
    settings: Settings
    keys: KeyStore
    quotas: Quotas
    sandbox: SandboxChoice
    home_of: "Callable[[ApiCall], Awaitable[ServedJournal | Response | None]] | None" = None
    """Finds the journal of a request, or the answer of the server that writes it; by default the
    first journal."""
    listing: "SessionListing | None" = None
    """Lists the sessions of all journals; None if this server has the only journal."""
    peers: "Peers | None" = None
    """Asks the other servers about the sessions in their memory; None if there are no others."""
    others: "OtherProcesses | None" = None
    """The runs of a folder that other processes write; None if the server has no folder."""
    placement: Placement | None = None
    """The homes of new sessions; None opens them in the first journal."""
    is_in_touch: Callable[[], bool] = lambda: True
    """Returns whether the database of the journals has answered lately."""
    survives_journals: bool = False
    """Whether the server goes on when one of its journals fails."""
    is_draining: bool = False
    """Whether the server lets go of all journals because it ends."""
    unusable_agents: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The reasons why served agents cannot run, by name, such as a missing key."""
    mcp: "McpEndpoint | None" = None
    """Answers MCP, made at the first such request."""
    simulations: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """One simulation at a time; others wait for their turn."""
    evaluations: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(2))
    """The processes that read sets of evaluations."""
    shutdown: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server shuts down."""
    sign_ins: SignIns = attrs.field(init=False)
    """The people who are signed in to the console."""
    oidc: OidcSignIn | None = attrs.field(init=False)
    """Signs people in at the OpenID Connect provider."""
    started: int = attrs.field(init=False)
    """The time of day when the server started."""

    def __attrs_post_init__(self) -> None:
        self.started = int(self.keys.now())
        oidc, now = self.settings.oidc, self.keys.now
        secret = self.settings.cluster_secret or token_bytes(32)
        self.oidc = None if oidc is None else OidcSignIn(oidc, secret=secret, clock=now)
        self.sign_ins = SignIns(
            self.keys,
            self.settings.console_keys,
            is_view_only=self.settings.is_view_only,
            person_mark="" if oidc is None else oidc.mark,
        )

    @cached_property
    def language_models(self) -> tuple[str, ...]:
        """The models that a run may choose instead of its agent's own."""
        named = {
            it.model
            for agent in self.agents.values()
            for it in reachable_agents(agent)
            if isinstance(it.model, str)
        }
        return tuple(sorted(named | {*self.settings.language_models}))

    @property
    def is_stopping(self) -> bool:
        """Whether the server begins no more runs."""
        journals = list(self.journals)
        return self.is_draining or (
            bool(journals) and all(journal.is_stopping for journal in journals)
        )

    @property
    def audit(self) -> HttpAudit | None:
        """Records requests without a journal of their own; None if the server holds no journal."""
        journal = self.journals.first_or_none
        return None if journal is None else journal.audit

    @property
    def home_of_jobs(self) -> str:
        """The journal of the program's jobs, which begin at the server that holds it."""
        if self.placement is not None:
            return self.placement.home_of("jobs")
        return ONLY if self.listing is None else FIRST_JOURNAL

    def home_of_key(self, key: Key) -> str | None:
        """Return the journal of all sessions of a key; None if they may be anywhere."""
        if self.placement is not None:
            return self.placement.home_of_key(key)
        if self.listing is None or not counts_in_a_journal(key):
            return None
        # In a folder, always the same journal: another one would count the day anew.
        return FIRST_JOURNAL

    def require_short(self, texts: Iterable[str]) -> None:
        """Refuse a request if one of its texts is too long."""
        limit = self.settings.text_limit
        if (longest := max(map(len, texts), default=0)) > limit:
            raise HttpError(
                413,
                f"a text of the request has {longest:,} characters, and the limit is {limit:,};"
                " send less text, send a file for tools to read, or start the server with a larger"
                " --text-limit",
                code="text_too_long",
            )

    async def may_approve(self, key: Key) -> bool:
        """Return whether a key may answer approvals."""
        await trio.lowlevel.checkpoint()
        if key.may(Scope.APPROVE):
            return True
        return key.name == DEFAULT and key.is_admin and await self.may_default_approve()

    async def may_default_approve(self) -> bool:
        """Return whether the key `default` may answer approvals."""
        await trio.lowlevel.checkpoint()
        allowed = self.settings.may_default_approve
        if allowed is None:
            return (await self.sandbox.backend()).is_wall
        return allowed

    def agent(self, model: str) -> Agent[Any]:
        """Return the agent whose model name a client sends."""
        if model not in self.agents:
            raise HttpError(
                404,
                f"there is no model {model!r}; there are: {', '.join(self.agents)}",
                code="model_not_found",
                param="model",
            )
        return self.agents[model]
