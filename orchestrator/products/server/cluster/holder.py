"""Holds journals: each has an orchestrator of its own, from taking the journal to letting it go.

All run in one event loop. When one journal fails, because its lease was lost, only its streams and
waits end with an error, and the server goes on with the other journals.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

import attrs
import trio

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.ports.journals import HeldJournal, JournalStore
from orchestrator.ports.sessions import Orchestrator, Push
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.server import serve_journal, unusable_agents
from orchestrator.products.server.state import ServerState

LAST_SECONDS: Final = 1
"""The most seconds for requests and streams to end when their journal is let go."""

OpenJournal: TypeAlias = Callable[[], AbstractAsyncContextManager[HeldJournal]]
OpenOrchestrator: TypeAlias = Callable[[HeldJournal], AbstractAsyncContextManager[Orchestrator]]


def opening(store: JournalStore, name: str, address: str) -> OpenJournal:
    """Return a function that opens a journal for writing."""

    @asynccontextmanager
    async def open_journal() -> AsyncGenerator[HeldJournal]:
        async with store.open_writer(address=address) as journal:
            yield HeldJournal(name, journal)

    return open_journal


@attrs.define(eq=False)
class _Tenure:
    """The time during which this server holds one journal."""

    served: ServedJournal
    ends: trio.Event = attrs.field(factory=trio.Event)
    grace: float = 0


class JournalHolder:
    """Holds the journals of one server. Their tasks live in the given nursery."""

    def __init__(
        self,
        state: ServerState,
        open_orchestrator: OpenOrchestrator,
        push: Mapping[str, Push],
        nursery: trio.Nursery,
        *,
        address: str,
        report: Callable[[str], None],
    ) -> None:
        """Hold no journal yet; `report` is called when one is taken, lost or let go."""
        self._state = state
        self._open_orchestrator = open_orchestrator
        self._push = push
        self._nursery = nursery
        self._address = address
        self.report: Final = report
        self._grace: float = 0
        self._tenures: dict[str, _Tenure] = {}
        self._taking: set[str] = set()
        self._changed = trio.lowlevel.ParkingLot()
        self._released: list[Callable[[str], None]] = []

    @property
    def _hands_over(self) -> bool:
        """Whether another server goes on with the journals that this one lets go."""
        return self._state.placement is not None

    @property
    def is_draining(self) -> bool:
        """Whether the server lets go of all journals because it ends: it takes no more."""
        return self._state.is_draining

    @property
    def names(self) -> list[str]:
        """The journals that it holds or is about to take, including journals that move away."""
        return [*self._tenures, *self._taking]

    @property
    def served(self) -> list[ServedJournal]:
        return [it.served for it in self._tenures.values()]

    @property
    def staying(self) -> list[ServedJournal]:
        """The journals that do not move away."""
        return [it.served for it in self._tenures.values() if not it.ends.is_set()]

    def start_soon(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a function beside the journals, until the server ends."""
        self._nursery.start_soon(work)

    def on_released(self, receive: Callable[[str], None]) -> None:
        """Call a function with the name of each journal that is let go."""
        self._released.append(receive)

    async def take(self, open_journal: OpenJournal, name: str = "") -> ServedJournal:
        """Open a journal, and go on with its sessions; `name` is its name if known before."""
        self._taking.add(name)
        try:
            served: ServedJournal = await self._nursery.start(self.serve, open_journal)
        finally:
            self._taking.discard(name)
            self._changed.unpark_all()
        return served

    async def serve(
        self, open_journal: OpenJournal, task_status: trio.TaskStatus[ServedJournal]
    ) -> None:
        """Serve a journal until it is let go or lost."""
        await trio.lowlevel.checkpoint()
        has_begun, name = False, ""
        try:
            async with (
                open_journal() as held,
                self._open_orchestrator(held) as orchestrator,
                serve_journal(self._state, orchestrator, self._push, name=held.name) as served,
            ):
                name = held.name
                served.set_lease(held.journal.lease)
                with served.audit.lifetime(self._address):
                    if not len(self._tenures):
                        self._state.unusable_agents = unusable_agents(
                            orchestrator, self._state.agents
                        )
                    tenure = self._tenures[name] = _Tenure(served)
                    if self.is_draining:
                        # The journal was about to be taken when the server began to end.
                        self.release(name, self._grace)
                    has_begun = True
                    task_status.started(served)
                    try:
                        await tenure.ends.wait()
                        await self._let_go(tenure)
                    finally:
                        served.is_moving = self._hands_over
                        served.shutdown.set()
                        with trio.move_on_after(LAST_SECONDS, shield=True):
                            await served.wait_idle()
                        served.end_requests()
        except JournalInUseError as exc:
            if not has_begun:
                raise
            self.report(f"{name} was lost: {exc.problem}")
        except JournalError as exc:
            if not has_begun or not self._state.survives_journals:
                raise
            self.report(f"{name} failed and is let go: {exc.problem}")
        finally:
            if has_begun:
                tenure = self._tenures.pop(name)
                tenure.served.released.set()
                for receive in self._released:
                    receive(name)
            self._changed.unpark_all()

    async def _let_go(self, tenure: _Tenure) -> None:
        """Give running tasks some time to end, and give waiting clients an outcome."""
        await tenure.served.orchestrator.drain(tenure.grace)
        with trio.move_on_after(LAST_SECONDS, shield=True):
            await tenure.served.door.cancel_waiting_runs()

    def release(self, name: str, grace: float) -> None:
        """Begin to hand over a journal; running tasks may go on for `grace` seconds."""
        tenure = self._tenures[name]
        tenure.grace = grace
        tenure.served.is_moving = self._hands_over
        tenure.ends.set()

    async def wait_empty(self) -> None:
        """Wait until no journal is held or being taken."""
        await trio.lowlevel.checkpoint()
        while self._tenures or self._taking:
            await self._changed.park()

    async def wait_changed(self) -> None:
        """Wait until a journal was taken or let go."""
        await self._changed.park()

    # `cli/signals.py` calls the rest.

    @property
    def working(self) -> int:
        return sum(it.orchestrator.working for it in self.served)

    async def drain(self, seconds: float) -> bool:
        """Hand over all journals, and return whether all tasks have ended."""
        self._grace = seconds
        for name in list(self._tenures):
            if not self._tenures[name].ends.is_set():
                self.release(name, seconds)
        with trio.move_on_after(seconds + LAST_SECONDS) as waited:
            await self.wait_empty()
        return not waited.cancelled_caught

    async def abandon(self) -> None:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for it in self.served:
                    nursery.start_soon(it.orchestrator.abandon)
