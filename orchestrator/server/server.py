"""Running the server: it listens, serves until it is told to stop, and then lets work finish."""

import logging
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import trio
from anycorn.config import Config

from agents import Agent, raising_one_error
from delegation import DeliveryCapability
from orchestrator.doors.http import KIND, HttpDoor, Push
from orchestrator.runtime import Orchestrator
from orchestrator.server.app import application
from orchestrator.server.live.fact_feed import Feeds
from orchestrator.server.live.live_text import Sayings
from orchestrator.server.metrics import Metrics
from orchestrator.server.state import Office, Settings
from orchestrator.server.transport.connections import Connections
from orchestrator.server.transport.listener import Listening, bind, require_certificate
from orchestrator.server.transport.log import complaining
from orchestrator.services import House

CANCEL_SECONDS: Final = 1
"""How long what clients wait for may take to end when it is cancelled."""


class Server:
    """A server that runs."""

    def __init__(
        self, office: Office, connections: Connections, addresses: Sequence[str]
    ) -> None:
        self.office = office
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
    house = orchestrator.house
    config = _configured(listening, complaining(house.book.redactor))
    with bind(listening) as listener:
        address = _address_of(listener, listening)
        async with opened_office(orchestrator, agents, settings, push) as office:
            connections = Connections(application(office), config)
            with raising_one_error():
                async with trio.open_nursery() as serving:
                    await serving.start(connections.serve, listener, office.over)
                    try:
                        yield Server(office, connections, [address])
                    finally:
                        with trio.move_on_after(CANCEL_SECONDS, shield=True):
                            await _end_what_nobody_takes_up(house)
                        office.over.set()


@asynccontextmanager
async def opened_office(
    orchestrator: Orchestrator,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    push: Push | None = None,
) -> AsyncGenerator[Office]:
    """Give what routes need, and go on with what an earlier server has left unfinished.

    What was begun for connections lives as long as this block, and not as they do.
    """
    metrics = Metrics(orchestrator)
    with _counting(orchestrator.house, metrics), raising_one_error():
        async with trio.open_nursery() as kept:
            office = Office(
                orchestrator=orchestrator,
                agents=agents,
                door=HttpDoor(orchestrator.house, agents, kept, push),
                feeds=Feeds(orchestrator.house.book),
                sayings=Sayings(orchestrator.house),
                metrics=metrics,
                settings=settings,
            )
            kept.start_soon(office.feeds.run)
            with office.sayings.following():
                office.left = office.door.take_up()
                yield office
            kept.cancel_scope.cancel(reason="the server is closed")


@contextmanager
def _counting(house: House, metrics: Metrics) -> Generator[None]:
    house.book.followers.append(metrics.count)
    try:
        yield
    finally:
        house.book.followers.remove(metrics.count)


async def _end_what_nobody_takes_up(house: House) -> None:
    """Cancel the runs whose clients wait for the answer, so that they are told how it ended."""
    await trio.lowlevel.checkpoint()
    waiting = [
        session.root.id
        for session in house.book.ledger.sessions.values()
        if session.labels.get(KIND)
        and session.turn is not None
        and session.turn.capability is DeliveryCapability.NONE
    ]
    if waiting:
        await house.delegator.cancel(waiting)


def _address_of(listener: socket.socket, listening: Listening) -> str:
    host, port, *_ = listener.getsockname()
    scheme = "http" if listening.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _configured(listening: Listening, complaints: logging.Logger) -> Config:
    config = Config()
    config.include_server_header = False
    config.errorlog = complaints
    config.alpn_protocols = ["http/1.1"]
    if listening.certificate is not None:
        config.certfile = str(listening.certificate)
        config.keyfile = str(listening.key or listening.certificate)
    return config
