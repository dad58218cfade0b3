"""Facts as they become true, for whoever writes them somewhere else.

Nobody who posts a fact waits for that: it is only put aside until somebody takes it.
"""

from collections import deque

import msgspec
import trio

from delegation import Encoded
from delegation.events import Entry


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


class FactSubscription:
    """The facts since somebody began to follow, each once. `Orchestrator.follow` gives them."""

    def __init__(self) -> None:
        self._new: deque[tuple[Entry, Encoded]] = deque()
        self._arrived = trio.Event()

    def put(self, entry: Entry, encoded: Encoded) -> None:
        self._new.append((entry, encoded))
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until there are any that nobody has taken."""
        await self._arrived.wait()

    def take(self, *, until: int | None = None) -> list[tuple[Entry, Encoded]]:
        """Return those that nobody has taken: each fact, and how it is kept.

        Args:
            until: the number of the last one; by default all there are, durable or not.
        """
        taken: list[tuple[Entry, Encoded]] = []
        while self._new and (until is None or self._new[0][0].seq <= until):
            taken.append(self._new.popleft())
        if not self._new:
            self._arrived = trio.Event()
        return taken
