"""Divides the shards of a database among the servers that are alive.

Each server reads which servers are alive and takes free shards up to its fair share; with more than
that, it hands shards over by draining. No server commands another: each reacts to a new one. The
shard of a dead server is free when its lease ends, and the others look at it at that very time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

import attrs
import trio

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.ports.journals import Journals, Writer, fair_share, is_shard, shard_names
from orchestrator.ports.reads import ID_PATTERN
from orchestrator.products.cluster import ports as cluster
from orchestrator.products.server.cluster.holder import JournalHolder, opening
from orchestrator.products.server.cluster.located_subject import locate, owner_of
from orchestrator.products.server.cluster.proxy import Proxy, may_reach
from orchestrator.products.server.cluster.store_readers import StoreReaders
from orchestrator.products.server.request_subject import Subject, SubjectKind

LOOKS: Final = 3
"""The number of looks at the other servers in one lease."""
AFTER_SECONDS: Final = 0.05
"""The seconds from the end of another's lease to the look at its shard."""
AT_ONCE: Final = 4
"""The number of shards that are opened at the same time."""
_CHANNEL: Final = cluster.channel(*cluster.CHANNEL)


class ShardKeeper:
    """Keeps this server's share of the shards, and knows the writers of the others."""

    def __init__(
        self,
        journals: Journals,
        holder: JournalHolder,
        proxy: Proxy,
        database: cluster.Database,
        *,
        id_: str,
        address: str,
        host: str,
        shards: int,
        lease: float,
        grace: float,
        report: Callable[[str], None],
    ) -> None:
        """Keep no shard yet; `report` is called when a shard is taken, lost or let go."""
        self._report = report
        self._journals = journals
        self._holder = holder
        self._proxy = proxy
        self._database = database
        self._id = id_
        self._address = address
        self._host = host
        self._shards = shards
        self._lease = lease
        self._grace = grace
        self._view = cluster.ClusterView(servers={}, writers={})
        self._networks: dict[tuple[str, str], str] = {}
        """The network names of servers, by address and host: a server that leaves still writes."""
        self._looked = trio.lowlevel.ParkingLot()
        self._is_leaving = False
        self._refused: set[str] = set()
        """The shards that could not be opened, each reported once."""
        self._free_since: dict[str, float] = {}
        """When this server first saw each free shard without a writer."""
        self._overdue: set[str] = set()
        """The shards beyond the share that no other server took, as long as the servers stay."""
        self._openers = trio.CapacityLimiter(AT_ONCE)
        self._readers = StoreReaders()
        self._tell_others = trio.Event()
        holder.on_released(lambda _: self._tell_others.set())

    async def begin(self) -> None:
        """Join the other servers, and take free shards."""
        await self._look()
        await self._database.run(lambda it: cluster.notify(it, _CHANNEL))
        await self._balance()
        await self._look()

    async def keep_forever(self, wakeups: cluster.Wakeups) -> NoReturn:
        """Look at the other servers, take shards and hand them over, until cancelled."""
        with wakeups.bell(_CHANNEL) as bell, raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._notify_forever)
                nursery.start_soon(self._balance_forever)
                while True:
                    await self._wait_due(bell)
                    await self._look()
        raise AssertionError("it is cancelled")

    async def leave(self) -> None:
        """Take no more shards, and tell the others that this server leaves."""
        self._is_leaving = True
        await self._database.run(lambda it: cluster.leave(it, self._id))
        await self._database.run(lambda it: cluster.notify(it, _CHANNEL))

    async def _wait_due(self, bell: cluster.Bell) -> None:
        """Wait until the next look is due, or another server calls."""
        pause = self._lease / LOOKS
        held = self._holder.names
        for name, writer in self._view.writers.items():
            if name not in held:
                pause = min(pause, max(writer.seconds_left, 0) + AFTER_SECONDS)
        await bell.wait(pause)

    async def _look(self) -> None:
        servers = list(self._view.servers)
        self._view = await self._database.run(self._beat_and_read)
        if list(self._view.servers) != servers:
            self._overdue.clear()
        for it in self._view.servers.values():
            self._networks[it.address, it.host] = it.network
        epochs = {name: it.epoch for name, it in self._view.writers.items()}
        self._proxy.end_stale(epochs)
        self._looked.unpark_all()

    def _beat_and_read(self, connection: "cluster.Connection") -> cluster.ClusterView:
        if not self._is_leaving:
            cluster.beat(
                connection, self._id, address=self._address, host=self._host, seconds=self._lease
            )
        return cluster.read_view(connection)

    async def _notify_forever(self) -> NoReturn:
        while True:
            await self._tell_others.wait()
            self._tell_others = trio.Event()
            await self._database.run(lambda it: cluster.notify(it, _CHANNEL))

    async def _balance_forever(self) -> NoReturn:
        while True:
            await self._looked.park()
            await self._balance()

    async def _balance(self) -> None:
        """Hand over surplus shards, or take missing ones."""
        await trio.lowlevel.checkpoint()
        servers = list(self._view.servers)
        if self._is_leaving or self._id not in servers:
            return
        share = fair_share(self._shards, len(servers), servers.index(self._id))
        staying = [it for it in self._holder.staying if is_shard(it.name)]
        # The shards with the fewest running tasks are handed over first.
        staying.sort(key=lambda it: (it.name in self._overdue, it.orchestrator.working))
        kept = max(share, len([it for it in staying if it.name in self._overdue]))
        for journal in staying[: max(0, len(staying) - kept)]:
            self._holder.release(journal.name, self._grace)
        held = self._holder.names
        free = [
            name
            for name in shard_names(self._shards)
            if name not in self._view.writers and name not in held
        ]
        # Shards that could not be opened come last, so that the others are taken.
        free.sort(key=lambda name: name in self._refused)
        now = trio.current_time()
        self._free_since = {name: self._free_since.get(name, now) for name in free}
        taken = free[: max(0, share - len(staying))]
        # No other server takes these: it may be cut off, or older than their facts.
        late = [it for it in free if it not in taken and self._free_since[it] < now - self._lease]
        self._overdue.update(it for it in late if it not in self._refused)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for name in (*taken, *late):
                    nursery.start_soon(self._take, name)

    async def _take(self, name: str) -> None:
        async with self._openers:
            if self._is_leaving:
                return
            try:
                store = self._journals.store(name)
                await self._holder.take(opening(store, name, self._address), name)
            except JournalInUseError:
                return  # another server came first
            except JournalError as exc:
                if name not in self._refused:
                    self._report(f"{name} cannot be taken: {exc.problem}")
                self._refused.add(name)
            else:
                self._refused.discard(name)

    def is_in_touch(self) -> bool:
        """Return whether the database has answered a statement of the last half of a lease."""
        return trio.current_time() - self._database.answered_at <= self._lease / 2

    # The directory of `ClusterRouter`.

    async def locate(self, subject: Subject) -> str | None:
        if not ID_PATTERN.fullmatch(subject.id):
            await trio.lowlevel.checkpoint()
            return None
        if subject.kind is SubjectKind.SESSION:
            return await self._database.ask(lambda it: cluster.find_journal(it, subject.id))
        return await self._readers.read(partial(locate, self._journals, subject))

    async def owner(self, journal: str, subject: Subject) -> str | None:
        return await self._readers.read(partial(owner_of, self._journals, journal, subject))

    async def writer(self, journal: str) -> Writer | None:
        await trio.lowlevel.checkpoint()
        if not is_shard(journal):
            other = await self._readers.read(self._journals.store(journal).writer)
            return None if other is None else self._with_network(other)
        found = self._view.writers.get(journal)
        me = (self._address, self._host)
        if found is None or (found.address, found.host) == me:
            return None  # the shard was let go since the last look
        return self._with_network(
            Writer(
                process=found.process,
                host=found.host,
                address=found.address,
                epoch=found.epoch,
                seconds_left=found.seconds_left,
            )
        )

    def _with_network(self, writer: Writer) -> Writer:
        """Add the network name of its machine to a writer that is a server."""
        known = self._networks.get((writer.address, writer.host), "")
        return attrs.evolve(writer, network=known)

    async def take(self, journal: str) -> bool:
        await trio.lowlevel.checkpoint()
        if self._is_leaving or is_shard(journal) or journal in self._holder.names:
            return False  # shards are taken by their share
        try:
            store = self._journals.store(journal)
            await self._holder.take(opening(store, journal, self._address), journal)
        except JournalInUseError:
            return False
        return True

    async def wait_changed(self) -> None:
        """Wait for the next look, or until this server takes or lets go of a journal."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:

                async def wait_looked() -> None:
                    await self._looked.park()
                    nursery.cancel_scope.cancel(reason="there was another look")

                nursery.start_soon(wait_looked)
                await self._holder.wait_changed()
                nursery.cancel_scope.cancel(reason="the journals have changed")

    async def addresses(self) -> Sequence[str]:
        """Return the addresses of the other servers that can be reached from here."""
        await trio.lowlevel.checkpoint()
        found = cluster.others(self._view, self._id)
        return [it.address for it in found if may_reach(it.address, it.network)]
