"""The port that tells which workers are alive, and which executions they hold, by one clock.

Only liveness depends on it. An execution of a dead worker, or one that a live worker no longer
holds, is sent again as the next attempt; later messages of the old execution are ignored.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs

from orchestrator.products.cluster.work.dispatch import ExecutionId, WorkerId


@attrs.frozen(kw_only=True)
class Beat:
    """The report of a worker about itself, every few seconds."""

    worker: WorkerId
    host: str
    place: str
    slots: int
    version: str
    """That of the file of agents it has loaded."""
    executions: frozenset[ExecutionId] = frozenset()
    """The executions that it holds, from before the first request of an execution on."""


@attrs.frozen(kw_only=True)
class WorkerSeen:
    """A worker as the others see it."""

    beat: Beat
    """Its last report."""
    beats: int
    """How often it has beaten. An execution that began at beat n is in beat n + 2, or lost."""
    since: float
    """For how many seconds it has been there."""
    silent: float
    """For how many seconds it has said nothing."""
    promised: float
    """For how many seconds at most it said it would be silent."""
    alive: bool
    """It is not silent for longer than promised, or it could not have been heard: who reads this
    was connected to the database for a shorter time than that."""


class Presence(Protocol):
    """The list of live workers."""

    async def beat(self, beat: Beat, *, seconds: float) -> None:
        """Report that a worker is alive, and for how many seconds without another beat."""
        ...

    async def leave(self, worker: WorkerId) -> None:
        """Say that a worker has ended: it holds nothing any more."""
        ...

    async def workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that have not left, those that have died of late included.

        After an outage of the database all count as alive until they could have been heard again.
        """
        ...
