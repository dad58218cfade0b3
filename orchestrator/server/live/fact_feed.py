"""The facts of a run as they become safe, for any number of readers.

What has happened is read from the journal once for all who read at the same time; what happens is
handed on when no crash can take it back. A reader has a place of its own, so nobody waits for it:
whoever falls far behind reads from the journal again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, NoReturn

import attrs
import trio

from delegation import Encoded, SessionId, encode
from delegation.events import Entry
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.journal.subscriptions import fact_line

REMEMBERED: Final = 20_000
"""How many facts of a run are kept for those who read it now: some 10 MB."""
AT_ONCE: Final = 500
"""How many facts a reader gets, and how many are written down, before others have a turn."""


@attrs.frozen
class FactLine:
    """A fact that nothing can take back."""

    seq: int
    json: bytes
    """One line: what `--progress=json` writes."""


class _SharedFacts:
    """What those who read one run share."""

    def __init__(self) -> None:
        self.facts: deque[FactLine] = deque(maxlen=REMEMBERED)
        """The newest ones, oldest first."""
        self.since = 0
        """The number of the last fact before these."""
        self.is_loaded = False
        """The journal was read: all that came before is known."""
        self.load_lock = trio.Lock()
        self.readers = 0
        self.posted = 0
        """The number of the last fact that was posted since somebody reads, safe or not."""
        self.added = trio.lowlevel.ParkingLot()

    def load(self, facts: Sequence[FactLine]) -> None:
        """Learn what the journal has; what came meanwhile is here already."""
        live, self.facts = self.facts, deque(maxlen=REMEMBERED)
        self.is_loaded = True
        for fact in (*facts, *live):
            self.add(fact)

    def add(self, fact: FactLine) -> None:
        last = self.facts[-1].seq if self.facts else self.since
        if fact.seq <= last:
            return  # the journal has told it already
        if len(self.facts) == REMEMBERED:
            self.since = self.facts[0].seq
        self.facts.append(fact)
        self.added.unpark_all()

    def after(self, seq: int) -> list[FactLine]:
        place = bisect_right(self.facts, seq, key=lambda fact: fact.seq)
        return list(islice(self.facts, place, place + AT_ONCE))


class FactFeeds:
    """Who reads which run now."""

    def __init__(self, book: Bookkeeper) -> None:
        self._book = book
        self._pending: deque[tuple[Entry, Encoded]] = deque()
        """What somebody reads, and is not safe yet."""
        self._has_pending = trio.Event()
        self._shared: dict[SessionId, _SharedFacts] = {}
        self._subscribers: dict[SessionId, list[Callable[[Entry], None]]] = {}

    async def publish_forever(self) -> NoReturn:
        """Hand facts on as they become safe, until cancelled."""
        self._book.subscribers.append(self._receive)
        try:
            while True:
                await self._has_pending.wait()
                # What is posted while we wait is not safe by then.
                until = self._book.ledger.last_seq
                await self._book.wait_durable()
                self._publish(until)
        finally:
            self._book.subscribers.remove(self._receive)

    def _receive(self, entry: Entry, encoded: Encoded) -> None:
        for hear in self._subscribers.get(entry.session, ()):
            hear(entry)
        shared = self._shared.get(entry.session)
        if shared is not None:
            shared.posted = entry.seq
            self._pending.append((entry, encoded))
            self._has_pending.set()

    def _publish(self, until: int) -> None:
        while self._pending and self._pending[0][0].seq <= until:
            entry, encoded = self._pending.popleft()
            shared = self._shared.get(entry.session)
            if shared is not None:
                shared.add(FactLine(entry.seq, fact_line(entry, encoded)))
        if not self._pending:
            self._has_pending = trio.Event()

    @contextmanager
    def subscribe(
        self, session: SessionId, receive: Callable[[Entry], None]
    ) -> Generator[None]:
        """Hear of the facts of a session before they are safe, as long as a block lasts."""
        hearers = self._subscribers.setdefault(session, [])
        hearers.append(receive)
        try:
            yield
        finally:
            hearers.remove(receive)
            if not hearers:
                del self._subscribers[session]

    @contextmanager
    def open(self, session: SessionId, *, after: int = 0) -> Generator["FactFeed"]:
        """Read the facts of a session behind one of them, as long as the block lasts."""
        shared = self._shared.setdefault(session, _SharedFacts())
        shared.readers += 1
        try:
            yield FactFeed(self, session, shared, after)
        finally:
            shared.readers -= 1
            if not shared.readers:
                del self._shared[session]

    async def read(self, session: SessionId) -> list[FactLine]:
        """Return all that the journal has of a session."""
        entries = await self._book.read_entries(session)
        facts: list[FactLine] = []
        for entry in entries:
            # What was of no session before it began is nothing to it.
            if entry.session or facts:
                facts.append(FactLine(entry.seq, fact_line(entry, encode(entry.event))))
            if len(facts) % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return facts


class FactFeed:
    """One reader of a run. `Feeds.open` gives it."""

    def __init__(
        self, feeds: FactFeeds, session: SessionId, shared: _SharedFacts, after: int
    ) -> None:
        self._feeds = feeds
        self._session = session
        self._shared = shared
        self._backlog: list[FactLine] = []
        """What was read again for this reader alone, newest first."""
        self.seq = after
        """The number of the last fact that was read."""

    async def next(
        self, *, is_over: Callable[[], bool] = lambda: False
    ) -> Sequence[FactLine]:
        """Wait for facts that were not read, and return some: none if there will be no more.

        Args:
            is_over: tells whether the facts so far are all; only those of this session change it.
        """
        await self._share()
        while not (facts := self._known()):
            if self.seq < self._shared.since:
                every = await self._feeds.read(self._session)
                self._backlog = [fact for fact in every if fact.seq > self.seq][::-1]
            elif is_over() and self._shared.posted <= self.seq:
                return ()
            else:
                await self._shared.added.park()
        self.seq = facts[-1].seq
        return facts

    def _known(self) -> list[FactLine]:
        if self._backlog:
            taken = self._backlog[: -AT_ONCE - 1 : -1]
            del self._backlog[-AT_ONCE:]
            return taken
        return [] if self.seq < self._shared.since else self._shared.after(self.seq)

    async def _share(self) -> None:
        """Read the journal, unless another reader has done it."""
        # Only one reads at a time, so that a thousand who come at once cost one reading.
        async with self._shared.load_lock:
            if not self._shared.is_loaded:
                self._shared.load(await self._feeds.read(self._session))
