"""Model events of all tasks: text, reasoning, calls and retries while a model answers.

No subscriber slows a model. Events are not stored: the journal has the answer itself.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec
import trio

from orchestrator.agents import ModelEvent
from orchestrator.delegation import TaskId

MAX_BUFFERED_EVENTS: Final = 10_000
"""How many events a channel holds before its reader misses some."""

ReceiveModelEvent: TypeAlias = Callable[[TaskId, ModelEvent], None]


class TaskModelEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the model that answers for a task."""

    task: TaskId
    event: ModelEvent
    missed: int
    """How many events before this one were dropped because the reader was behind."""


class _Channel:
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[TaskModelEvent](MAX_BUFFERED_EVENTS)
        self._missed = 0

    def put(self, task: TaskId, event: ModelEvent) -> None:
        try:
            self.send.send_nowait(TaskModelEvent(task, event, self._missed))
            self._missed = 0
        except trio.WouldBlock:
            self._missed += 1
        except trio.BrokenResourceError:
            pass  # the reader has closed its end before the block has ended


class ModelEventSubscribers:
    """The subscribers to the model events of all tasks."""

    def __init__(self) -> None:
        self._receivers: list[ReceiveModelEvent] = []

    @contextmanager
    def subscribe(self, receive: ReceiveModelEvent) -> Generator[None]:
        """Call `receive` with every event, as long as the block lasts."""
        self._receivers.append(receive)
        try:
            yield
        finally:
            self._receivers.remove(receive)

    @contextmanager
    def open_channel(self) -> Generator[trio.MemoryReceiveChannel[TaskModelEvent]]:
        """Subscribe with a channel; a reader that falls behind misses events."""
        channel = _Channel()
        with channel.send, self.subscribe(channel.put):
            yield channel.receive

    def emit(self, task: TaskId, event: ModelEvent) -> None:
        """Call the subscribers with an event of a task."""
        for receive in self._receivers:
            receive(task, event)
