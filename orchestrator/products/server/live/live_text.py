"""The answers that models are writing now, redacted, for any number of subscribers.

Unfinished text is stored nowhere else: the journal has finished answers. It is redacted once for
all subscribers, when the first one subscribes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
import trio

from orchestrator.agents import ModelEvent, ReasoningDelta, Retrying, Switched, TextDelta
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import StreamRedactor
from orchestrator.delegation import Encoded, SessionId, TaskId, root_of
from orchestrator.delegation.events import (
    Entry,
    ModelAnswered,
    TaskSettled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.reads import ReadApi

K = TypeVar("K")
T = TypeVar("T")
MAX_BUFFERED_UPDATES: Final = 10_000
"""The most updates of a session that wait in a channel before its reader misses some."""

NOTED: Final = (TurnStarted, TurnResumed, TurnEnded, TaskSettled, ModelAnswered)
"""The facts that begin or end an unfinished answer."""

ReceiveText: TypeAlias = Callable[[str | None], None]
"""Takes the next text of an answer; None if the model begins the answer again."""


class TextUpdate(msgspec.Struct, frozen=True, gc=False):
    """The next text of the answer that a task's model is writing."""

    task: TaskId
    text: str


class _LiveText:
    """A text that a model is writing."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.reset()

    def reset(self) -> None:
        self._stream_redactor: StreamRedactor | None = None
        """Made when the first reader asks for text: most answers have none."""
        self._released: list[str] = []
        self._unredacted: list[str] = []

    def add(self, text: str) -> None:
        self._unredacted.append(text)

    def take_new(self) -> str:
        """Return text that may be shown and was not returned before."""
        pieces = self._unredacted
        if not pieces:
            return ""
        self._unredacted = []
        if self._stream_redactor is None:
            self._stream_redactor = StreamRedactor(self._redactor)
        released = self._stream_redactor.add(pieces[0] if len(pieces) == 1 else "".join(pieces))
        self._released.append(released)
        return released

    def all_text(self) -> str:
        """Return all text that may be shown."""
        self.take_new()
        # Joined once: a long answer has many pieces, and may have many readers.
        self._released = ["".join(self._released)]
        return self._released[0]


class _LiveAnswer(_LiveText):
    """The unfinished answer of one task's model, and the reasoning before it."""

    def __init__(self, redactor: Redactor, *, keeps_reasoning: bool = False) -> None:
        self._reasoning = _LiveText(redactor) if keeps_reasoning else None
        super().__init__(redactor)

    def reset(self) -> None:
        super().reset()
        self._has_text = False
        if self._reasoning is not None:
            self._reasoning.reset()

    def add(self, text: str) -> None:
        self._has_text = True
        super().add(text)

    def keep_reasoning(self) -> None:
        """From here on, keep the model's reasoning before its first words."""
        if self._reasoning is None:
            self._reasoning = _LiveText(self._redactor)

    def think(self, text: str) -> str:
        """Add a piece of the reasoning, and return the part that may be shown."""
        # Reasoning after the first words is not kept.
        if self._reasoning is None or self._has_text:
            return ""
        self._reasoning.add(text)
        return self._reasoning.take_new()

    def all_reasoning(self) -> str:
        return "" if self._reasoning is None else self._reasoning.all_text()


class Listed(Generic[K, T]):
    """Has a value in the list of a key, as long as the block lasts; an empty list is removed."""

    __slots__ = ("_key", "_lists", "_value")

    def __init__(self, lists: dict[K, list[T]], key: K, value: T) -> None:
        self._lists = lists
        self._key = key
        self._value = value

    def __enter__(self) -> None:
        self._lists.setdefault(self._key, []).append(self._value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        values = self._lists[self._key]
        values.remove(self._value)
        if not values:
            del self._lists[self._key]


class LiveText:
    """The unfinished answers of sessions that were opened over HTTP, and of tasks with a reader."""

    def __init__(self, read: ReadApi, redactor: Redactor) -> None:
        self._read = read
        self._redactor = redactor
        self._answers: dict[TaskId, _LiveAnswer] = {}
        self._subscribers: dict[TaskId, list[ReceiveText]] = {}
        self._reasoning_subscribers: dict[TaskId, list[Callable[[str], None]]] = {}
        self._channels: dict[SessionId, list[trio.MemorySendChannel[TextUpdate]]] = {}

    def text_so_far(self, root: TaskId) -> str:
        """Return the collected part of the answer that a task's agent is writing."""
        return self._answers[root].all_text() if root in self._answers else ""

    def reasoning_so_far(self, root: TaskId) -> str:
        """Return the agent's reasoning before the answer that it is writing."""
        return self._answers[root].all_reasoning() if root in self._answers else ""

    def subscribe_reasoning(
        self, root: TaskId, receive: Callable[[str], None]
    ) -> Listed[TaskId, Callable[[str], None]]:
        """Call `receive` with the reasoning of a task's agent, as long as the block lasts."""
        return Listed(self._reasoning_subscribers, root, receive)

    @contextmanager
    def collect(self) -> Generator[None]:
        """Collect text, as long as the block lasts."""
        with (
            self._read.subscribe(self._receive_fact, kinds=NOTED),
            self._read.subscribe_model_events(self._receive_model_event),
        ):
            yield

    def subscribe(self, root: TaskId, receive: ReceiveText) -> Listed[TaskId, ReceiveText]:
        """Call `receive` with the text of a task's agent, as long as the block lasts."""
        return Listed(self._subscribers, root, receive)

    @contextmanager
    def open_channel(self, session: SessionId) -> Generator[trio.MemoryReceiveChannel[TextUpdate]]:
        """Receive the text of all tasks of a session, as long as the block lasts."""
        send, receive = trio.open_memory_channel[TextUpdate](MAX_BUFFERED_UPDATES)
        with Listed(self._channels, session, send), send, receive:
            yield receive

    def _receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        """Begin an answer with the turn, and drop text that the journal has now."""
        del encoded
        match entry.event:
            case TurnStarted(session) | TurnResumed(session):
                record = self._read.records.sessions[session]
                if record.kind is not SessionKind.PROGRAM:
                    self._answers[root_of(session)] = _LiveAnswer(
                        self._redactor, keeps_reasoning=record.terms.keeps_reasoning
                    )
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
            case ReasoningDelta(text):
                self._add_thought(task, text)
            case Retrying() | Switched() if task in self._answers:
                self._answers[task].reset()
                for receive in self._subscribers.get(task, ()):
                    receive(None)
            case _:
                pass

    def _add_thought(self, task: TaskId, text: str) -> None:
        receivers = self._reasoning_subscribers.get(task, ())
        answer = self._answers.get(task)
        if receivers:
            if answer is None:
                answer = self._answers[task] = _LiveAnswer(self._redactor)
            answer.keep_reasoning()
        if answer is not None and (shown := answer.think(text)):
            for receive in receivers:
                receive(shown)

    def _add_text(self, task: TaskId, text: str) -> None:
        session = self._read.records.tasks[task].session
        channels = self._channels.get(session, ())
        answer = self._answers.get(task)
        receivers = self._subscribers.get(task, ())
        if answer is None:
            if not (channels or receivers):
                return
            answer = self._answers[task] = _LiveAnswer(self._redactor)
        answer.add(text)
        if not (receivers or channels) or not (released := answer.take_new()):
            return
        for receive in receivers:
            receive(released)
        for channel in channels:
            # A reader that is behind misses this text: it is not repeated.
            with suppress(trio.WouldBlock):
                channel.send_nowait(TextUpdate(task, released))
