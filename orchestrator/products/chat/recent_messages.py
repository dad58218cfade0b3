"""The messages that a gateway has taken lately: a platform may send one message twice."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from orchestrator.agents import MessageId

MOST_RECENT: Final = 10_000
"""The number of taken messages that a gateway remembers."""


class RecentMessages:
    """The messages that are being taken, and the last taken ones, so that each is taken once.

    A platform may send one message twice: Slack sends a mention as two events, and repeats an event
    that is not acknowledged in time. The journal has the older messages.
    """

    def __init__(self) -> None:
        self._under_way: dict[MessageId, trio.Event] = {}
        self._taken: dict[MessageId, None] = {}
        """Oldest first."""

    async def take(self, id_: MessageId, take: Callable[[], Awaitable[None]]) -> None:
        """Take a message, unless it was taken before; if it is being taken, wait for that."""
        await trio.lowlevel.checkpoint()
        while (other := self._under_way.get(id_)) is not None:
            await other.wait()
        if id_ in self._taken:
            return
        done = self._under_way[id_] = trio.Event()
        try:
            await take()
            self._taken[id_] = None
            if len(self._taken) > MOST_RECENT:
                del self._taken[next(iter(self._taken))]
        finally:
            del self._under_way[id_]
            done.set()
