"""The messages of a session's agent, while the model writes them.

Text is streamed as it comes, except text that may belong to an unfinished secret. A finished
message is streamed once more from the journal when it is durable; where the two differ, the journal
is right.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.delegation import Encoded, SessionRecord
from orchestrator.delegation.events import Entry, ModelAnswered, TurnEnded, TurnStarted
from orchestrator.ports.sessions import is_over
from orchestrator.products.server import session_status
from orchestrator.products.server.request_state import RequestState
from orchestrator.products.server.served_journal import ServedJournal


class PartialText(msgspec.Struct, frozen=True, gc=False):
    """The next text of an unfinished message."""

    item: int
    """The index of the message."""
    offset: int
    """The number of characters of the message before this text."""
    text: str
    is_reasoning: bool = False


class FullText(msgspec.Struct, frozen=True, gc=False):
    """A finished message from the journal."""

    item: int
    message: session_status.AgentMessage


class _EndOfText(msgspec.Struct, frozen=True, gc=False):
    """Marks the end: there are no more messages."""


AgentText: TypeAlias = PartialText | FullText


class AgentStream:
    """One reader of an agent's messages. `open_agent_stream` makes it."""

    def __init__(self, journal: ServedJournal, session: SessionRecord) -> None:
        self._read = journal.read
        self._session = session
        self._queue: deque[PartialText | FullText | _EndOfText] = deque()
        self._arrived = trio.Event()
        self._items = 0
        """The number of finished messages."""
        self._model_length = 0
        """The number of characters that the model has written of the next message."""
        self._queued_length = 0
        """The number of them that were queued: a model that is called again repeats them."""
        self._is_over = False
        self._opening = session.state(RequestState).opening
        """The first characters of an answer in JSON."""
        self._is_shown: bool | None = None
        """Whether the message is shown; None if it has not begun."""
        self._blank: str = ""
        """The white space of a message that has not begun."""
        self._thought_length = 0
        """The number of queued characters of the reasoning before the next message."""
        self._model_thought_length = 0
        """The characters of the model's reasoning, which a repeated call repeats."""
        self._begin_message()
        self._put_new()
        if thought := journal.live_text.reasoning_so_far(session.root.id):
            self.receive_reasoning(thought)
        if so_far := journal.live_text.text_so_far(session.root.id):
            self.receive_text(so_far)

    async def next(self) -> AgentText | None:
        """Wait for the next text or message; return None if no more will come."""
        await self._arrived.wait()
        if not isinstance(self._queue[0], PartialText):
            await self._read.wait_durable()
        # Taken last: a reader that is cancelled during the wait misses no message.
        item = self._queue[0]
        if isinstance(item, _EndOfText):
            return None
        self._queue.popleft()
        if isinstance(item, PartialText):
            item = self._joined(item)
        if not self._queue:
            self._arrived = trio.Event()
        return item

    def _joined(self, piece: PartialText) -> PartialText:
        """Join a piece with all pieces that follow it: a slow reader gets longer pieces."""
        if not self._queue:
            return piece
        texts = [piece.text]
        while (
            self._queue
            and isinstance(more := self._queue[0], PartialText)
            and more.item == piece.item
            and more.is_reasoning == piece.is_reasoning
        ):
            texts.append(more.text)
            self._queue.popleft()
        return replace(piece, text="".join(texts))

    def receive_text(self, text: str | None) -> None:
        """Take the next text of a message; None if the model begins it again."""
        if text is None:
            self._model_length = 0
            self._begin_message()
            return
        text = self._shown(text)
        known = max(0, self._queued_length - self._model_length)
        self._model_length += len(text)
        if known < len(text):
            self._put_partial(text[known:])

    def receive_reasoning(self, text: str) -> None:
        """Take the next piece of the model's reasoning before a message."""
        if not self._session.terms.keeps_reasoning:
            return  # the console asked for it, and this client did not
        known = max(0, self._thought_length - self._model_thought_length)
        self._model_thought_length += len(text)
        # Sent text of a message stays, even if the model is called again.
        if known < len(text) and not self._queued_length:
            new = text[known:]
            offset = self._thought_length
            self._thought_length += len(new)
            self._put(PartialText(self._items, offset, new, is_reasoning=True))

    def _begin_message(self) -> None:
        self._model_thought_length = 0
        self._is_shown = None if self._opening else True
        self._blank = ""

    def _shown(self, text: str) -> str:
        """Return the text to show; nothing if an answer in JSON is due and this is none."""
        if self._is_shown is None:
            text = self._blank + text
            if text.strip():
                self._is_shown = session_status.is_shown(self._session, text)
            else:
                self._blank = text
        return text if self._is_shown else ""

    def receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        del encoded
        match entry.event:
            case ModelAnswered(task, message) if task == self._session.root.id:
                for said in session_status.messages_in(self._session, message):
                    if said.is_reasoning or session_status.is_shown(self._session, said.text):
                        self._put(FullText(self._items, said))
                        self._items += 1
                self._model_length = self._queued_length = self._thought_length = 0
                self._begin_message()
            case TurnStarted():
                # The model does not continue its text of the previous turn.
                self._model_length = 0
                self._begin_message()
            case TurnEnded():
                self._put_new()  # an interrupted message
                self._model_length = self._queued_length = self._thought_length = 0
                self._begin_message()
            case _:
                pass
        if is_over(self._session) and not self._is_over:
            self._put_new()

    def _put_new(self) -> None:
        """Queue the finished messages that are not queued yet, and the end if there are no more."""
        every = session_status.agent_messages(self._session)
        for item in range(self._items, len(every)):
            self._put(FullText(item, every[item]))
        self._items = max(self._items, len(every))
        if is_over(self._session) and not self._is_over:
            self._is_over = True
            self._put(_EndOfText())

    def _put_partial(self, text: str) -> None:
        item = self._items + bool(self._thought_length)
        piece = PartialText(item, self._queued_length, text)
        self._queued_length += len(text)
        self._put(piece)

    def _put(self, item: PartialText | FullText | _EndOfText) -> None:
        self._queue.append(item)
        self._arrived.set()


@contextmanager
def open_agent_stream(journal: ServedJournal, session: SessionRecord) -> Generator[AgentStream]:
    """Read the messages of a session's agent from the first, as long as the block lasts."""
    stream = AgentStream(journal, session)
    with (
        journal.read.subscribe(stream.receive_fact, session=session.id),
        journal.live_text.subscribe(session.root.id, stream.receive_text),
        journal.live_text.subscribe_reasoning(session.root.id, stream.receive_reasoning),
    ):
        yield stream
