"""Opening the server: it listens as long as a block lasts, and then shuts down in order."""

import logging
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from anycorn.config import Config

from agents import Agent, DefinitionError, raising_one_error
from orchestrator.doors.http import HttpDoor, Push
from orchestrator.runtime import Orchestrator
from orchestrator.server.app import application
from orchestrator.server.live.live_text import LiveText
from orchestrator.server.metrics import Metrics
from orchestrator.server.state import ServerState, Settings
from orchestrator.server.transport.connections import Connections
from orchestrator.server.transport.listener import Listening, bind, require_certificate
from orchestrator.server.transport.log import redacted_logger

CANCEL_SECONDS: Final = 1
"""How long the runs that clients wait for may take to settle when they are cancelled."""


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
    push: Push | None = None,
) -> AsyncGenerator[Server]:
    """Serve agents as long as the block lasts.

    Args:
        orchestrator: runs the agents.
        agents: the agents, by the model name that clients use.
        settings: the configuration.
        listening: the address and the certificate.
        push: sends replies to a webhook.
    """
    require_certificate(listening)
    log = redacted_logger(orchestrator.read.redactor)
    config = _configured(listening, log)
    with bind(listening) as listener:
        address = _address_of(listener, listening)
        async with open_server_state(orchestrator, agents, settings, push) as state:
            connections = Connections(application(state), config)
            with raising_one_error():
                async with trio.open_nursery() as serving:
                    await serving.start(connections.serve, listener, state.shutdown)
                    try:
                        yield Server(state, connections, [address])
                    finally:
                        with trio.move_on_after(CANCEL_SECONDS, shield=True):
                            await state.door.cancel_waiting_runs()
                        state.shutdown.set()


@asynccontextmanager
async def open_server_state(
    orchestrator: Orchestrator,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    push: Push | None = None,
) -> AsyncGenerator[ServerState]:
    """Open the state of a server, and go on with the sessions that an earlier one left unfinished.

    Work that outlives its connection lives as long as this block.
    """
    metrics = Metrics(orchestrator)
    with orchestrator.read.subscribe(metrics.count_fact), raising_one_error():
        async with trio.open_nursery() as nursery:
            state = ServerState(
                orchestrator=orchestrator,
                agents=agents,
                door=HttpDoor(orchestrator.services, agents, nursery, push),
                live_text=LiveText(orchestrator.read, orchestrator.read.redactor),
                metrics=metrics,
                settings=settings,
                unusable_agents=_unusable_agents(orchestrator, agents),
            )
            with state.live_text.collect():
                state.unserved_sessions = await state.door.resume_sessions()
                yield state
            nursery.cancel_scope.cancel(reason="the server is closed")


def _unusable_agents(
    orchestrator: Orchestrator, agents: Mapping[str, Agent[Any]]
) -> dict[str, str]:
    """Return why agents cannot run: their models, or those of their delegates, cannot be made."""
    problems: dict[str, str] = {}
    for name, agent in agents.items():
        try:
            orchestrator.services.registry.require_models(agent)
        except DefinitionError as exc:
            problems[name] = orchestrator.read.redactor.redact(str(exc))
    return problems


def _address_of(listener: socket.socket, listening: Listening) -> str:
    host, port, *_ = listener.getsockname()
    scheme = "http" if listening.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _configured(listening: Listening, log: logging.Logger) -> Config:
    config = Config()
    config.include_server_header = False
    config.errorlog = log
    config.alpn_protocols = ["http/1.1"]
    if listening.certificate is not None:
        config.certfile = str(listening.certificate)
        config.keyfile = str(listening.key or listening.certificate)
    return config
