"""The port of a work queue: the foreign engine that hands dispatches to workers.

A queue delivers at least once and decides nothing. `tests/workers/contract` tests its duties.
"""

from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from orchestrator.products.cluster.work.dispatch import Dispatch, Tenure, WorkerId


class Delivery(Protocol):
    """A dispatch in the hands of a worker, whose claim is kept while the worker lives."""

    @property
    def dispatch(self) -> Dispatch: ...

    async def finish(self) -> None:
        """Say that the attempt is over, whatever became of it: it is delivered no more."""
        ...


class WorkQueue(Protocol):
    """Hands dispatches to workers. Two places never mix."""

    async def send(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        """Send dispatches of the writer's journal; they are durable on return.

        A dispatch that was sent before, with the same id and attempt, is not sent again. Raise
        `JournalInUseError` if another process writes the journal, so nothing was sent.
        """
        ...

    async def withdraw(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        """Take back what no worker has received yet, if possible; raise `JournalInUseError`."""
        ...

    async def stranded(
        self, dispatches: Sequence[Dispatch], live: AbstractSet[WorkerId]
    ) -> Sequence[Dispatch]:
        """Return those that no worker will receive any more.

        Only the dead have received them, or they are over, or they are not there at all.
        """
        ...

    def receive(
        self, worker: WorkerId, place: str, slots: int
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Receive the dispatches of a place, each at least once.

        While `slots` deliveries are unfinished, no further one arrives. Whatever is unfinished at
        the end is delivered again, here or elsewhere.
        """
        ...
