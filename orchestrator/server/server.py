"""Running the server: it listens, serves until it is told to stop, and then lets work finish."""

import logging
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from anycorn.config import Config

from agents import Agent, raising_one_error
from delegation import DeliveryCapability
from orchestrator.doors.http import KIND, HttpDoor, Push
from orchestrator.runtime import Orchestrator
from orchestrator.server.app import application
from orchestrator.server.live.live_text import LiveText
from orchestrator.server.metrics import Metrics
from orchestrator.server.state import ServerState, Settings
from orchestrator.server.transport.connections import Connections
from orchestrator.server.transport.listener import Listening, bind, require_certificate
from orchestrator.server.transport.log import redacted_logger
from orchestrator.services import Services

CANCEL_SECONDS: Final = 1
"""How long what clients wait for may take to end when it is cancelled."""


class Server:
    """A server that runs."""

    def __init__(
        self, state: ServerState, connections: Connections, addresses: Sequence[str]
    ) -> None:
        self.state = state
        self.connections = connections
        self.addresses = addresses
        """Where it can be reached: URLs."""


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
        orchestrator: who runs them.
        agents: who can be talked to, by the name that clients say.
        settings: who may come in, and with what.
        listening: where.
        push: tells whoever registered a webhook.
    """
    require_certificate(listening)
    house = orchestrator.services
    config = _configured(listening, redacted_logger(house.book.redactor))
    with bind(listening) as listener:
        address = _address_of(listener, listening)
        async with open_server_state(orchestrator, agents, settings, push) as office:
            connections = Connections(application(office), config)
            with raising_one_error():
                async with trio.open_nursery() as serving:
                    await serving.start(connections.serve, listener, office.shutdown)
                    try:
                        yield Server(office, connections, [address])
                    finally:
                        with trio.move_on_after(CANCEL_SECONDS, shield=True):
                            await _cancel_waiting_runs(house)
                        office.shutdown.set()


@asynccontextmanager
async def open_server_state(
    orchestrator: Orchestrator,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    push: Push | None = None,
) -> AsyncGenerator[ServerState]:
    """Give what routes need, and go on with what an earlier server has left unfinished.

    What was begun for connections lives as long as this block, and not as they do.
    """
    metrics = Metrics(orchestrator)
    with orchestrator.read.subscribe(metrics.count_fact), raising_one_error():
        async with trio.open_nursery() as kept:
            office = ServerState(
                orchestrator=orchestrator,
                agents=agents,
                door=HttpDoor(orchestrator.services, agents, kept, push),
                live_text=LiveText(
                    orchestrator.read, orchestrator.services.book.redactor
                ),
                metrics=metrics,
                settings=settings,
            )
            with office.live_text.collect():
                office.unserved_sessions = office.door.resume_sessions()
                yield office
            kept.cancel_scope.cancel(reason="the server is closed")


async def _cancel_waiting_runs(services: Services) -> None:
    """Cancel the runs whose clients wait for the answer, so that they are told how it ended."""
    await trio.lowlevel.checkpoint()
    waiting = [
        session.root.id
        for session in services.book.ledger.sessions.values()
        if session.labels.get(KIND)
        and session.turn is not None
        and session.turn.capability is DeliveryCapability.NONE
    ]
    if waiting:
        await services.delegator.cancel(waiting)


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
