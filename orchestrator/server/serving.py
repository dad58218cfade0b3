"""Running the server: it listens, serves until it is told to stop, and then lets work finish."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import trio
from anycorn import serve  # pyright: ignore[reportUnknownVariableType]
from anycorn.config import Config

from agents import Agent, raising_one_error
from delegation import DeliveryCapability
from orchestrator.doors.http import KIND, HttpDoor, Push
from orchestrator.house import House
from orchestrator.runtime import Orchestrator
from orchestrator.server.app import application
from orchestrator.server.feeds import Feeds
from orchestrator.server.listening import BACKLOG, Listening, bind, require_certificate
from orchestrator.server.metrics import Metrics
from orchestrator.server.office import Office, Settings

HANG_UP_SECONDS: Final = 1
"""How long clients have to take their answers when the server ends."""


class Server:
    """A server that runs."""

    def __init__(self, office: Office, addresses: Sequence[str]) -> None:
        self.office = office
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
    config = _configured(listening)
    with raising_one_error():
        # Outlives the connections: what was begun for them may still be under way.
        async with trio.open_nursery() as kept:
            office = Office(
                orchestrator=orchestrator,
                agents=agents,
                door=HttpDoor(orchestrator.house, agents, kept, push),
                feeds=Feeds(orchestrator),
                metrics=Metrics(),
                settings=settings,
            )
            office.door.take_up()
            async with trio.open_nursery() as serving:
                addresses: Sequence[str] = await serving.start(
                    partial(
                        serve,
                        # Two libraries have each their own types of the same protocol.
                        cast("Any", application(office)),
                        config,
                        shutdown_trigger=office.over.wait,
                    )
                )
                try:
                    yield Server(office, addresses)
                finally:
                    with trio.move_on_after(HANG_UP_SECONDS, shield=True):
                        await _end_what_nobody_takes_up(orchestrator.house)
                    office.over.set()
            kept.cancel_scope.cancel(reason="the server is closed")


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


def _configured(listening: Listening) -> Config:
    require_certificate(listening)
    config = Config()
    config.bind = [f"fd://{bind(listening).detach()}"]
    config.backlog = BACKLOG
    config.graceful_timeout = HANG_UP_SECONDS
    config.include_server_header = False
    config.errorlog = None
    config.alpn_protocols = ["http/1.1"]
    if listening.certificate is not None:
        config.certfile = str(listening.certificate)
        config.keyfile = str(listening.key or listening.certificate)
    return config
