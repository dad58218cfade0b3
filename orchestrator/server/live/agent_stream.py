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
from orchestrator.server.session_status import AgentMessage, agent_messages
from orchestrator.server.state import ServerState


@attrs.frozen
class PartialText:
    """Some more of what an agent says."""

    item: int
    """Of which of the things that it says: the first is 0."""
    offset: int
    """How many characters of that came before."""
    text: str


@attrs.frozen
class FullText:
    """One thing that an agent has said, as it is kept."""

    item: int
    message: AgentMessage


@attrs.frozen
class _EndOfText:
    """Nothing more will be said."""


AgentText: TypeAlias = PartialText | FullText


class AgentStream:
    """One listener to an agent. `open_speech` gives it."""

    def __init__(self, server: ServerState, session: SessionRecord) -> None:
        self._book = server.book
        self._session = session
        self._queue: deque[PartialText | FullText | _EndOfText] = deque()
        self._arrived = trio.Event()
        self._items = 0
        """How many things it has said."""
        self._model_length = 0
        """How much a model has said of the next one."""
        self._queued_length = 0
        """How much of that was told. A model that is asked again says the same, or better."""
        self._is_over = False
        self._put_new()
        if so_far := server.live_text.text_so_far(session.root.id):
            self.receive_text(so_far)

    async def next(self) -> AgentText | None:
        """Wait for more, and return it: None if nothing more will be said."""
        await self._arrived.wait()
        heard = self._queue[0]
        if not isinstance(heard, PartialText):
            await self._book.wait_durable()
        # Taken last: whoever is cancelled while it waits has missed nothing.
        heard = self._queue[0]
        if isinstance(heard, _EndOfText):
            return None
        self._queue.popleft()
        if isinstance(heard, PartialText):
            heard = self._joined(heard)
        if not self._queue:
            self._arrived = trio.Event()
        return heard

    def _joined(self, piece: PartialText) -> PartialText:
        """Return a piece with all that follow it: a slow listener gets longer ones, not more."""
        texts = [piece.text]
        while (
            self._queue
            and isinstance(more := self._queue[0], PartialText)
            and more.item == piece.item
        ):
            texts.append(more.text)
            self._queue.popleft()
        return PartialText(piece.item, piece.offset, "".join(texts))

    def receive_text(self, text: str | None) -> None:
        """Take some more of what is being said; None if it is said from the beginning again."""
        if text is None:
            self._model_length = 0
            return
        known = max(0, self._queued_length - self._model_length)
        self._model_length += len(text)
        if known < len(text):
            self._put_partial(text[known:])

    def receive_fact(self, entry: Entry) -> None:
        match entry.event:
            case ModelAnswered(task, message) if task == self._session.root.id:
                if message.text:
                    self._put(
                        FullText(self._items, AgentMessage(message.id, message.text))
                    )
                    self._items += 1
                self._model_length = self._queued_length = 0
            case TurnStarted():
                # What the last one was in the midst of, nobody goes on with.
                self._model_length = 0
            case _:
                pass
        if is_over(self._session) and not self._is_over:
            self._put_new()

    def _put_new(self) -> None:
        """Tell whatever was said and not told, and whether that is all."""
        every = agent_messages(self._session)
        for item in range(self._items, len(every)):
            self._put(FullText(item, every[item]))
        self._items = max(self._items, len(every))
        self._is_over = is_over(self._session)
        if self._is_over:
            self._put(_EndOfText())

    def _put_partial(self, text: str) -> None:
        piece = PartialText(self._items, self._queued_length, text)
        self._queued_length += len(text)
        self._put(piece)

    def _put(self, item: PartialText | FullText | _EndOfText) -> None:
        self._queue.append(item)
        self._arrived.set()


@contextmanager
def open_agent_stream(
    server: ServerState, session: SessionRecord
) -> Generator[AgentStream]:
    """Hear what the agent of a session has said and says, as long as the block lasts."""
    speech = AgentStream(server, session)
    with (
        server.feeds.subscribe(session.id, speech.receive_fact),
        server.live_text.subscribe(session.root.id, speech.receive_text),
    ):
        yield speech
