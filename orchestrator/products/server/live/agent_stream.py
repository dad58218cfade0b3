"""The messages of a session's agent, while the model writes them.

Text is streamed as it comes, except what may belong to an unfinished secret. A finished message is
streamed once more, as the journal has it, when it is durable; where the two differ, the journal is
right.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import attrs
import trio

from orchestrator.delegation import Encoded, SessionRecord
from orchestrator.delegation.events import Entry, ModelAnswered, TurnEnded, TurnStarted
from orchestrator.kernel.doors.kept import is_over
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.session_status import (
    OPENING,
    AgentMessage,
    agent_messages,
    is_shown,
    messages_in,
)


@attrs.frozen
class PartialText:
    """The next text of an unfinished message."""

    item: int
    """The index of the message."""
    offset: int
    """How many characters of the message came before."""
    text: str
    is_reasoning: bool = False


@attrs.frozen
class FullText:
    """A finished message, as the journal has it."""

    item: int
    message: AgentMessage


@attrs.frozen
class _EndOfText:
    """There will be no more messages."""


AgentText: TypeAlias = PartialText | FullText


class AgentStream:
    """One reader of an agent's messages. `open_agent_stream` makes it."""

    def __init__(self, journal: ServedJournal, session: SessionRecord) -> None:
        self._read = journal.read
        self._session = session
        self._queue: deque[PartialText | FullText | _EndOfText] = deque()
        self._arrived = trio.Event()
        self._items = 0
        """How many messages are finished."""
        self._model_length = 0
        """How many characters the model has written of the next one."""
        self._queued_length = 0
        """How many of them were queued: a model that is asked again repeats them."""
        self._is_over = False
        self._opening = session.labels.get(OPENING)
        """The characters with which an answer in JSON begins."""
        self._is_shown: bool | None = None
        """Whether the message is shown; None if it has not begun."""
        self._blank: str = ""
        """What has come of a message that has not begun."""
        self._thought_length = 0
        """How many characters were queued of the reasoning before the next message."""
        self._model_thought_length = 0
        """How many the model has thought: one that is asked again repeats them."""
        self._begin_message()
        self._put_new()
        if thought := journal.live_text.reasoning_so_far(session.root.id):
            self.receive_reasoning(thought)
        if so_far := journal.live_text.text_so_far(session.root.id):
            self.receive_text(so_far)

    async def next(self) -> AgentText | None:
        """Wait for the next text or message; None if there will be no more."""
        await self._arrived.wait()
        if not isinstance(self._queue[0], PartialText):
            await self._read.wait_durable()
        # Taken last: a reader that is cancelled during the wait has missed nothing.
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
        """Return a piece joined with all that follow it: a slow reader gets longer pieces."""
        texts = [piece.text]
        while (
            self._queue
            and isinstance(more := self._queue[0], PartialText)
            and more.item == piece.item
            and more.is_reasoning == piece.is_reasoning
        ):
            texts.append(more.text)
            self._queue.popleft()
        return attrs.evolve(piece, text="".join(texts))

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
        """Take the next piece of what the model thinks before a message."""
        if not self._session.terms.keeps_reasoning:
            return  # a page of the console shows it, and this client has not asked for it
        known = max(0, self._thought_length - self._model_thought_length)
        self._model_thought_length += len(text)
        # What was sent of a message stands, also if its model is asked again.
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
        """Return what is shown of the next text: all of it, unless an answer in JSON is due."""
        if self._is_shown is None:
            text = self._blank + text
            if text.strip():
                self._is_shown = is_shown(self._session, text)
            else:
                self._blank = text
        return text if self._is_shown else ""

    def receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        del encoded
        match entry.event:
            case ModelAnswered(task, message) if task == self._session.root.id:
                for said in messages_in(self._session, message):
                    if said.is_reasoning or is_shown(self._session, said.text):
                        self._put(FullText(self._items, said))
                        self._items += 1
                self._model_length = self._queued_length = self._thought_length = 0
                self._begin_message()
            case TurnStarted():
                # The model does not go on with what it wrote in the turn before.
                self._model_length = 0
                self._begin_message()
            case TurnEnded():
                self._put_new()  # a message that was broken off
                self._model_length = self._queued_length = self._thought_length = 0
                self._begin_message()
            case _:
                pass
        if is_over(self._session) and not self._is_over:
            self._put_new()

    def _put_new(self) -> None:
        """Queue the finished messages that are not queued, and the end if this is all."""
        every = agent_messages(self._session)
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
