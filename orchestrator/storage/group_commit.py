"""Many entries, one commit.

While one commit is under way, everything that is appended waits for the next one: thousands of
tasks share the price of a single flush to the disk.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

import trio

from delegation.events import Entry
from orchestrator.errors import JournalError


class GroupCommit:
    """Hands entries to a blocking `commit` in a worker thread, as many at a time as there are."""

    def __init__(self, commit: Callable[[Sequence[Entry]], None]) -> None:
        self._commit = commit
        self._pending: list[Entry] = []
        self._appended_seq = 0
        self._durable_seq = 0
        self._broken: JournalError | None = None
        self._appended = trio.Event()
        self._committed = trio.lowlevel.ParkingLot()

    def append(self, entry: Entry) -> None:
        self._pending.append(entry)
        self._appended_seq = entry.seq
        self._appended.set()

    async def wait_durable(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        while self._durable_seq < seq:
            if self._broken is not None:
                raise self._broken
            await self._committed.park()

    async def wait_all_durable(self) -> None:
        """Wait until everything that was appended is safe."""
        await self.wait_durable(self._appended_seq)

    async def commit_forever(self) -> NoReturn:
        """Commit whatever is appended. Nothing can go on once this has failed."""
        while True:
            await self._appended.wait()
            self._appended = trio.Event()
            batch, self._pending = self._pending, []
            try:
                await trio.to_thread.run_sync(self._commit, batch)
            except JournalError as exc:
                self._broken = exc
                self._committed.unpark_all()
                raise
            self._durable_seq = batch[-1].seq
            self._committed.unpark_all()
