"""Running the server: it listens, serves until it is told to stop, and then lets work finish."""

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import attrs
import trio
from anycorn import serve  # pyright: ignore[reportUnknownVariableType]
from anycorn.config import Config, Sockets

from agents import Agent, raising_one_error
from orchestrator.doors.http import HttpDoor, Push
from orchestrator.runtime import Orchestrator
from orchestrator.server.app import application
from orchestrator.server.feeds import Feeds
from orchestrator.server.metrics import Metrics
from orchestrator.server.office import Office, Settings
from orchestrator.server.stream import WRITE_SECONDS

HANG_UP_SECONDS: Final = 1
"""How long connections that say nothing any more are kept when the server ends."""


@attrs.frozen(kw_only=True)
class Listening:
    """Where a server listens."""

    host: str = "127.0.0.1"
    port: int = 8642
    """0 is any that is free."""
    certificate: Path | None = None
    key: Path | None = None


class Server:
    """A server that runs."""

    def __init__(self, office: Office, addresses: Sequence[str]) -> None:
        self.office = office
        self.addresses = addresses
        """Where it can be reached: URLs."""

    def stop_taking(self) -> None:
        """Begin nothing new; what was begun goes on."""
        self.office.is_stopping = True


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
    over = trio.Event()
    async with opened_office(orchestrator, agents, settings, push) as office:
        with raising_one_error():
            async with trio.open_nursery() as serving:
                addresses: Sequence[str] = await serving.start(
                    partial(
                        serve,
                        # Two libraries have each their own types of the same protocol.
                        cast("Any", application(office)),
                        _configured(listening),
                        shutdown_trigger=over.wait,
                    )
                )
                try:
                    yield Server(office, addresses)
                finally:
                    over.set()


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
    with raising_one_error():
        async with trio.open_nursery() as kept:
            office = Office(
                orchestrator=orchestrator,
                agents=agents,
                door=HttpDoor(orchestrator.house, agents, kept, push),
                feeds=Feeds(orchestrator.house.book),
                metrics=Metrics(),
                settings=settings,
            )
            kept.start_soon(office.feeds.run)
            office.door.take_up()
            yield office
            kept.cancel_scope.cancel(reason="the server is closed")


class _Impatient(Config):
    """Has the kernel end connections on which nothing can be sent for too long.

    Nobody else can: the server below shields what it sends, so a reader that has stopped reading
    would hold its response for ever, and the end of the server with it.
    """

    def create_sockets(self) -> Sockets:
        sockets = super().create_sockets()
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            for listening in (*sockets.secure_sockets, *sockets.insecure_sockets):
                listening.setsockopt(
                    socket.IPPROTO_TCP,
                    socket.TCP_USER_TIMEOUT,
                    round(WRITE_SECONDS * 1000),
                )
        return sockets


def _configured(listening: Listening) -> Config:
    config = _Impatient()
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    config.bind = [f"{host}:{listening.port}"]
    config.graceful_timeout = HANG_UP_SECONDS
    config.include_server_header = False
    config.errorlog = None
    if listening.certificate is not None:
        config.certfile = str(listening.certificate)
        config.keyfile = None if listening.key is None else str(listening.key)
    return config
