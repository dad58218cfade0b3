"""The durable facts of a session, past and present, for any number of readers.

The journal is read once for all readers of a session; new facts are added when they are durable.
Each reader has its own position, so no reader delays another: one that falls far behind reads the
journal again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Final, NoReturn

import msgspec
import trio

from orchestrator.delegation import Encoded, SessionId, encode
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.subscriptions import fact_line

MAX_BUFFERED_FACTS: Final = 20_000
"""How many facts of a session are buffered for its readers: some 10 MB."""
BATCH_SIZE: Final = 500
"""How many facts a reader gets, or are encoded, before other tasks have a turn."""


class FactLine(msgspec.Struct, frozen=True, gc=False):
    """A durable fact."""

    seq: int
    json: bytes
    """One line: what `--progress=json` writes."""


class _SharedFacts:
    """The buffer that the readers of one session share."""

    def __init__(self) -> None:
        self.facts: deque[FactLine] = deque(maxlen=MAX_BUFFERED_FACTS)
        """The newest ones, oldest first."""
        self.dropped_seq = 0
        """The number of the last fact before these."""
        self.is_loaded = False
        """The journal was read: the buffer continues it without a gap."""
        self.load_lock = trio.Lock()
        self.subscription = ExitStack()
        """Ends with the last reader."""
        self.readers = 0
        self.posted_seq = 0
        """The number of the last fact that was posted since there are readers, durable or not."""
        self.added = trio.lowlevel.ParkingLot()

    def load(self, facts: Sequence[FactLine], *, after: int) -> None:
        """Put the facts of the journal after one before those that have arrived meanwhile."""
        kept = facts[-MAX_BUFFERED_FACTS:]
        is_all = len(kept) == len(facts)
        self.dropped_seq = after if is_all else facts[-len(kept) - 1].seq
        live, self.facts = self.facts, deque(kept, maxlen=MAX_BUFFERED_FACTS)
        self.is_loaded = True
        for fact in live:
            self.add(fact)
        self.added.unpark_all()

    def add(self, fact: FactLine) -> None:
        last = self.facts[-1].seq if self.facts else self.dropped_seq
        if fact.seq <= last:
            return  # the journal had it already
        if len(self.facts) == MAX_BUFFERED_FACTS:
            self.dropped_seq = self.facts[0].seq
        self.facts.append(fact)
        self.added.unpark_all()

    def after(self, seq: int) -> list[FactLine]:
        start = bisect_right(self.facts, seq, key=lambda fact: fact.seq)
        return list(islice(self.facts, start, start + BATCH_SIZE))


class FactFeeds:
    """The feeds of all sessions that have readers."""

    def __init__(self, book: Bookkeeper) -> None:
        self._book = book
        self._pending: deque[tuple[Entry, Encoded]] = deque()
        """Posted facts of sessions with readers that are not durable yet."""
        self._has_pending = trio.Event()
        self._shared: dict[SessionId, _SharedFacts] = {}

    @property
    def sessions(self) -> Collection[SessionId]:
        """The sessions that have readers."""
        return self._shared.keys()

    async def publish_forever(self) -> NoReturn:
        """Hand facts to the readers as they become durable, until cancelled."""
        while True:
            await self._has_pending.wait()
            # A fact that is posted during the wait may not be durable after it.
            until = self._book.ledger.last_seq
            await self._book.wait_durable()
            self._publish(until)

    def _receive(self, entry: Entry, encoded: Encoded) -> None:
        self._shared[entry.session].posted_seq = entry.seq
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
    def open(self, session: SessionId, *, after: int = 0) -> Generator["FactFeed"]:
        """Read the facts of a session after one of them, as long as the block lasts."""
        shared = self._shared.get(session)
        if shared is None:
            shared = self._shared[session] = _SharedFacts()
            shared.subscription.enter_context(
                self._book.subscribers.subscribe(self._receive, session=session)
            )
        shared.readers += 1
        try:
            yield FactFeed(self, session, shared, after)
        finally:
            shared.readers -= 1
            if not shared.readers:
                del self._shared[session]
                shared.subscription.close()

    async def read(self, session: SessionId, *, after: int) -> list[FactLine]:
        """Return the facts of a session after one of them, as the journal has them."""
        entries = await self._book.read_entries(session, after=after)
        if len(entries) <= BATCH_SIZE:
            return _lines(entries, after)
        # The facts of a large run take seconds to encode.
        return await trio.to_thread.run_sync(_lines, entries, after)


def _lines(entries: Sequence[Entry], after: int) -> list[FactLine]:
    facts: list[FactLine] = []
    for entry in entries:
        # Facts of no session that precede the session do not concern it.
        if entry.session or facts or after:
            facts.append(FactLine(entry.seq, fact_line(entry, encode(entry.event))))
    return facts


class FactFeed:
    """One reader of the facts of a session."""

    def __init__(
        self, feeds: FactFeeds, session: SessionId, shared: _SharedFacts, after: int
    ) -> None:
        self._feeds = feeds
        self._session = session
        self._shared = shared
        self._backlog: list[FactLine] = []
        """Facts that were read again for this reader alone, newest first."""
        self.seq = after
        """The number of the last fact that was read."""

    async def next(self, *, is_over: Callable[[], bool] = lambda: False) -> Sequence[FactLine]:
        """Wait for unread facts, and return some of them: none if there will be no more.

        Only facts of the session itself change the answer of `is_over`.
        """
        await self._load()
        while not (facts := self._buffered()):
            if self.seq < self._shared.dropped_seq:
                facts = await self._feeds.read(self._session, after=self.seq)
                self._backlog = facts[::-1]
            elif is_over() and self._shared.posted_seq <= self.seq:
                return ()
            else:
                await self._shared.added.park()
        self.seq = facts[-1].seq
        return facts

    def _buffered(self) -> list[FactLine]:
        if self._backlog:
            taken = self._backlog[: -BATCH_SIZE - 1 : -1]
            del self._backlog[-BATCH_SIZE:]
            return taken
        is_dropped = self.seq < self._shared.dropped_seq
        return [] if is_dropped else self._shared.after(self.seq)

    async def _load(self) -> None:
        """Read the journal, unless another reader has done it."""
        # One at a time, so that a thousand readers that come at once cost one reading.
        async with self._shared.load_lock:
            if not self._shared.is_loaded:
                facts = await self._feeds.read(self._session, after=self.seq)
                self._shared.load(facts, after=self.seq)
