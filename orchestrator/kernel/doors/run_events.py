"""The events of a run or a session, which a program reads while it goes on.

They are views of facts and of model events: they come in their order of occurrence, name their
task, and are not stored. A fact is read only when it is durable; the text of a model is read at
once. No reader slows a model. Text that a slow reader has not taken is joined, so no text is
missed, and no more text is held than the answer has.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    ModelEvent,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
    ToolCall,
)
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import StreamRedactor
from orchestrator.delegation import Encoded, Mode, Outcome, SessionId, TaskId, root_of
from orchestrator.delegation.events import (
    ApprovalAsked,
    Entry,
    Event,
    ModelAnswered,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
    parts_of,
)
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.read_api import ReadApi


class TextWritten(msgspec.Struct, frozen=True, gc=False):
    """The next piece of the answer that the model of a task is writing."""

    task: TaskId
    path: str
    text: str


class TextReplaced(msgspec.Struct, frozen=True, gc=False):
    """The recorded answer is another one: its pieces are void, and this is the whole text.

    A hook has changed it, or a secret in it is known only now.
    """

    task: TaskId
    path: str
    text: str


class ReasoningWritten(msgspec.Struct, frozen=True, gc=False):
    """The next piece of the reasoning of the model of a task."""

    task: TaskId
    path: str
    text: str


class ModelRetried(msgspec.Struct, frozen=True, gc=False):
    """The provider failed, and is asked again: the pieces of this answer are void."""

    task: TaskId
    path: str
    error: str


class ToolCalled(msgspec.Struct, frozen=True, gc=False):
    """The model of a task has called a tool; `delegate_task` is one, too."""

    task: TaskId
    path: str
    call: ToolCall


class ToolReturned(msgspec.Struct, frozen=True, gc=False):
    """A call has its answer, which the model reads next."""

    task: TaskId
    path: str
    call: ToolCall
    text: str
    failed: bool
    """The tool could not answer, and the text says why."""


class TaskDelegated(msgspec.Struct, frozen=True, gc=False):
    """A task has delegated another one to an agent."""

    task: TaskId
    """The new task."""
    path: str
    parent: TaskId
    agent: str
    goal: str
    mode: Mode


class ApprovalNeeded(msgspec.Struct, frozen=True, gc=False):
    """A call waits for an approval: `Orchestrator.answer` gives it."""

    task: TaskId
    path: str
    question: ApprovalQuestion


class TaskEnded(msgspec.Struct, frozen=True, gc=False):
    """A task has ended; of the root, the run or the turn of the session has."""

    task: TaskId
    path: str
    outcome: Outcome


RunEvent: TypeAlias = (
    TextWritten
    | TextReplaced
    | ReasoningWritten
    | ModelRetried
    | ToolCalled
    | ToolReturned
    | TaskDelegated
    | ApprovalNeeded
    | TaskEnded
)

_FACTS: Final = (ModelAnswered, ToolAnswered, TaskRequested, ApprovalAsked, TaskSettled, TurnEnded)


class RunEvents:
    """The events of one session, each once, in order. `async for` ends when the session's do."""

    def __init__(self, read: ReadApi, session: SessionId) -> None:
        self._read = read
        self._ledger = read.records
        self._session = session
        self._redactor = read.redactor
        self._answers: dict[TaskId, _Answer] = {}
        self._calls: dict[tuple[TaskId, CallId], ToolCall] = {}
        """The calls without an answer. An id is unique only among the calls of its task."""
        self._new: deque[_NewEvent] = deque()
        self._changed = trio.Event()
        self._closed = False

    def __aiter__(self) -> "RunEvents":
        return self

    async def __anext__(self) -> RunEvent:
        await self._wait_some()
        if not self._new:
            raise StopAsyncIteration
        return self._new.popleft().event

    async def receive_some(self) -> list[RunEvent]:
        """Wait for an event, and return all available ones; an empty list after the last one."""
        await self._wait_some()
        return self.take()

    async def _wait_some(self) -> None:
        require_trio()
        await trio.lowlevel.checkpoint()
        while not self._new or not self._is_durable(self._new[0]):
            if self._new:
                await self._read.wait_committed(self._new[0].seq)
            elif self._closed:
                return
            else:
                self._changed = trio.Event()
                await self._changed.wait()

    def take(self) -> list[RunEvent]:
        """Return the events that were not taken yet, without waiting for one.

        Events that a crash can still undo stay, with all events after them.
        """
        taken: list[RunEvent] = []
        while self._new and self._is_durable(self._new[0]):
            taken.append(self._new.popleft().event)
        return taken

    def _is_durable(self, new: "_NewEvent") -> bool:
        return new.seq <= self._read.durable_seq

    def close(self) -> None:
        """Let the reader take the remaining events, and then end."""
        self._closed = True
        self._changed.set()

    def receive_fact(self, entry: Entry, _: Encoded) -> None:
        if isinstance(entry.event, _FACTS):
            for fact in parts_of(entry.event):
                self._receive(fact, entry.seq)

    def _receive(self, fact: Event, seq: int) -> None:
        match fact:
            case ModelAnswered(task, message):
                self._finish_answer(task, message.text, seq)
                for call in message.calls:
                    self._calls[task, call.id] = call
                    self._put(ToolCalled(task, self._path(task), call), seq)
            case ToolAnswered(task, message):
                asked = self._calls.pop((task, message.call), None)
                # A call before the first event of this reader is in the transcript alone.
                asked = asked or self._earlier_call(task, message.call)
                if asked is not None:
                    self._put(
                        ToolReturned(task, self._path(task), asked, message.text, message.failed),
                        seq,
                    )
            case TaskRequested(request, mode):
                self._put(
                    TaskDelegated(
                        request.id,
                        self._path(request.id),
                        request.parent,
                        request.agent,
                        request.goal,
                        mode,
                    ),
                    seq,
                )
            case ApprovalAsked(task, id_):
                question = self._ledger.open_questions[id_]
                self._put(ApprovalNeeded(task, self._path(task), question), seq)
            case TaskSettled(task, outcome):
                self._answers.pop(task, None)
                self._put(TaskEnded(task, self._path(task), outcome), seq)
            case TurnEnded(session, outcome=outcome):
                root = root_of(session)
                self._answers.pop(root, None)
                self._put(TaskEnded(root, self._path(root), outcome), seq)
            case _:
                pass  # the fact is no event of a run

    def _earlier_call(self, task: TaskId, id_: CallId) -> ToolCall | None:
        for message in reversed(self._ledger.tasks[task].transcript):
            if isinstance(message, AssistantMessage):
                return next((it for it in message.calls if it.id == id_), None)
        return None

    def receive_model_event(self, task: TaskId, event: ModelEvent) -> None:
        record = self._ledger.tasks.get(task)
        if record is None or record.session != self._session:
            return
        match event:
            case TextDelta(text):
                if piece := self._answer(task).text.add(text):
                    self._put_text(TextWritten(task, record.path, piece))
            case ReasoningDelta(text):
                if piece := self._answer(task).reasoning.add(text):
                    self._put_text(ReasoningWritten(task, record.path, piece))
            case Retrying(_, error) | Switched(_, error):
                self._answers.pop(task, None)
                self._put(ModelRetried(task, record.path, self._redactor.redact(error)))
            case _:
                pass

    def _answer(self, task: TaskId) -> "_Answer":
        if task not in self._answers:
            self._answers[task] = _Answer(self._redactor)
        return self._answers[task]

    def _finish_answer(self, task: TaskId, text: str, seq: int) -> None:
        """Emit the text that was held back, or the whole text if the provider does not stream.

        If the recorded text differs from the shown one, it replaces that.
        """
        answer = self._answers.pop(task, None)
        shown = "" if answer is None else answer.text.shown
        if not text.startswith(shown):
            self._put(TextReplaced(task, self._path(task), text), seq)
        elif len(text) > len(shown):
            rest = TextWritten(task, self._path(task), text[len(shown) :])
            self._put_text(rest, seq)

    def _put_text(self, piece: TextWritten | ReasoningWritten, seq: int = 0) -> None:
        last = self._new[-1] if self._new else _NewEvent(piece, -1)
        event = last.event
        # Recorded text waits until it is durable: it must not hold back streamed text.
        if last.seq == seq and isinstance(event, type(piece)) and event.task == piece.task:
            joined = replace(event, text=event.text + piece.text)
            self._new[-1] = _NewEvent(joined, seq)
        else:
            self._put(piece, seq)

    def _put(self, event: RunEvent, seq: int = 0) -> None:
        self._new.append(_NewEvent(event, seq))
        self._changed.set()

    def _path(self, task: TaskId) -> str:
        return self._ledger.tasks[task].path


class _NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that was not taken yet."""

    event: RunEvent
    seq: int
    """The number of the fact that it shows; 0 without a fact."""


class _Answer:
    """The unfinished answer of a model."""

    def __init__(self, redactor: Redactor) -> None:
        self.text = _ShownText(redactor)
        self.reasoning = _ShownText(redactor)


class _ShownText:
    def __init__(self, redactor: Redactor) -> None:
        self._stream = StreamRedactor(redactor)
        self.shown = ""

    def add(self, text: str) -> str:
        piece = self._stream.add(text)
        self.shown += piece
        return piece


@contextmanager
def open_events(read: ReadApi, session: SessionId) -> Generator[RunEvents]:
    """Receive the events of a session, as long as the block lasts."""
    events = RunEvents(read, session)
    with (
        read.subscribe(events.receive_fact, session=session),
        read.subscribe_model_events(events.receive_model_event),
    ):
        try:
            yield events
        finally:
            events.close()
