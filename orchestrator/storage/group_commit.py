"""Many entries, one commit.

While one commit is under way, everything that is appended waits for the next one: thousands of
tasks share the price of a single flush to the disk.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import trio

from orchestrator.errors import JournalError

RowT = TypeVar("RowT")


class GroupCommit(Generic[RowT]):
    """Hands rows to a blocking `commit` in a worker thread, as many at a time as there are."""

    def __init__(self, commit: Callable[[Sequence[RowT]], None]) -> None:
        self._commit = commit
        self._pending: list[RowT] = []
        self._appended_seq = 0
        self._durable_seq = 0
        self._broken: Exception | None = None
        self._appended = trio.Event()
        self._committed = trio.lowlevel.ParkingLot()

    def append(self, seq: int, row: RowT) -> None:
        self._pending.append(row)
        self._appended_seq = seq
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

    async def commit_forever(self, scope: trio.CancelScope) -> None:
        """Commit whatever is appended, until the scope is cancelled.

        Nothing can go on once this has failed, so it lets go of everybody who waits.
        """
        try:
            with scope:
                while True:
                    await self._appended.wait()
                    self._appended = trio.Event()
                    seq, batch = self._appended_seq, self._pending
                    self._pending = []
                    await trio.to_thread.run_sync(self._commit, batch)
                    self._durable_seq = seq
                    self._committed.unpark_all()
        except JournalError as exc:
            self.fail(exc)
            raise

    def fail(self, problem: JournalError) -> None:
        """Let everybody who waits, now or later, know that nothing will be committed."""
        self._broken = problem
        self._committed.unpark_all()
