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
from orchestrator.journal.subscriptions import line_of

REMEMBERED: Final = 20_000
"""How many facts of a run are kept for those who read it now: some 10 MB."""
AT_ONCE: Final = 500
"""How many facts a reader gets, and how many are written down, before others have a turn."""


@attrs.frozen
class Fact:
    """A fact that nothing can take back."""

    seq: int
    json: bytes
    """One line: what `--progress=json` writes."""


class _Shared:
    """What those who read one run share."""

    def __init__(self) -> None:
        self.facts: deque[Fact] = deque(maxlen=REMEMBERED)
        """The newest ones, oldest first."""
        self.since = 0
        """The number of the last fact before these."""
        self.is_read = False
        """The journal was read: all that came before is known."""
        self.reading = trio.Lock()
        self.readers = 0
        self.posted = 0
        """The number of the last fact that was posted since somebody reads, safe or not."""
        self.grown = trio.lowlevel.ParkingLot()

    def begin_with(self, facts: Sequence[Fact]) -> None:
        """Learn what the journal has; what came meanwhile is here already."""
        live, self.facts = self.facts, deque(maxlen=REMEMBERED)
        self.is_read = True
        for fact in (*facts, *live):
            self.add(fact)

    def add(self, fact: Fact) -> None:
        last = self.facts[-1].seq if self.facts else self.since
        if fact.seq <= last:
            return  # the journal has told it already
        if len(self.facts) == REMEMBERED:
            self.since = self.facts[0].seq
        self.facts.append(fact)
        self.grown.unpark_all()

    def after(self, seq: int) -> list[Fact]:
        place = bisect_right(self.facts, seq, key=lambda fact: fact.seq)
        return list(islice(self.facts, place, place + AT_ONCE))


class Feeds:
    """Who reads which run now."""

    def __init__(self, book: Bookkeeper) -> None:
        self._book = book
        self._posted: deque[tuple[Entry, Encoded]] = deque()
        """What somebody reads, and is not safe yet."""
        self._has_posted = trio.Event()
        self._shared: dict[SessionId, _Shared] = {}
        self._hearing: dict[SessionId, list[Callable[[Entry], None]]] = {}

    async def run(self) -> NoReturn:
        """Hand facts on as they become safe, until cancelled."""
        self._book.followers.append(self._post)
        try:
            while True:
                await self._has_posted.wait()
                # What is posted while we wait is not safe by then.
                until = self._book.ledger.last_seq
                await self._book.wait_durable()
                self._hand_on(until)
        finally:
            self._book.followers.remove(self._post)

    def _post(self, entry: Entry, encoded: Encoded) -> None:
        for hear in self._hearing.get(entry.session, ()):
            hear(entry)
        shared = self._shared.get(entry.session)
        if shared is not None:
            shared.posted = entry.seq
            self._posted.append((entry, encoded))
            self._has_posted.set()

    def _hand_on(self, until: int) -> None:
        while self._posted and self._posted[0][0].seq <= until:
            entry, encoded = self._posted.popleft()
            shared = self._shared.get(entry.session)
            if shared is not None:
                shared.add(Fact(entry.seq, line_of(entry, encoded)))
        if not self._posted:
            self._has_posted = trio.Event()

    @contextmanager
    def hearing(
        self, session: SessionId, hear: Callable[[Entry], None]
    ) -> Generator[None]:
        """Hear of the facts of a session before they are safe, as long as a block lasts."""
        hearers = self._hearing.setdefault(session, [])
        hearers.append(hear)
        try:
            yield
        finally:
            hearers.remove(hear)
            if not hearers:
                del self._hearing[session]

    @contextmanager
    def open(self, session: SessionId, *, after: int = 0) -> Generator["Feed"]:
        """Read the facts of a session behind one of them, as long as the block lasts."""
        shared = self._shared.setdefault(session, _Shared())
        shared.readers += 1
        try:
            yield Feed(self, session, shared, after)
        finally:
            shared.readers -= 1
            if not shared.readers:
                del self._shared[session]

    async def read(self, session: SessionId) -> list[Fact]:
        """Return all that the journal has of a session."""
        entries = await self._book.read_entries(session)
        facts: list[Fact] = []
        for entry in entries:
            # What was of no session before it began is nothing to it.
            if entry.session or facts:
                facts.append(Fact(entry.seq, line_of(entry, encode(entry.event))))
            if len(facts) % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return facts


class Feed:
    """One reader of a run. `Feeds.open` gives it."""

    def __init__(
        self, feeds: Feeds, session: SessionId, shared: _Shared, after: int
    ) -> None:
        self._feeds = feeds
        self._session = session
        self._shared = shared
        self._missed: list[Fact] = []
        """What was read again for this reader alone, newest first."""
        self.seq = after
        """The number of the last fact that was read."""

    async def next(
        self, *, is_over: Callable[[], bool] = lambda: False
    ) -> Sequence[Fact]:
        """Wait for facts that were not read, and return some: none if there will be no more.

        Args:
            is_over: tells whether the facts so far are all; only those of this session change it.
        """
        await self._share()
        while not (facts := self._known()):
            if self.seq < self._shared.since:
                every = await self._feeds.read(self._session)
                self._missed = [fact for fact in every if fact.seq > self.seq][::-1]
            elif is_over() and self._shared.posted <= self.seq:
                return ()
            else:
                await self._shared.grown.park()
        self.seq = facts[-1].seq
        return facts

    def _known(self) -> list[Fact]:
        if self._missed:
            taken = self._missed[: -AT_ONCE - 1 : -1]
            del self._missed[-AT_ONCE:]
            return taken
        return [] if self.seq < self._shared.since else self._shared.after(self.seq)

    async def _share(self) -> None:
        """Read the journal, unless another reader has done it."""
        # Only one reads at a time, so that a thousand who come at once cost one reading.
        async with self._shared.reading:
            if not self._shared.is_read:
                self._shared.begin_with(await self._feeds.read(self._session))
