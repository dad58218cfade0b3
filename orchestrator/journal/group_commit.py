"""Group commit: one flush to the disk for many rows.

While one commit is under way, appended rows wait for the next one: thousands of tasks share the
price of a flush. A commit begins when a task waits for it, or when a row is urgent: what one task
appends in a row shares a flush, too.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import trio

RowT = TypeVar("RowT")

WAKE_AT_ONCE: Final = 50
"""How many tasks go on after a commit before all others get a turn of the event loop."""
MAX_DELAY_SECONDS: Final = 0.05
"""How long rows stay in memory that no task waits for, and that are not urgent."""


class GroupCommit(Generic[RowT]):
    """Hands rows to a blocking `commit` in a worker thread, as many at a time as there are."""

    def __init__(self, commit: Callable[[Sequence[RowT]], None]) -> None:
        self._commit = commit
        self.turn = trio.Lock()
        """Held during a commit: what else writes takes turns with commits."""
        self.commits = 0
        """The number of commits so far: each is a flush to the disk."""
        self._pending: list[RowT] = []
        self._appended_seq = 0
        self._taken_seq = 0
        """The last row that was handed to a commit."""
        self._durable_seq = 0
        self._broken: Exception | None = None
        self._appended = trio.Event()
        self._wanted = trio.Event()
        self._committed = trio.lowlevel.ParkingLot()

    def append(self, seq: int, row: RowT, *, urgent: bool = False) -> None:
        """Take the next row.

        Args:
            seq: its number.
            row: handed to the next commit.
            urgent: that commit begins as soon as it can, whether a task waits for it or not.
        """
        self._pending.append(row)
        self._appended_seq = seq
        self._appended.set()
        if urgent:
            self._wanted.set()

    async def wait_durable(self, seq: int) -> None:
        if self._durable_seq >= seq:
            await trio.lowlevel.checkpoint()
            return
        while True:
            if self._broken is not None:
                raise self._broken
            if self._taken_seq < seq:
                self._wanted.set()
            await self._committed.park()
            if self._durable_seq >= seq:
                return

    async def wait_all_durable(self) -> None:
        """Wait until all appended rows are durable."""
        await self.wait_durable(self._appended_seq)

    async def commit_forever(self, scope: trio.CancelScope) -> None:
        """Commit appended rows, until the scope is cancelled.

        A commit that fails fails every wait, now and later.
        """
        try:
            with scope:
                while True:
                    await self._appended.wait()
                    with trio.move_on_after(MAX_DELAY_SECONDS):
                        await self._wanted.wait()
                    async with self.turn:
                        self._appended, self._wanted = trio.Event(), trio.Event()
                        self._taken_seq = seq = self._appended_seq
                        batch, self._pending = self._pending, []
                        await trio.to_thread.run_sync(self._commit, batch)
                    self.commits += 1
                    self._durable_seq = seq
                    await self._wake()
        except Exception as exc:
            self.fail(exc)
            raise

    async def _wake(self) -> None:  # noqa: ASYNC910 (most commits wake a few tasks)
        """Wake the tasks that wait now, some at a time: thousands at once would stall the loop."""
        waiting = len(self._committed)
        while waiting > 0:
            self._committed.unpark(count=WAKE_AT_ONCE)
            waiting -= WAKE_AT_ONCE
            if waiting > 0:
                await trio.lowlevel.checkpoint()

    def fail(self, problem: Exception) -> None:
        """Raise an error from every wait, now and later: nothing more is committed.

        The first one stays: what fails after it is its consequence.
        """
        self._broken = self._broken or problem
        self._committed.unpark_all()
