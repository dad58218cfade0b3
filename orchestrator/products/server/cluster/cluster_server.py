"""A server of many journals: the journals of a folder, or the shards of a database."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from orchestrator.agents import Agent, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.journals import SHARDS, Journals
from orchestrator.ports.sessions import Push
from orchestrator.products.cluster.ports import (
    DatabaseAddress,
    install_schema,
    install_secret,
    install_servers,
    open_database,
    open_wakeups,
    shown_address,
)
from orchestrator.products.server.cluster.folder import FolderDirectory
from orchestrator.products.server.cluster.holder import JournalHolder, OpenOrchestrator
from orchestrator.products.server.cluster.other_processes import OtherProcesses
from orchestrator.products.server.cluster.peers import Peers
from orchestrator.products.server.cluster.placement import Placement
from orchestrator.products.server.cluster.proxy import Proxy, open_proxy
from orchestrator.products.server.cluster.router import ClusterRouter
from orchestrator.products.server.cluster.session_list import SessionListing
from orchestrator.products.server.cluster.shard_keeper import ShardKeeper
from orchestrator.products.server.server import Server, address_of, new_state, serve_connections
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.products.server.transport.api_key import is_wildcard
from orchestrator.products.server.transport.listener import Listening, bind, require_usable

if TYPE_CHECKING:
    from orchestrator.products.cluster.ports import Connection

ANSWER_SECONDS: Final = 3
"""The most seconds to answer requests after the server has let go of all journals."""
CLOSE_SECONDS: Final = 5
"""The most seconds to let go of journals when the server ends in a hurry."""


@attrs.frozen(kw_only=True)
class ClusterSettings:
    """The settings of a server of many journals, besides its `Settings`."""

    secret: bytes = attrs.field(repr=False)
    """Signs the requests that servers forward. It is random, and not made of any key."""
    open_orchestrator: OpenOrchestrator
    """Opens an orchestrator on a journal that this server holds."""
    clock: Callable[[], float]
    redactor: Redactor
    sandbox: SandboxChoice
    report: Callable[[str], None]
    """Called with a sentence when a journal is taken, lost or let go."""
    host: str
    """The name of this machine."""
    address: str | None = None
    """The URL at which other servers reach this one; None is the listening address."""
    database: DatabaseAddress | None = None
    """The database whose shards it serves; None serves the journals of a folder."""
    shards: int | None = None
    """The number of shards of a new database; None is the present number, or 16."""
    grace: float = 10
    """The seconds that running tasks may go on in a shard that is handed over."""


class ClusterServer:
    """A running server of many journals, which a signal can drain."""

    def __init__(
        self, server: Server, holder: JournalHolder, keeper: ShardKeeper | None = None
    ) -> None:
        self.server = server
        self._holder = holder
        self._keeper = keeper

    @property
    def working(self) -> int:
        """The number of tasks that run now."""
        return self._holder.working

    async def drain(self, seconds: float) -> bool:
        """Hand over all journals, and return whether all tasks have ended."""
        self.server.state.is_draining = True
        if self._keeper is not None:
            # First, so that the others take the journals that are let go.
            await self._keeper.leave()
        has_ended = await self._holder.drain(seconds)
        # Requests that wait for the next writers of their journals are passed on to these.
        with trio.move_on_after(ANSWER_SECONDS):
            await self.server.state.metrics.wait_answered()
        return has_ended

    async def abandon(self) -> None:
        """Settle running tasks without waiting for them."""
        await self._holder.abandon()


@asynccontextmanager
async def open_cluster_server(
    journals: Journals,
    agents: Mapping[str, Agent[Any]],
    settings: Settings,
    listening: Listening,
    *,
    push: Mapping[str, Push],
    cluster: ClusterSettings,
) -> AsyncGenerator[ClusterServer]:
    """Serve the journals of a folder, or shards of a database, as long as the block lasts."""
    require_usable(listening)
    with bind(listening) as listener:
        bound = address_of(listener, listening)
        if cluster.database is not None and cluster.address is None:
            require_named(urlsplit(bound).hostname or "")
        state = new_state(
            agents,
            attrs.evolve(settings, cluster_secret=cluster.secret),
            clock=cluster.clock,
            redactor=cluster.redactor,
            sandbox=cluster.sandbox,
        )
        state.survives_journals = True
        state.listing = SessionListing(journals)
        address = cluster.address or bound
        with raising_one_error():
            # The nursery owns the orchestrators.
            async with (
                open_proxy(cluster.secret, address, cluster.clock) as proxy,
                trio.open_nursery() as nursery,
            ):
                holder = JournalHolder(
                    state,
                    cluster.open_orchestrator,
                    push,
                    nursery,
                    address=bound,
                    report=cluster.report,
                )
                async with (
                    _directory(
                        journals, state, holder, proxy, address=address, cluster=cluster
                    ) as keeper,
                    serve_connections(state, listener, listening, cluster.redactor) as connections,
                ):
                    server = Server(state, connections, [bound])
                    served = ClusterServer(server, holder, keeper)
                    try:
                        yield served
                    finally:
                        with trio.move_on_after(CLOSE_SECONDS, shield=True):
                            await served.drain(0)
                nursery.cancel_scope.cancel(reason="the server is closed")


@asynccontextmanager
async def _directory(
    journals: Journals,
    state: ServerState,
    holder: JournalHolder,
    proxy: Proxy,
    *,
    address: str,
    cluster: ClusterSettings,
) -> AsyncGenerator[ShardKeeper | None]:
    """Take journals, and track the writers of the others, as long as the block lasts."""
    if cluster.database is None:
        folder = FolderDirectory(journals, holder, address)
        state.others = OtherProcesses(journals, state.journals, holder.start_soon)
        router = ClusterRouter(state.journals, folder, proxy, others=state.others)
        state.home_of = router.home_of
        state.peers = Peers(proxy, folder.addresses)
        if state.settings.jobs:
            # First, so that new sessions go there, too, and no other journal is held for them.
            await folder.try_to_take(state.home_of_jobs)
        await folder.take_first()
        if state.settings.jobs:
            holder.start_soon(partial(folder.take_forever, state.home_of_jobs))
        yield None
        return
    url, application = cluster.database.url, f"orchestrator serve {address}"
    async with (
        open_database(url, application=application) as database,
        open_wakeups(url, application=application) as wakeups,
    ):
        shards = await database.run(partial(_install, cluster))
        keeper = ShardKeeper(
            journals,
            holder,
            proxy,
            database,
            id_=f"{address}#{token_hex(4)}",
            address=address,
            host=cluster.host,
            shards=shards,
            lease=cluster.database.lease,
            grace=cluster.grace,
            report=cluster.report,
        )
        state.placement = Placement(shards)
        state.is_in_touch = keeper.is_in_touch
        state.home_of = ClusterRouter(state.journals, keeper, proxy, state.placement).home_of
        state.peers = Peers(proxy, keeper.addresses)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                await keeper.begin()
                nursery.start_soon(keeper.keep_forever, wakeups)
                yield keeper
                nursery.cancel_scope.cancel(reason="the server is closed")


def require_named(host: str) -> None:
    """Raise if a server of a database listens at an address that other servers cannot use."""
    if is_wildcard(host):
        raise ServerSetupError(
            f"the server listens at all addresses ({host}), and the other servers of the database"
            " need one to reach it: give --address https://HOST:PORT"
        )


async def secret_of_database(database: DatabaseAddress) -> str:
    """Return the secret that the servers of a database share; the first server makes it."""

    def install(connection: "Connection") -> str:
        install_schema(connection, shown_address(database.url), database.cluster)
        return install_secret(connection)

    async with open_database(database.url, application="orchestrator serve") as opened:
        return await opened.run(install)


def _install(cluster: ClusterSettings, connection: "Connection") -> int:
    """Create missing tables in the database, and return its number of shards; blocking."""
    assert cluster.database is not None
    shown = shown_address(cluster.database.url)
    install_schema(connection, shown, cluster.database.cluster)
    shards = install_servers(connection, cluster.shards, SHARDS)
    if cluster.shards not in {None, shards}:
        raise ServerSetupError(
            f"--shards is {cluster.shards}, but {shown} has {shards} since it was first served;"
            " leave out --shards, or use another database"
        )
    return shards
