"""A journal that lives as long as the process: for tests, trials and simulation."""

from collections.abc import Iterable, Mapping, Sequence

import trio

from delegation import Encoded, SessionId, encode
from delegation.events import Entry
from orchestrator.journal.journal import JournalContents


class MemoryJournal:
    """Keeps entries in a list, which is as durable as memory gets."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
    ) -> None:
        self.entries.append(entry)

    async def wait_durable(self, seq: int) -> None:
        # There is nothing to wait for, and whoever waits is about to act, which gives way.
        await trio.lowlevel.checkpoint_if_cancelled()

    async def read(self) -> JournalContents:
        await trio.lowlevel.checkpoint()
        last = self.entries[-1].seq if self.entries else 0
        return JournalContents(entries=tuple(self.entries), last_seq=last)

    async def read_session(self, session: SessionId) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return [entry for entry in self.entries if entry.session in {session, ""}]

    async def read_naming(self, kind: str, id_: str) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        of_that_kind = (it for it in self.entries if type(it.event).__name__ == kind)
        named = f'"{id_}"'.encode()
        return [entry for entry in of_that_kind if named in encode(entry.event).body]
