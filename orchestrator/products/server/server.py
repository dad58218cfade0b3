"""Opening the server: it listens as long as a block lasts, and then shuts down in order."""

import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from orchestrator.agents import Agent, DefinitionError, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import NO_PUSHES, Orchestrator, Push, RequestDoor
from orchestrator.products.mcp.ports import tools_of
from orchestrator.products.schedule.ports import Scheduler
from orchestrator.products.server.app import application
from orchestrator.products.server.audit import HttpAudit
from orchestrator.products.server.keys.key import DEFAULT
from orchestrator.products.server.keys.owners import open_owners
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.live.live_text import LiveText
from orchestrator.products.server.metrics import Metrics
from orchestrator.products.server.openai.responses.routes import agent_of_response
from orchestrator.products.server.past_runs import PastRuns
from orchestrator.products.server.quotas import JobCharges, Quotas, inherited_key, share_of
from orchestrator.products.server.run_summaries import RunSummaries
from orchestrator.products.server.served_journal import ONLY, HeldJournals, ServedJournal
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.listener import Listening, bind, require_usable
from orchestrator.products.server.transport.log import AccessLog, access_logger, redacted_logger
from orchestrator.products.server.transport.tls import Certificate

CANCEL_SECONDS: Final = 1
"""The most seconds for cancelled runs to settle, if clients wait for them."""


class Server:
    """A running server."""

    def __init__(
        self, state: ServerState, connections: Connections, addresses: Sequence[str]
    ) -> None:
        self.state = state
        self.connections = connections
        self.addresses = addresses
        """The URLs at which it can be reached."""


@asynccontextmanager
async def open_server(
    orchestrator: Orchestrator,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    listening: Listening,
    push: Push | Mapping[str, Push] | None = None,
) -> AsyncGenerator[Server]:
    """Serve agents as long as the block lasts.

    Args:
        orchestrator: runs the agents.
        agents: the agents, by the model name that clients use.
        settings: the configuration.
        listening: the address and the certificate.
        push: sends the replies of `default` to a webhook, or the replies of each owner by its name.
    """
    require_usable(listening)
    with bind(listening) as listener:
        address = address_of(listener, listening)
        async with (
            open_server_state(orchestrator, agents, settings, push) as state,
            serve_connections(
                state, listener, listening, orchestrator.read.redactor
            ) as connections,
        ):
            with state.journals.first.audit.lifetime(address):
                try:
                    yield Server(state, connections, [address])
                finally:
                    with trio.move_on_after(CANCEL_SECONDS, shield=True):
                        await cancel_waiting_runs(state)
                    # So the audit has the changes of keys since the last request, too.
                    state.keys.refresh()
                    for journal in state.journals:
                        journal.shutdown.set()


@asynccontextmanager
async def serve_connections(
    state: ServerState, listener: socket.socket, listening: Listening, redactor: Redactor
) -> AsyncGenerator[Connections]:
    """Answer clients, as long as the block lasts."""
    log = redacted_logger(redactor)
    app = application(state)
    if state.settings.logs_access:
        write = access_logger(redactor).info
        app = AccessLog(app=app, write=write, now=state.keys.now)
    certificate = None
    if listening.certificate is not None:
        certificate = Certificate(listening.certificate, listening.key, log)
    connections = Connections(
        app,
        log,
        certificate=certificate,
        per_peer=listening.connections_per_peer,
        keep_alive=listening.keep_alive,
        count_refusal=state.metrics.count_refusal,
        now=state.keys.now,
    )
    with raising_one_error():
        async with trio.open_nursery() as serving:
            await serving.start(connections.serve, listener, state.shutdown)
            try:
                yield connections
            finally:
                state.shutdown.set()


async def cancel_waiting_runs(state: ServerState) -> None:
    """Cancel the runs that clients wait for, so that they get an outcome."""
    await trio.lowlevel.checkpoint()
    for journal in state.journals:
        await journal.door.cancel_waiting_runs()


@asynccontextmanager
async def open_server_state(
    orchestrator: Orchestrator,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    push: Push | Mapping[str, Push] | None = None,
) -> AsyncGenerator[ServerState]:
    """Open the state of a server and of the work that outlives its connections."""
    state = new_state(
        agents,
        settings,
        clock=orchestrator.now,
        redactor=orchestrator.read.redactor,
        sandbox=orchestrator.sessions.machine.settings.sandbox,
    )
    state.unusable_agents = unusable_agents(orchestrator, agents)
    async with serve_journal(state, orchestrator, push):
        yield state


def new_state(
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    *,
    clock: Callable[[], float],
    redactor: Redactor,
    sandbox: SandboxChoice,
) -> ServerState:
    """Return the state of a server that holds no journal yet."""
    journals = HeldJournals()

    def note_key(action: str, name: str) -> None:
        if (journal := journals.first_or_none) is not None:
            journal.audit.note_key(action, name)

    return ServerState(
        agents=agents,
        tools=tools_of(agents, settings.task_modes),
        journals=journals,
        metrics=Metrics(),
        settings=settings,
        keys=KeyStore(
            settings.keys,
            token=settings.token,
            clock=clock,
            report=redacted_logger(redactor).error,
            note_change=note_key,
        ),
        quotas=Quotas(lambda: [it.read.records for it in journals], clock),
        sandbox=sandbox,
    )


@asynccontextmanager
async def serve_journal(
    state: ServerState,
    orchestrator: Orchestrator,
    push: Push | Mapping[str, Push] | None = None,
    *,
    name: str = ONLY,
) -> AsyncGenerator[ServedJournal]:
    """Serve the sessions of a journal, and go on with the unfinished ones."""
    read = orchestrator.read
    audit = HttpAudit(orchestrator.facts, records_reads=state.settings.audit_reads)
    settings = state.settings
    # Jobs may use agents that are not served to clients.
    agents = {**{it.agent.name: it.agent for it in settings.jobs}, **state.agents}
    scheduler = Scheduler(
        orchestrator.sessions,
        agents,
        targets=settings.job_targets,
        clock=settings.clock,
        charge=JobCharges(state.keys, state.quotas, read).charge,
        inherit=inherited_key,
    )
    orchestrator.sessions.call_share.share_of = partial(share_of, state.keys)
    summaries = RunSummaries(read)
    with (
        state.metrics.count_facts_of(orchestrator),
        read.subscribe(summaries.note_fact),
        raising_one_error(),
    ):
        async with open_owners(read) as owners, trio.open_nursery() as nursery:
            journal = ServedJournal(
                name=name,
                orchestrator=orchestrator,
                door=RequestDoor(
                    orchestrator.sessions,
                    agents,
                    nursery,
                    _by_owner(push),
                    agent_of_response,
                    kinds={SessionKind.JOB_RUN: scheduler.deliver},
                ),
                scheduler=scheduler,
                live_text=LiveText(read, read.redactor),
                audit=audit,
                owners=owners,
                past_runs=PastRuns(read, nursery),
                summaries=summaries,
            )
            nursery.start_soon(audit.refusals.record_forever)
            jobs = settings.jobs if name == state.home_of_jobs else None
            async with scheduler.open(journal.door, jobs):
                with journal.live_text.collect():
                    journal.unserved_sessions = await journal.door.resume_sessions()
                    with state.journals.hold(journal):
                        yield journal
            nursery.cancel_scope.cancel(reason="the server is closed")


def _by_owner(push: Push | Mapping[str, Push] | None) -> Mapping[str, Push]:
    """Return the functions that send replies, by the owner that sessions record."""
    if push is None:
        return NO_PUSHES
    if callable(push):
        return {"": push}
    return {"" if owner == DEFAULT else owner: it for owner, it in push.items()}


def unusable_agents(orchestrator: Orchestrator, agents: Mapping[str, Agent[Any]]) -> dict[str, str]:
    """Return the reasons why agents cannot run: their or their delegates' models fail to load."""
    problems: dict[str, str] = {}
    for name, agent in agents.items():
        try:
            orchestrator.sessions.registry.require_models(agent)
        except DefinitionError as exc:
            problems[name] = orchestrator.read.redactor.redact(str(exc))
    return problems


def address_of(listener: socket.socket, listening: Listening) -> str:
    host, port, *_ = listener.getsockname()
    scheme = "http" if listening.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
