"""What agents are saying just now: for whoever comes in the midst of an answer.

What a model has said so far is kept nowhere else: the journal has answers, and listeners hear what
comes while they listen.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from agents import ModelEvent, Retrying, Switched, TextDelta
from delegation import Encoded, SessionId, TaskId, root_of
from delegation.events import (
    Entry,
    ModelAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.doors.http import KIND
from orchestrator.house import House


class Sayings:
    """The answers that models are in the midst of, for sessions that came in by HTTP."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._said: dict[TaskId, list[str]] = {}
        self._listening: dict[TaskId, ExitStack] = {}

    def of(self, root: TaskId) -> str:
        """Return what the agent of a session has said of what it says now."""
        return "".join(self._said.get(root, ()))

    @contextmanager
    def following(self) -> Generator[None]:
        """Hear of all that happens, as long as the block lasts."""
        followers = self._house.book.followers
        followers.append(self._follow)
        try:
            yield
        finally:
            followers.remove(self._follow)
            for listening in self._listening.values():
                listening.close()

    def _follow(self, entry: Entry, encoded: Encoded) -> None:
        """Listen as long as a session takes a turn, and forget what is kept."""
        del encoded
        match entry.event:
            case TurnStarted(session) | TurnResumed(session):
                self._listen(session)
            case TurnEnded(session) if root_of(session) in self._listening:
                self._listening.pop(root_of(session)).close()
                del self._said[root_of(session)]
            case ModelAnswered(task) if task in self._said:
                self._said[task].clear()
            case _:
                pass

    def _listen(self, id_: SessionId) -> None:
        session = self._house.book.ledger.sessions[id_]
        if KIND in session.labels:
            root = session.root.id
            self._said[root] = []
            self._listening[root] = ExitStack()
            self._listening[root].enter_context(
                self._house.listeners.attend(root, partial(self._hear, root))
            )

    def _hear(self, root: TaskId, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._said[root].append(text)
            case Retrying() | Switched():
                self._said[root].clear()
            case _:
                pass
