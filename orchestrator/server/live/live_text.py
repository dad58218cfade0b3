"""What agents are saying just now, without the secrets in it: for all who listen, also late.

What a model has said so far is kept nowhere else: the journal has answers. It is looked through
once, however many listen, and not before somebody does.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Final, TypeAlias

import attrs
import trio

from agents import ModelEvent, Retrying, Switched, TextDelta
from agents.redaction.streamed_text import StreamRedactor
from delegation import Encoded, SessionId, TaskId, root_of
from delegation.events import (
    Entry,
    ModelAnswered,
    TaskSettled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.doors.http import KIND
from orchestrator.services import Services

BEHIND: Final = 10_000
"""How many words of a run a reader may be behind before it misses some."""

ReceiveText: TypeAlias = Callable[[str | None], None]
"""Takes some more of what an agent says; None if it begins again."""


@attrs.frozen
class TextUpdate:
    """Some more of what the model of a task says."""

    task: TaskId
    text: str


class _LiveAnswer:
    """The answer that the model of one task is in the midst of."""

    def __init__(self, services: Services) -> None:
        self._redactor = services.book.redactor
        self.reset()

    def reset(self) -> None:
        self._stream_redactor = StreamRedactor(self._redactor)
        self._released = StringIO()
        self._unchecked: list[str] = []
        """What nobody has looked through yet."""

    def add(self, text: str) -> None:
        self._unchecked.append(text)

    def take_new(self) -> str:
        """Return what may be told of what was said since the last time."""
        said, self._unchecked = "".join(self._unchecked), []
        told = self._stream_redactor.add(said)
        self._released.write(told)
        return told

    def all_text(self) -> str:
        """Return all that may be told."""
        self.take_new()
        return self._released.getvalue()


class LiveText:
    """The answers that models are in the midst of, for sessions that came in by HTTP."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answers: dict[TaskId, _LiveAnswer] = {}
        self._subscribers: dict[TaskId, list[ReceiveText]] = {}
        self._channels: dict[SessionId, list[trio.MemorySendChannel[TextUpdate]]] = {}

    def text_so_far(self, root: TaskId) -> str:
        """Return what the agent of a session has said of what it says now."""
        return self._answers[root].all_text() if root in self._answers else ""

    @contextmanager
    def collect(self) -> Generator[None]:
        """Hear of all that happens, as long as the block lasts."""
        followers = self._services.book.subscribers
        followers.append(self._receive_fact)
        try:
            with self._services.model_subscribers.subscribe_callback(
                self._receive_model_event
            ):
                yield
        finally:
            followers.remove(self._receive_fact)

    @contextmanager
    def subscribe(self, root: TaskId, receive: ReceiveText) -> Generator[None]:
        """Hear the agent of a session, as long as the block lasts."""
        hearing = self._subscribers.setdefault(root, [])
        hearing.append(receive)
        try:
            yield
        finally:
            hearing.remove(receive)
            if not hearing:
                del self._subscribers[root]

    @contextmanager
    def open_channel(
        self, session: SessionId
    ) -> Generator[trio.MemoryReceiveChannel[TextUpdate]]:
        """Hear everybody in a run, as long as the block lasts."""
        send, receive = trio.open_memory_channel[TextUpdate](BEHIND)
        reading = self._channels.setdefault(session, [])
        reading.append(send)
        try:
            with send, receive:
                yield receive
        finally:
            reading.remove(send)
            if not reading:
                del self._channels[session]

    def _receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        """Keep what a session says in its turn, and forget what the journal keeps."""
        del encoded
        match entry.event:
            case TurnStarted(session) | TurnResumed(session):
                if KIND in self._services.book.ledger.sessions[session].labels:
                    self._answers[root_of(session)] = _LiveAnswer(self._services)
            case TurnEnded(session):
                self._answers.pop(root_of(session), None)
            case TaskSettled(task):
                self._answers.pop(task, None)
            case ModelAnswered(task) if task in self._answers:
                self._answers[task].reset()
            case _:
                pass

    def _receive_model_event(self, task: TaskId, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._add_text(task, text)
            case Retrying() | Switched() if task in self._answers:
                self._answers[task].reset()
                for hear in self._subscribers.get(task, ()):
                    hear(None)
            case _:
                pass

    def _add_text(self, task: TaskId, text: str) -> None:
        session = self._services.book.ledger.tasks[task].session
        readers = self._channels.get(session, ())
        voice = self._answers.get(task)
        if voice is None:
            if not readers:
                return
            voice = self._answers[task] = _LiveAnswer(self._services)
        voice.add(text)
        hearing = self._subscribers.get(task, ())
        if not (hearing or readers) or not (told := voice.take_new()):
            return
        for hear in hearing:
            hear(told)
        for reader in readers:
            # What is only told once is missed by whoever does not take it in time.
            with suppress(trio.WouldBlock):
                reader.send_nowait(TextUpdate(task, told))
