"""A simulated server: the real parts of a cluster server on a simulated database and network."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

import attrs
import httpx2
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.kernel.journal.journals import HeldJournal
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.database import open_database
from orchestrator.products.cluster.database.servers import install_servers
from orchestrator.products.cluster.database.wakeups import Bell, Wakeups
from orchestrator.products.cluster.journal.journals import PostgresJournals
from orchestrator.products.server.app import application
from orchestrator.products.server.cluster.cluster_server import ClusterServer
from orchestrator.products.server.cluster.holder import JournalHolder
from orchestrator.products.server.cluster.peers import Peers
from orchestrator.products.server.cluster.placement import Placement
from orchestrator.products.server.cluster.proxy import open_proxy
from orchestrator.products.server.cluster.router import ClusterRouter
from orchestrator.products.server.cluster.session_list import SessionListing
from orchestrator.products.server.cluster.shard_keeper import ShardKeeper
from orchestrator.products.server.server import Server, new_state
from orchestrator.products.server.state import Settings
from tests.chaos.simulation.database import SimulatedPostgres
from tests.chaos.simulation.network import Network, Transport

TOKEN: Final = "a-token-of-the-simulation"
SECRET: Final = b"a secret of the servers"
SERVERS: Final = ("a", "b", "c")
SHARDS: Final = 3
LEASE: Final = 4.0
GRACE: Final = 2.0
_NO_CONNECTIONS: Final = cast("Any", None)
"""The network calls the applications of servers directly."""


class SimulatedWakeups:
    """The channels of one server, which the simulated database rings."""

    def __init__(self, database: SimulatedPostgres, host: str) -> None:
        self._bells: list[tuple[str, Bell]] = []
        database.listen(host, self._ring)

    def _ring(self, channel: str) -> None:
        for name, bell in self._bells:
            if name == channel:
                bell.ring()

    @contextmanager
    def bell(self, channel: str) -> Generator[Bell]:
        made = (channel, Bell())
        self._bells.append(made)
        try:
            yield made[1]
        finally:
            self._bells.remove(made)


@attrs.frozen(kw_only=True)
class World:
    """The parts that all servers share."""

    database: SimulatedPostgres
    network: Network
    agents: Mapping[str, Agent[Any]]
    home: str
    """The folder of their state."""

    @asynccontextmanager
    async def open_orchestrator(self, held: HeldJournal) -> AsyncGenerator[Orchestrator]:
        # Nothing is lent in the simulation.
        held.journal.tenure = None  # type: ignore[misc]
        environ = {"ORCHESTRATOR_HOME": self.home}
        machine = Machine(workspace=self.home, sandbox="none", environ=environ)
        async with open_orchestrator(held.journal, machine=machine) as opened:
            yield opened


@asynccontextmanager
async def open_simulated_server(
    world: World, name: str, life: int
) -> AsyncGenerator[ClusterServer]:
    """Serve shards as long as the block lasts; `life` tells the processes of one host apart."""
    host = f"{name}-{life}"
    address = f"http://{name}"
    database = DatabaseAddress(
        url=f"postgresql://simulated@{host}/simulated",
        lease=LEASE,
        host=name,
        clock=trio.lowlevel.current_clock().current_time,
    )
    journals = PostgresJournals(database)
    settings = Settings(token=TOKEN, may_default_approve=True, cluster_secret=SECRET)
    state = new_state(
        world.agents,
        settings,
        clock=world.database.now,
        redactor=Redactor(),
        sandbox=SandboxChoice("none"),
    )
    state.survives_journals = True
    state.listing = SessionListing(journals)
    with raising_one_error():
        async with (
            open_proxy(SECRET, address, world.database.now) as proxy,
            httpx2.AsyncClient(
                transport=Transport(world.network, name),
                timeout=httpx2.Timeout(None),
                follow_redirects=False,
            ) as client,
            trio.open_nursery() as nursery,
            open_database(database.url, application=f"orchestrator serve {address}") as opened,
        ):
            client.headers.clear()
            proxy._client = client  # its connections are simulated
            holder = JournalHolder(
                state, world.open_orchestrator, {}, nursery, address=address, report=lambda _: None
            )
            shards = await opened.run(lambda it: install_servers(it, SHARDS, SHARDS))
            keeper = ShardKeeper(
                journals,
                holder,
                proxy,
                opened,
                id_=f"{address}#{life}",
                address=address,
                host=name,
                shards=shards,
                lease=LEASE,
                grace=GRACE,
                report=lambda _: None,
            )
            state.placement = Placement(shards)
            state.is_in_touch = keeper.is_in_touch
            state.home_of = ClusterRouter(state.journals, keeper, proxy, state.placement).home_of
            state.peers = Peers(proxy, keeper.addresses)
            await keeper.begin()
            wakeups = cast("Wakeups", SimulatedWakeups(world.database, host))
            nursery.start_soon(keeper.keep_forever, wakeups)
            world.network.apps[name] = application(state)
            try:
                yield ClusterServer(Server(state, _NO_CONNECTIONS, [address]), holder, keeper)
            finally:
                world.network.apps.pop(name, None)
                state.is_draining = True
            nursery.cancel_scope.cancel(reason="the server is closed")
