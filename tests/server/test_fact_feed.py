"""Feeds of facts: only durable facts are read, and a feed has an end."""

import math
from collections.abc import Sequence

import trio
from trio.testing import wait_all_tasks_blocked

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry, MessageReceived, SessionClosed
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import Settings
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


async def test_facts_posted_during_a_commit_wait_for_the_next_one() -> None:
    disk = SlowDisk()
    agents = {"worker": worker()}
    async with (
        open_orchestrator(disk) as orchestrator,
        open_server_state(orchestrator, agents, Settings(token="t" * 16)) as state,
    ):
        book = orchestrator._engine.book
        session = state.journals.first.door.open_conversation(agents["worker"]).id
        with state.journals.first.read.feed(session) as feed:
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


async def test_the_last_fact_of_a_feed_precedes_its_end() -> None:
    disk = SlowDisk()
    agents = {"worker": worker()}
    async with (
        open_orchestrator(disk) as orchestrator,
        open_server_state(orchestrator, agents, Settings(token="t" * 16)) as state,
    ):
        book = orchestrator._engine.book
        session = state.journals.first.door.open_conversation(agents["worker"]).id

        def is_over() -> bool:
            return book.ledger.sessions[SessionId(session)].closed

        with state.journals.first.read.feed(session) as feed:
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


class Counted(MemoryJournal):
    """A journal that notes how much was read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        read = await super().read_session(session, after=after)
        self.reads.append((after, len(read)))
        return read


async def test_a_reader_reads_no_more_of_the_journal_than_it_asks_for() -> None:
    disk = Counted()
    agents = {"worker": worker()}
    async with (
        open_orchestrator(disk) as orchestrator,
        open_server_state(orchestrator, agents, Settings(token="t" * 16)) as state,
    ):
        book = orchestrator._engine.book
        session = state.journals.first.door.open_conversation(agents["worker"]).id
        for number in range(20):
            book.post(MessageReceived(session, str(number)))
        last = book.ledger.last_seq
        with (
            state.journals.first.read.feed(session, after=last - 3) as late,
            state.journals.first.read.feed(session) as early,
        ):
            newest = await late.next()
            every = await early.next()
            book.post(MessageReceived(session, "more"))
            (more,) = await late.next()
            (again,) = await early.next()

    assert [fact.seq for fact in newest] == [last - 2, last - 1, last]
    assert every[-3:] == newest
    assert len(every) == 21
    assert more == again
    assert disk.reads == [(last - 3, 3), (0, 21)]
