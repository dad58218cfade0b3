"""Feeds of facts: only durable facts are read, and a feed has an end."""

import math

import trio
from trio.testing import wait_all_tasks_blocked

from delegation import SessionId
from delegation.events import MessageReceived, SessionClosed
from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.server.server import open_server_state
from orchestrator.server.state import Settings
from tests.kit import worker


class SlowDisk(MemoryJournal):
    """A journal that is as far as a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.safe: float = math.inf
        self._waiting = trio.lowlevel.ParkingLot()

    async def wait_durable(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        while self.safe < seq:
            await self._waiting.park()

    def write(self, until: float) -> None:
        self.safe = until
        self._waiting.unpark_all()


async def test_what_is_posted_while_the_disk_works_waits_for_the_next_time() -> None:
    disk = SlowDisk()
    agents = {"worker": worker()}
    async with (
        open_orchestrator(disk) as orchestrator,
        open_server_state(orchestrator, agents, Settings(token="t" * 16)) as state,
    ):
        book = orchestrator.services.book
        session = state.door.open_conversation(agents["worker"], {}).id
        with state.read.feed(session) as feed:
            (opened,) = await feed.next()
            disk.write(until=opened.seq)
            book.post(MessageReceived(session, "first"))
            await wait_all_tasks_blocked()
            book.post(MessageReceived(session, "second"))
            disk.write(until=opened.seq + 1)
            first = await feed.next()
            with trio.move_on_after(1) as waiting:
                await feed.next()
            disk.write(until=math.inf)
            second = await feed.next()

    assert [fact.seq for fact in first] == [opened.seq + 1]
    assert waiting.cancelled_caught
    assert [fact.seq for fact in second] == [opened.seq + 2]


async def test_the_last_fact_comes_before_the_end_whatever_the_disk_does() -> None:
    disk = SlowDisk()
    agents = {"worker": worker()}
    async with (
        open_orchestrator(disk) as orchestrator,
        open_server_state(orchestrator, agents, Settings(token="t" * 16)) as state,
    ):
        book = orchestrator.services.book
        session = state.door.open_conversation(agents["worker"], {}).id

        def is_over() -> bool:
            return book.ledger.sessions[SessionId(session)].closed

        with state.read.feed(session) as feed:
            (opened,) = await feed.next()
            disk.write(until=opened.seq)
            book.post(SessionClosed(session))
            with trio.move_on_after(1) as waiting:
                await feed.next(is_over=is_over)
            disk.write(until=math.inf)
            last = await feed.next(is_over=is_over)
            nothing = await feed.next(is_over=is_over)

    assert waiting.cancelled_caught
    assert [fact.seq for fact in last] == [opened.seq + 1]
    assert list(nothing) == []
