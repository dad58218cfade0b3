"""The state that all routes of one server share."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from starlette.responses import Response

from orchestrator.agents import Agent
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.kernel.execution.agent_registry import reachable_agents
from orchestrator.kernel.state_files import FIRST_JOURNAL
from orchestrator.products.mcp.server.tools import AgentTool, TaskMode
from orchestrator.products.schedule import Job, Target
from orchestrator.products.schedule.targets import NO_TARGETS
from orchestrator.products.server.audit import HttpAudit
from orchestrator.products.server.cluster.placement import Placement, counts_in_a_journal
from orchestrator.products.server.console.sign_in import SignIns
from orchestrator.products.server.keys.key import Key
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.metrics import Metrics
from orchestrator.products.server.quotas import Quotas
from orchestrator.products.server.served_journal import ONLY, HeldJournals, ServedJournal
from orchestrator.products.server.transport.errors import HttpError

if TYPE_CHECKING:
    from orchestrator.products.server.api_call import ApiCall
    from orchestrator.products.server.cluster.peers import Peers
    from orchestrator.products.server.cluster.session_list import SessionListing
    from orchestrator.products.server.mcp_endpoint import McpEndpoint

BODY_LIMIT: Final = 10_000_000
TEXT_LIMIT: Final = 1_000_000


@attrs.frozen(kw_only=True)
class Settings:
    """The configuration of a server."""

    token: str | None
    """That of the key `default`; None has no such key."""
    may_default_approve: bool | None = None
    """Whether the key `default` may answer approvals, because no command of an agent can read its
    token; None is where the sandbox of commands is a wall."""
    keys: Path | None = None
    """The file of all other keys."""
    hosts: frozenset[str] | None = None
    """The host names that it answers to; None is any."""
    body_limit: int = BODY_LIMIT
    """How many bytes a request may have."""
    audit_reads: bool = False
    """Record in the audit what is read, too."""
    cluster_secret: bytes | None = attrs.field(default=None, repr=False)
    """By which other servers sign what they forward; None believes none of them."""
    is_strict: bool = False
    """Refuse parameters of OpenAI's protocols that an agent cannot keep, instead of naming them in
    a header of the answer."""
    ignores_hosted_tools: bool = False
    """Leave out tools of a request that only OpenAI could run, such as `web_search`, instead of
    refusing them."""
    origins: frozenset[str] = frozenset()
    """The origins whose web pages may ask the server, such as `https://chat.example.org`; `*` is
    any."""
    logs_access: bool = False
    """Write a line to stderr for each request."""
    text_limit: int = TEXT_LIMIT
    """How many characters one text of a request may have."""
    console_keys: Path | None = None
    """The file of those who are signed in to the console; None forgets them with the process."""
    is_view_only: bool = False
    """Whether people may change nothing by the console."""
    file: str = ""
    """The name of what defines the agents, without its folder, for the commands that the console
    shows: `team.py`."""
    variables: Mapping[str, str] = {}
    """The variables of the agents in that file, by the names of the agents."""
    language_models: tuple[str, ...] = ()
    """The models that a run may take instead of that of its agent, besides those that the agents
    name."""
    task_modes: Mapping[str, TaskMode] = {}
    """Whether calls of an agent over MCP are tasks, where that is not `optional`."""
    jobs: Sequence[Job] = ()
    """What begins by the clock, in one of the journals."""
    job_targets: Mapping[str, Target] = NO_TARGETS
    """Where the replies of jobs can go besides files, by the word before the colon."""
    clock: Callable[[], float] = time.time
    """The time of day, by which jobs begin."""


@attrs.define(kw_only=True)
class ServerState:
    """One running server."""

    agents: Mapping[str, Agent[Any]]
    """The agents, by the model name that clients use."""
    tools: Mapping[str, AgentTool]
    """The same, as tools for clients of MCP."""
    journals: HeldJournals
    metrics: Metrics
    settings: Settings
    keys: KeyStore
    quotas: Quotas
    sandbox: SandboxChoice
    home_of: "Callable[[ApiCall], Awaitable[ServedJournal | Response | None]]"
    """Finds the journal that a request is about; None if the server holds none, and the answer
    of another server if that writes it."""
    listing: "SessionListing | None" = None
    """Lists the sessions of all journals; None where this server has the only one."""
    peers: "Peers | None" = None
    """Asks the other servers what they have in memory; None where there are none."""
    placement: Placement | None = None
    """The homes of new sessions; None is the first journal."""
    survives_journals: bool = False
    """Whether the server goes on when a journal of it fails."""
    is_draining: bool = False
    """Whether all journals are let go, because the server ends."""
    unusable_agents: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Why agents that are served cannot run, by their names: a key is missing, for example."""
    mcp: "McpEndpoint | None" = None
    """Speaks MCP, from the first request on that does."""
    simulations: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """One simulation at a time: others wait, and no client waits for more than one of them."""
    shutdown: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server shuts down."""
    sign_ins: SignIns = attrs.field(init=False)
    """Who is signed in to the console."""
    started: int = attrs.field(init=False)
    """The time of day when it began to serve its agents."""

    def __attrs_post_init__(self) -> None:
        self.started = int(self.keys.now())
        self.sign_ins = SignIns(
            self.keys, self.settings.console_keys, is_view_only=self.settings.is_view_only
        )

    @cached_property
    def language_models(self) -> tuple[str, ...]:
        """The models that a run may take instead of that of its agent."""
        named = {
            it.model
            for agent in self.agents.values()
            for it in reachable_agents(agent)
            if isinstance(it.model, str)
        }
        return tuple(sorted(named | {*self.settings.language_models}))

    @property
    def is_stopping(self) -> bool:
        """Whether the server begins nothing new."""
        journals = list(self.journals)
        return self.is_draining or (
            bool(journals) and all(journal.is_stopping for journal in journals)
        )

    @property
    def audit(self) -> HttpAudit | None:
        """Records what is about no journal in particular; None if the server holds none."""
        journal = self.journals.first_or_none
        return None if journal is None else journal.audit

    @property
    def home_of_jobs(self) -> str:
        """The journal of the jobs of the program, which begin at the server that holds it."""
        if self.placement is not None:
            return self.placement.home_of("jobs")
        return ONLY if self.listing is None else FIRST_JOURNAL

    def home_of_key(self, key: Key) -> str | None:
        """Return the journal of all sessions of a key; None if they may be anywhere."""
        if self.placement is not None:
            return self.placement.home_of_key(key)
        if self.listing is None or not counts_in_a_journal(key):
            return None
        # In a folder: what a restart took instead would begin the day anew.
        return FIRST_JOURNAL

    def require_short(self, texts: Iterable[str]) -> None:
        """Refuse texts of a request if one is too long."""
        limit = self.settings.text_limit
        if (longest := max(map(len, texts), default=0)) > limit:
            raise HttpError(
                413,
                f"a text of the request has {longest:,} characters, and the limit is {limit:,};"
                " send less, or a file that tools can read, or start the server with a larger"
                " --text-limit",
                code="text_too_long",
            )

    async def may_default_approve(self) -> bool:
        """Return whether the key `default` may answer approvals."""
        await trio.lowlevel.checkpoint()
        allowed = self.settings.may_default_approve
        if allowed is None:
            return (await self.sandbox.backend()).is_wall
        return allowed

    def agent(self, model: str) -> Agent[Any]:
        """Return the agent that a client means by the name of a model."""
        if model not in self.agents:
            raise HttpError(
                404,
                f"there is no model {model!r}; there are: {', '.join(self.agents)}",
                code="model_not_found",
                param="model",
            )
        return self.agents[model]
