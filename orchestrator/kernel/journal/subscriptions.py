"""Subscriptions to facts: the one way to be notified of a post.

The post itself calls a subscriber, before the fact is durable. A subscriber must not wait and must
not post. `FactQueue` hands facts over to another task, and `FactFeed` (`fact_feed.py`) hands over
durable facts only, after those that the journal already has.
"""

from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import trio

from orchestrator.delegation import Encoded, SessionId
from orchestrator.delegation.events import Entry, Event

ReceiveFact: TypeAlias = Callable[[Entry, Encoded], None]
"""Takes a fact, and its stored form."""


class FactSubscribers:
    """The subscribers to the facts of one journal."""

    def __init__(self) -> None:
        self.to_all: list[ReceiveFact] = []
        self.to_kind: dict[type[Event], list[ReceiveFact]] = {}
        self.to_session: dict[SessionId, list[ReceiveFact]] = {}

    @contextmanager
    def subscribe(
        self, receive: ReceiveFact, *, session: SessionId | None = None
    ) -> Generator[None]:
        """Call `receive` with every fact that is posted, as long as the block lasts.

        `receive` neither waits nor posts. By default it gets the facts of all sessions.
        """
        receivers = self.to_all if session is None else self.to_session.setdefault(session, [])
        receivers.append(receive)
        try:
            yield
        finally:
            receivers.remove(receive)
            if session is not None and not receivers:
                del self.to_session[session]

    @contextmanager
    def subscribe_kinds(
        self, receive: ReceiveFact, kinds: Collection[type[Event]]
    ) -> Generator[None]:
        """Call `receive` with the facts of some kinds, as long as the block lasts."""
        for kind in kinds:
            self.to_kind.setdefault(kind, []).append(receive)
        try:
            yield
        finally:
            for kind in kinds:
                self.to_kind[kind].remove(receive)
                if not self.to_kind[kind]:
                    del self.to_kind[kind]

    def notify(self, entry: Entry, encoded: Encoded) -> None:
        """Call the subscribers to a fact."""
        for receive in self.to_all:
            receive(entry, encoded)
        for receive in self.to_kind.get(type(entry.event), ()):
            receive(entry, encoded)
        if self.to_session:
            for receive in self.to_session.get(entry.session, ()):
                receive(entry, encoded)


class FactQueue:
    """The facts since its subscription, each once, for a task that takes them when it can."""

    def __init__(self) -> None:
        self._new: deque[tuple[Entry, Encoded]] = deque()
        self._arrived = trio.Event()

    def put(self, entry: Entry, encoded: Encoded) -> None:
        self._new.append((entry, encoded))
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until a fact was not taken yet."""
        await self._arrived.wait()

    def take(self, *, until: int | None = None) -> list[tuple[Entry, Encoded]]:
        """Return the facts that were not taken yet, up to a number or all, durable or not."""
        taken: list[tuple[Entry, Encoded]] = []
        while self._new and (until is None or self._new[0][0].seq <= until):
            taken.append(self._new.popleft())
        if not self._new:
            self._arrived = trio.Event()
        return taken


def fact_line(entry: Entry, encoded: Encoded) -> bytes:
    """Return a fact as one line of JSON, without a line end."""
    line = {
        "seq": entry.seq,
        "at": entry.at,
        "session": entry.session,
        "kind": encoded.kind,
        "version": encoded.version,
        "body": msgspec.Raw(encoded.body),
    }
    return msgspec.json.encode(line)
