"""Hearing models as they answer: words, thoughts, calls, retries.

Nobody who listens slows a model. What happens is not kept: the journal has the answer itself.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from agents import ModelEvent
from delegation import TaskId

MAX_BUFFERED_EVENTS: Final = 10_000
"""How many events a listener may be behind before it misses some."""


@attrs.frozen
class TaskModelEvent:
    """Something that happened while a model answered for a task."""

    task: TaskId
    event: ModelEvent
    missed: int
    """How many events before this one were dropped, because nobody took them in time."""


class _Subscriber:
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[TaskModelEvent](
            MAX_BUFFERED_EVENTS
        )
        self._missed = 0

    def put(self, task: TaskId, event: ModelEvent) -> None:
        try:
            self.send.send_nowait(TaskModelEvent(task, event, self._missed))
            self._missed = 0
        except trio.WouldBlock:
            self._missed += 1
        except trio.BrokenResourceError:
            pass  # it has closed its ears before the block has ended


class ModelEventSubscribers:
    """Everybody who listens now."""

    def __init__(self) -> None:
        self._subscribers: set[_Subscriber] = set()
        self._callbacks: list[Callable[[TaskId, ModelEvent], None]] = []

    @contextmanager
    def subscribe(self) -> Generator[trio.MemoryReceiveChannel[TaskModelEvent]]:
        listener = _Subscriber()
        self._subscribers.add(listener)
        try:
            yield listener.receive
        finally:
            self._subscribers.remove(listener)
            listener.send.close()

    @contextmanager
    def subscribe_callback(
        self, callback: Callable[[TaskId, ModelEvent], None]
    ) -> Generator[None]:
        """Hear everything at once, as long as the block lasts.

        Args:
            hear: takes each event, and waits for nothing.
        """
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def emit(self, task: TaskId, event: ModelEvent) -> None:
        """Tell everybody who listens of a task."""
        for listener in self._subscribers:
            listener.put(task, event)
        for hear in self._callbacks:
            hear(task, event)
