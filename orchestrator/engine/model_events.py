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

BEHIND: Final = 10_000
"""How many events a listener may be behind before it misses some."""


@attrs.frozen
class Heard:
    """Something that happened while a model answered for a task."""

    task: TaskId
    event: ModelEvent
    missed: int
    """How many events before this one were dropped, because nobody took them in time."""


class _Listener:
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[Heard](BEHIND)
        self._missed = 0

    def hear(self, task: TaskId, event: ModelEvent) -> None:
        try:
            self.send.send_nowait(Heard(task, event, self._missed))
            self._missed = 0
        except trio.WouldBlock:
            self._missed += 1
        except trio.BrokenResourceError:
            pass  # it has closed its ears before the block has ended


class Listeners:
    """Everybody who listens now."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()
        self._attending: list[Callable[[TaskId, ModelEvent], None]] = []

    @contextmanager
    def listen(self) -> Generator[trio.MemoryReceiveChannel[Heard]]:
        listener = _Listener()
        self._listeners.add(listener)
        try:
            yield listener.receive
        finally:
            self._listeners.remove(listener)
            listener.send.close()

    @contextmanager
    def attend(self, hear: Callable[[TaskId, ModelEvent], None]) -> Generator[None]:
        """Hear everything at once, as long as the block lasts.

        Args:
            hear: takes each event, and waits for nothing.
        """
        self._attending.append(hear)
        try:
            yield
        finally:
            self._attending.remove(hear)

    def tell(self, task: TaskId, event: ModelEvent) -> None:
        """Tell everybody who listens of a task."""
        for listener in self._listeners:
            listener.hear(task, event)
        for hear in self._attending:
            hear(task, event)
