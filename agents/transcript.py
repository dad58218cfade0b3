"""The messages of one conversation, as a value.

A transcript never changes, so models, scripts and readers may keep it. A transcript that
continues another one shares its messages and their token counts. Each turn of a long conversation
therefore costs only its new messages.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias, cast, overload

from orchestrator.agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    ToolMessage,
    UserMessage,
    interrupted_answer,
    unanswered_calls,
)

Measure: TypeAlias = Callable[[Message], int]
"""Counts something of one message: a function of a module, which always counts the same."""


class _Log:
    """The messages that transcripts share. It only grows, so its beginning never changes."""

    __slots__ = ("_counts", "messages")

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self._counts: _Counts | None = None

    @property
    def counts(self) -> "_Counts":
        """The counts of the messages, which most transcripts do not need."""
        if self._counts is None:
            self._counts = _Counts()
        return self._counts


class _Counts:
    """The sums, indexes and gaps of a log, which are brought up to date on demand."""

    def __init__(self) -> None:
        self.sums: dict[Measure, list[int]] = {}
        """The running totals of each measure."""
        self.indexed = 0
        """How many messages the two indexes know."""
        self.call_indexes: dict[CallId, int] = {}
        """Where each call id was used first."""
        self.message_indexes: dict[MessageId, int] = {}
        self.searched = 1
        """How many messages were searched for gaps; before the first one no answer is missing."""
        self.gaps: list[tuple[int, tuple[ToolMessage, ...]]] = []
        """Before which messages answers are missing, and the answers to put there."""
        self.completed: tuple[int, Transcript] = (0, EMPTY)
        """How many messages were completed with these answers last, and the result."""

    def running_totals(self, messages: list[Message], measure: Measure, length: int) -> list[int]:
        sums = self.sums.setdefault(measure, [])
        total = sums[-1] if sums else 0
        for message in islice(messages, len(sums), length):
            total += measure(message)
            sums.append(total)
        return sums

    def index(self, messages: list[Message], length: int) -> None:
        for at in range(self.indexed, length):
            message = messages[at]
            self.message_indexes.setdefault(message.id, at)
            if isinstance(message, AssistantMessage):
                for call in message.calls:
                    self.call_indexes.setdefault(call.id, at)
        self.indexed = max(self.indexed, length)

    def find_gaps(self, log: _Log, length: int) -> None:
        for at in range(self.searched, length):
            if isinstance(log.messages[at], UserMessage):
                calls = unanswered_calls(_view(log, at))
                if calls:
                    self.gaps.append((at, tuple(map(interrupted_answer, calls))))
        self.searched = max(self.searched, length)


class Transcript(Sequence[Message]):
    """Messages, oldest first. It is equal to any list or tuple of the same messages."""

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._log = _Log(list(messages))
        self._length = len(self._log.messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "Transcript": ...

    def __getitem__(self, index: int | slice) -> "Message | Transcript":
        if isinstance(index, slice):
            chosen = range(self._length)[index]
            if chosen == range(len(chosen)):
                return _view(self._log, len(chosen))
            return Transcript(map(self._log.messages.__getitem__, chosen))
        return self._log.messages[range(self._length)[index]]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._log.messages, self._length)

    def __reversed__(self) -> Iterator[Message]:
        messages = self._log.messages
        if len(messages) == self._length:
            return reversed(messages)  # later messages are behind its start
        return map(messages.__getitem__, reversed(range(self._length)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript | list | tuple):
            return NotImplemented
        messages = cast("Sequence[object]", other)
        return len(self) == len(messages) and all(
            one is two or one == two for one, two in zip(self, messages, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"

    def __add__(self, other: Iterable[Message]) -> "Transcript":
        """Return a copy with more messages."""
        return Transcript((*self, *other))

    def followed_by(self, *messages: Message) -> "Transcript":
        """Return a transcript that goes on from this one, and shares its messages.

        Each message takes O(1), unless another transcript has gone on from here otherwise. That is
        for the one task that the conversation belongs to; what only derives from it uses `+`.
        """
        log, length = self._log, self._length
        if not length:
            log = _Log([])
        for message in messages:
            if length == len(log.messages):
                log.messages.append(message)
            elif log.messages[length] is not message:
                log = _Log([*log.messages[:length], message])
            length += 1
        # The body of `_view`: this is every message of every task.
        view = _new_transcript(Transcript)
        view._log, view._length = log, length  # noqa: SLF001 (its constructor)
        return view

    def open_turn(self, start: int) -> "tuple[Transcript, int, list[Message]]":
        """Return the transcript for a turn that began at a length: completed, with the length that
        it had then, and with the messages of the turn so far, the newest first.
        """
        # Most tasks begin with their goal alone.
        if self._length == 1 and isinstance(self._log.messages[0], UserMessage):
            return self, start, []
        whole = self.completed()
        # Answers that were missing stand before the turn.
        start += len(whole) - self._length
        return whole, start, whole.of_turn(start)

    def of_turn(self, start: int) -> list[Message]:
        """Return the messages since the last one of a user, the newest first.

        Args:
            start: the length that the transcript had when the turn began.
        """
        found: list[Message] = []
        messages = self._log.messages
        for at in range(self._length - 1, start - 1, -1):
            message = messages[at]
            if isinstance(message, UserMessage) and not message.aside:
                break
            found.append(message)
        return found

    def total(self, measure: Measure) -> int:
        """Return the sum of a measure over all messages. Each message is measured once."""
        if not self._length:
            return 0
        log, length = self._log, self._length
        return log.counts.running_totals(log.messages, measure, length)[length - 1]

    def has_call(self, call: CallId) -> bool:
        """Return whether a model has made a call of this id."""
        counts = self._log.counts
        counts.index(self._log.messages, self._length)
        at = counts.call_indexes.get(call)
        return at is not None and at < self._length

    def find(self, message: MessageId) -> Message | None:
        """Return the message of this id, if there is one."""
        counts = self._log.counts
        counts.index(self._log.messages, self._length)
        at = counts.message_indexes.get(message)
        return None if at is None or at >= self._length else self._log.messages[at]

    def completed(self) -> "Transcript":
        """Return it with an answer to every call of an earlier turn.

        A turn may end in the middle of a call, and no provider accepts open calls.
        """
        log, length = self._log, self._length
        counts = log.counts
        counts.find_gaps(log, length)
        gaps = counts.gaps
        if not gaps or gaps[0][0] >= length:
            return self
        done, whole = counts.completed
        if done > length:
            done, whole = 0, EMPTY
        for at, answers in islice(gaps, bisect_left(gaps, (done,)), None):
            if at >= length:
                break
            whole = whole.followed_by(*log.messages[done:at], *answers)
            done = at
        whole = whole.followed_by(*log.messages[done:length])
        counts.completed = (length, whole)
        return whole


_new_transcript: Final = Transcript.__new__


def _view(log: _Log, length: int) -> Transcript:
    """Return the beginning of a log."""
    view = Transcript.__new__(Transcript)
    view._log, view._length = log, length  # noqa: SLF001 (its constructor)  # pyright: ignore[reportPrivateUsage]
    return view


def as_transcript(messages: Iterable[Message]) -> Transcript:
    """Return messages as a transcript: the same object, or a copy of a mutable sequence."""
    return messages if isinstance(messages, Transcript) else Transcript(messages)


EMPTY: Final = Transcript()
