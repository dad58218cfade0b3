"""Group commit: one flush to the disk for many rows.

While one commit is under way, appended rows wait for the next one: thousands of tasks share the
price of a flush. A commit begins when a task waits for it, or when a row is urgent: what one task
appends in a row shares a flush, too.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import trio

RowT = TypeVar("RowT")

RunInThread: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function in a thread."""

WAKE_AT_ONCE: Final = 50
"""How many tasks go on after a commit before all others get a turn of the event loop."""
MAX_DELAY_SECONDS: Final = 0.05
"""How long rows stay in memory that no task waits for, and that are not urgent."""


class _Progress:
    """How far rows have come: the last one that was appended, handed to a commit, and durable."""

    __slots__ = ("appended", "durable", "taken")

    def __init__(self) -> None:
        self.appended = 0
        self.taken = 0
        self.durable = 0


class GroupCommit(Generic[RowT]):
    """Hands rows to a blocking `commit` in a worker thread, as many at a time as there are."""

    def __init__(
        self, commit: Callable[[Sequence[RowT]], None], *, in_thread: RunInThread | None = None
    ) -> None:
        """Write rows with `commit`, which blocks, in a thread."""
        self._commit = commit
        self._in_thread = in_thread or trio.to_thread.run_sync
        self.turn = trio.Lock()
        """Held during a commit: what else writes takes turns with commits."""
        self.commits = 0
        """The number of commits so far: each is a flush to the disk."""
        self._pending: list[RowT] = []
        self._numbered = _Progress()
        """The numbers of the rows that have one."""
        self._rows = _Progress()
        """How many rows there are, with a number or without."""
        self._broken: Exception | None = None
        self._appended = trio.Event()
        self._wanted = trio.Event()
        self._committed = trio.lowlevel.ParkingLot()

    def append(self, seq: int, row: RowT, *, urgent: bool = False) -> None:
        """Take the next row; if `urgent`, its commit begins whether a task waits for it or not."""
        self._numbered.appended = seq
        # As `append_unnumbered`, without a call: every fact comes here.
        if not self._pending:
            self._appended.set()
        self._pending.append(row)
        self._rows.appended += 1
        if urgent:
            self._wanted.set()

    def append_unnumbered(self, row: RowT) -> None:
        """Take a row without a number: it shares the commit of those just before it."""
        if not self._pending:
            self._appended.set()
        self._pending.append(row)
        self._rows.appended += 1

    async def wait_durable(self, seq: int) -> None:
        """Wait until the row of this number is durable."""
        await self._wait(self._numbered, seq)

    async def wait_all_durable(self) -> None:
        """Wait until all appended rows are durable."""
        await self._wait(self._rows, self._rows.appended)

    async def _wait(self, progress: "_Progress", number: int) -> None:
        if progress.durable >= number:
            await trio.lowlevel.checkpoint()
            return
        while True:
            if self._broken is not None:
                raise self._broken
            if progress.taken < number:
                self._wanted.set()
            await self._committed.park()
            if progress.durable >= number:
                return

    async def commit_forever(self, scope: trio.CancelScope) -> None:
        """Commit appended rows, until the scope is cancelled.

        A commit that fails fails every wait, now and later.
        """
        try:
            with scope:
                while True:
                    await self._appended.wait()
                    if not self._wanted.is_set():
                        with trio.move_on_after(MAX_DELAY_SECONDS):
                            await self._wanted.wait()
                    async with self.turn:
                        self._appended, self._wanted = trio.Event(), trio.Event()
                        for progress in (self._numbered, self._rows):
                            progress.taken = progress.appended
                        batch, self._pending = self._pending, []
                        await self._in_thread(partial(self._commit, batch))
                    self.commits += 1
                    for progress in (self._numbered, self._rows):
                        progress.durable = progress.taken
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
