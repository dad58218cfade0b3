"""Events in lanes: in order within a channel, concurrent across channels.

So a file in one channel does not delay another channel. One number tells how far all events are
handled: the last number without an open one before it.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

MOST: Final = 1_000
"""The most unhandled events; beyond, no more are taken."""


class Order(enum.Enum):
    """The order of an event without a channel."""

    AT_ONCE = "at once"
    ALONE = "alone"
    """After all earlier events, and before all later ones."""


Lane: TypeAlias = Order | str
"""The order of an event; the name of a channel means after the events of that channel."""
Handle: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """The events of one connection."""

    def __init__(self, nursery: trio.Nursery, note_handled: Callable[[int], None]) -> None:
        """Handle events; `note_handled` gets the number of the last event handled in order."""
        self._nursery = nursery
        self._note_handled = note_handled
        self._room = trio.Semaphore(MOST)
        self._unhandled: dict[int, None] = {}
        self._last_number = 0
        self._last_of: dict[str, trio.Event] = {}
        """Set when the last event of a channel has been handled."""
        self._last_alone = trio.Event()
        self._last_alone.set()

    async def put(self, number: int, lane: Lane, handle: Handle) -> None:
        """Handle an event in its order; wait only if too many are unhandled."""
        await self._room.acquire()
        done = trio.Event()
        self._unhandled[number] = None
        self._last_number = number
        before: list[trio.Event] = []
        if lane is Order.ALONE:
            before = [self._last_alone, *self._last_of.values()]
            self._last_of.clear()
            self._last_alone = done
        elif isinstance(lane, str):
            before = [self._last_of.get(lane, self._last_alone)]
            self._last_of[lane] = done
        self._nursery.start_soon(self._handle, number, before, handle, done, lane)

    async def _handle(
        self, number: int, before: list[trio.Event], handle: Handle, done: trio.Event, lane: Lane
    ) -> None:
        for it in before:
            await it.wait()
        await handle()
        done.set()
        if isinstance(lane, str) and self._last_of.get(lane) is done:
            del self._last_of[lane]
        del self._unhandled[number]
        self._room.release()
        first = next(iter(self._unhandled), self._last_number + 1)
        self._note_handled(first - 1)
