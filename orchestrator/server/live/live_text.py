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
from agents.redaction.streamed_text import Withholding
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
from orchestrator.services import House

BEHIND: Final = 10_000
"""How many words of a run a reader may be behind before it misses some."""

Hear: TypeAlias = Callable[[str | None], None]
"""Takes some more of what an agent says; None if it begins again."""


@attrs.frozen
class Uttered:
    """Some more of what the model of a task says."""

    task: TaskId
    text: str


class _Voice:
    """The answer that the model of one task is in the midst of."""

    def __init__(self, house: House) -> None:
        self._redactor = house.book.redactor
        self.begin()

    def begin(self) -> None:
        self._withholding = Withholding(self._redactor)
        self._told = StringIO()
        self._said: list[str] = []
        """What nobody has looked through yet."""

    def say(self, text: str) -> None:
        self._said.append(text)

    def tell(self) -> str:
        """Return what may be told of what was said since the last time."""
        said, self._said = "".join(self._said), []
        told = self._withholding.add(said)
        self._told.write(told)
        return told

    def tell_again(self) -> str:
        """Return all that may be told."""
        self.tell()
        return self._told.getvalue()


class Sayings:
    """The answers that models are in the midst of, for sessions that came in by HTTP."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._voices: dict[TaskId, _Voice] = {}
        self._hearing: dict[TaskId, list[Hear]] = {}
        self._reading: dict[SessionId, list[trio.MemorySendChannel[Uttered]]] = {}

    def of(self, root: TaskId) -> str:
        """Return what the agent of a session has said of what it says now."""
        return self._voices[root].tell_again() if root in self._voices else ""

    @contextmanager
    def following(self) -> Generator[None]:
        """Hear of all that happens, as long as the block lasts."""
        followers = self._house.book.followers
        followers.append(self._follow)
        try:
            with self._house.listeners.attend(self._hear):
                yield
        finally:
            followers.remove(self._follow)

    @contextmanager
    def hearing(self, root: TaskId, hear: Hear) -> Generator[None]:
        """Hear the agent of a session, as long as the block lasts."""
        hearing = self._hearing.setdefault(root, [])
        hearing.append(hear)
        try:
            yield
        finally:
            hearing.remove(hear)
            if not hearing:
                del self._hearing[root]

    @contextmanager
    def reading(
        self, session: SessionId
    ) -> Generator[trio.MemoryReceiveChannel[Uttered]]:
        """Hear everybody in a run, as long as the block lasts."""
        send, receive = trio.open_memory_channel[Uttered](BEHIND)
        reading = self._reading.setdefault(session, [])
        reading.append(send)
        try:
            with send, receive:
                yield receive
        finally:
            reading.remove(send)
            if not reading:
                del self._reading[session]

    def _follow(self, entry: Entry, encoded: Encoded) -> None:
        """Keep what a session says in its turn, and forget what the journal keeps."""
        del encoded
        match entry.event:
            case TurnStarted(session) | TurnResumed(session):
                if KIND in self._house.book.ledger.sessions[session].labels:
                    self._voices[root_of(session)] = _Voice(self._house)
            case TurnEnded(session):
                self._voices.pop(root_of(session), None)
            case TaskSettled(task):
                self._voices.pop(task, None)
            case ModelAnswered(task) if task in self._voices:
                self._voices[task].begin()
            case _:
                pass

    def _hear(self, task: TaskId, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._utter(task, text)
            case Retrying() | Switched() if task in self._voices:
                self._voices[task].begin()
                for hear in self._hearing.get(task, ()):
                    hear(None)
            case _:
                pass

    def _utter(self, task: TaskId, text: str) -> None:
        session = self._house.book.ledger.tasks[task].session
        readers = self._reading.get(session, ())
        voice = self._voices.get(task)
        if voice is None:
            if not readers:
                return
            voice = self._voices[task] = _Voice(self._house)
        voice.say(text)
        hearing = self._hearing.get(task, ())
        if not (hearing or readers) or not (told := voice.tell()):
            return
        for hear in hearing:
            hear(told)
        for reader in readers:
            # What is only told once is missed by whoever does not take it in time.
            with suppress(trio.WouldBlock):
                reader.send_nowait(Uttered(task, told))
