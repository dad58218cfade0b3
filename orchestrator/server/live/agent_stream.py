"""What the agent of a session says, while it says it.

What a model says is told as it comes, but for what could be part of a secret. What it has said is
told once more, as it is kept, when no crash can take it back; where the two differ, what is kept is
right.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import attrs
import trio

from delegation import SessionRecord
from delegation.events import Entry, ModelAnswered, TurnStarted
from orchestrator.doors.http import is_over
from orchestrator.server.session_status import Spoken, spoken
from orchestrator.server.state import Office


@attrs.frozen
class Piece:
    """Some more of what an agent says."""

    item: int
    """Of which of the things that it says: the first is 0."""
    offset: int
    """How many characters of that came before."""
    text: str


@attrs.frozen
class Whole:
    """One thing that an agent has said, as it is kept."""

    item: int
    said: Spoken


@attrs.frozen
class _End:
    """Nothing more will be said."""


Heard: TypeAlias = Piece | Whole


class Speech:
    """One listener to an agent. `open_speech` gives it."""

    def __init__(self, office: Office, session: SessionRecord) -> None:
        self._book = office.book
        self._session = session
        self._heard: deque[Piece | Whole | _End] = deque()
        self._arrived = trio.Event()
        self._items = 0
        """How many things it has said."""
        self._said = 0
        """How much a model has said of the next one."""
        self._told = 0
        """How much of that was told. A model that is asked again says the same, or better."""
        self._is_over = False
        self._tell_new()
        if so_far := office.sayings.of(session.root.id):
            self.hear(so_far)

    async def next(self) -> Heard | None:
        """Wait for more, and return it: None if nothing more will be said."""
        await self._arrived.wait()
        heard = self._heard[0]
        if not isinstance(heard, Piece):
            await self._book.wait_durable()
        # Taken last: whoever is cancelled while it waits has missed nothing.
        heard = self._heard[0]
        if isinstance(heard, _End):
            return None
        self._heard.popleft()
        if isinstance(heard, Piece):
            heard = self._joined(heard)
        if not self._heard:
            self._arrived = trio.Event()
        return heard

    def _joined(self, piece: Piece) -> Piece:
        """Return a piece with all that follow it: a slow listener gets longer ones, not more."""
        texts = [piece.text]
        while (
            self._heard
            and isinstance(more := self._heard[0], Piece)
            and more.item == piece.item
        ):
            texts.append(more.text)
            self._heard.popleft()
        return Piece(piece.item, piece.offset, "".join(texts))

    def hear(self, text: str | None) -> None:
        """Take some more of what is being said; None if it is said from the beginning again."""
        if text is None:
            self._said = 0
            return
        known = max(0, self._told - self._said)
        self._said += len(text)
        if known < len(text):
            self._tell_piece(text[known:])

    def learn(self, entry: Entry) -> None:
        match entry.event:
            case ModelAnswered(task, message) if task == self._session.root.id:
                if message.text:
                    self._tell(Whole(self._items, Spoken(message.id, message.text)))
                    self._items += 1
                self._said = self._told = 0
            case TurnStarted():
                # What the last one was in the midst of, nobody goes on with.
                self._said = 0
            case _:
                pass
        if is_over(self._session) and not self._is_over:
            self._tell_new()

    def _tell_new(self) -> None:
        """Tell whatever was said and not told, and whether that is all."""
        every = spoken(self._session)
        for item in range(self._items, len(every)):
            self._tell(Whole(item, every[item]))
        self._items = max(self._items, len(every))
        self._is_over = is_over(self._session)
        if self._is_over:
            self._tell(_End())

    def _tell_piece(self, text: str) -> None:
        piece = Piece(self._items, self._told, text)
        self._told += len(text)
        self._tell(piece)

    def _tell(self, heard: Piece | Whole | _End) -> None:
        self._heard.append(heard)
        self._arrived.set()


@contextmanager
def open_speech(office: Office, session: SessionRecord) -> Generator[Speech]:
    """Hear what the agent of a session has said and says, as long as the block lasts."""
    speech = Speech(office, session)
    with (
        office.feeds.hearing(session.id, speech.learn),
        office.sayings.hearing(session.root.id, speech.hear),
    ):
        yield speech
