"""The messages that are being taken, and the last ones that were: each is taken once.

A platform may tell of one message twice at once: Slack tells of a mention as two events, and tells
again what is not acknowledged in time. What was taken long ago, or by an earlier process, is in the
journal.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from orchestrator.agents import MessageId

MOST: Final = 10_000


class RecentMessages:
    """The last messages of a gateway."""

    def __init__(self) -> None:
        self._under_way: dict[MessageId, trio.Event] = {}
        self._taken: dict[MessageId, None] = {}
        """Oldest first."""

    async def take(self, id_: MessageId, take: Callable[[], Awaitable[None]]) -> None:
        """Take a message, unless it was taken; if it is being taken, wait for that."""
        await trio.lowlevel.checkpoint()
        while (other := self._under_way.get(id_)) is not None:
            await other.wait()
        if id_ in self._taken:
            return
        done = self._under_way[id_] = trio.Event()
        try:
            await take()
            self._taken[id_] = None
            if len(self._taken) > MOST:
                del self._taken[next(iter(self._taken))]
        finally:
            del self._under_way[id_]
            done.set()
