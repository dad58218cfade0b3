"""A journal that lives as long as the process: for tests, trials and simulation."""

from collections.abc import Iterable, Sequence

import trio

from delegation import Encoded
from delegation.events import Entry


class MemoryJournal:
    """Keeps entries in a list, which is as durable as memory gets."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)

    def append(self, entry: Entry, encoded: Encoded) -> None:
        self.entries.append(entry)

    async def wait_durable(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()

    async def read(self) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return tuple(self.entries)
