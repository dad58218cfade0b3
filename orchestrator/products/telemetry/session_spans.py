"""Builds the spans of one session from its facts.

A turn is the root of a trace, or a span in the trace of its caller. A joined task is a span inside
the call that waits for it. A detached task has a trace of its own: its span links to the call that
requested it, and that call and the turn that reads its result link to it.

A span begins and ends with a fact. No fact says that a model is called without a budget, so the
span of such a call begins with the fact before it, and contains the wait for its provider.
"""

from collections.abc import Iterator
from typing import Final

import attrs
import msgspec

from orchestrator.agents import CallId, ToolCall
from orchestrator.delegation import Mode, Outcome, SessionId, TaskId
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallPlaced,
    CancelRequested,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    QuietChanged,
    SessionOpened,
    Steered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    WaitSpan,
    parts_of,
)
from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.attributes import (
    add_model,
    add_usage,
    json_text,
    message_text,
    set_text,
)
from orchestrator.products.telemetry.span import (
    Attributes,
    Span,
    SpanEvent,
    SpanIds,
    Value,
    call_span,
    chat_span,
    task_span,
    task_trace,
    turn_ids,
    turn_key,
)

_PURPOSES: Final = {
    ModelFailure.SUMMARY: "summary",
    ModelFailure.QUESTION: "question to the parent",
    ModelFailure.CONVERSATION: "summary for tasks",
}
"""Calls that answer no turn, and have not failed."""


@attrs.define(kw_only=True)
class _OpenSpan:
    """A span that has not ended."""

    ids: SpanIds
    parent: int
    name: str
    start: float
    attributes: Attributes
    events: list[SpanEvent] = attrs.field(factory=list[SpanEvent])
    links: list[SpanIds] = attrs.field(factory=list[SpanIds])

    def note(self, at: float, name: str, **attributes: Value) -> None:
        ours = {f"orchestrator.{key}": value for key, value in attributes.items()}
        self.events.append(SpanEvent(at, name, ours))


@attrs.define(kw_only=True)
class _OpenTask(_OpenSpan):
    """The span of a task or a turn that has not ended."""

    key: str
    """The text that the ids of its calls are hashed from."""
    agent: str
    mark: float
    """The end of its last step: the next call of its model begins there."""
    is_started: bool = False
    model: str = ""
    """The model of its last answer."""
    chats: int = 0
    """The number of its model calls that have ended."""
    attempts: int = 0
    """The failed attempts at the current answer."""
    calls: dict[CallId, _OpenSpan] = attrs.field(factory=dict[CallId, _OpenSpan])
    """The calls of tools that are not answered."""


class SessionSpans:
    """Takes the facts of one session in their order, and yields each span when it has ended.

    It keeps the turn and the tasks that have not ended, and the results that no turn has read.
    """

    def __init__(self, session: SessionId, *, agent: str = "", content: bool = False) -> None:
        """Build the spans of a session.

        Args:
            session: the session.
            agent: its agent; not needed if the first fact of the session is among the facts.
            content: add the texts of messages and calls. The facts are redacted already.
        """
        self._session = session
        self._agent = agent
        self._content = content
        self._forked_from = ""
        self._seq = 0
        self._now = 0.0
        """The time of the last fact. It never goes back, as the clock of another process may."""
        self._tasks: dict[TaskId, _OpenTask] = {}
        self._mail: dict[int, str] = {}
        """The messages that no turn has read, if spans have content."""
        self._unread: dict[int, SpanIds] = {}
        """The spans of detached tasks whose results no turn has read, by the number of the fact."""

    @property
    def is_open(self) -> bool:
        """Whether a span has not ended, or mail is not read."""
        return bool(self._tasks or self._unread or self._mail)

    def add(self, entry: Entry) -> Iterator[Span]:
        """Take the next fact, and yield the spans that end with it."""
        self._seq = entry.seq
        self._now = max(self._now, entry.at)
        for part in parts_of(entry.event):
            yield from self._add(part)

    def end(self) -> Iterator[Span]:
        """Yield the spans that have not ended as interrupted by the last fact; the inner first."""
        self._seq = 0
        for id_ in reversed([*self._tasks]):
            task = self._tasks.pop(id_)
            task.attributes[names.OUR_ENDING] = "interrupted"
            yield from self._close_task(task)

    def _add(self, event: Event) -> Iterator[Span]:
        match event:
            case SessionOpened():
                self._agent = event.agent
                self._forked_from = event.forked_from
            case MessageReceived() if self._content:
                self._mail[self._seq] = event.text
            case TurnStarted():
                self._start_turn(event)
            case TurnResumed():
                yield from self._resume(TaskId(self._session), afresh=event.afresh)
            case TurnEnded():
                yield from self._settle(TaskId(self._session), event.outcome)
            case TaskRequested():
                self._request(event)
            case TaskStarted():
                yield from self._start(event)
            case TaskSettled():
                yield from self._settle(event.task, event.outcome)
            case ModelCalled() | ModelAnswered() | ModelFailed() | ToolAnswered():
                yield from self._step(event)
            case _:
                self._note(event)

    def _step(
        self, event: ModelCalled | ModelAnswered | ModelFailed | ToolAnswered
    ) -> Iterator[Span]:
        task = self._tasks.get(event.task)
        if task is None:
            return
        match event:
            case ModelCalled():
                task.mark = self._now
            case ModelAnswered():
                yield from self._answer(task, event)
            case ModelFailed():
                yield self._fail(task, event)
            case ToolAnswered():
                yield from self._answer_call(task, event)

    def _start_turn(self, event: TurnStarted) -> None:
        session = self._session
        attributes = self._task_attributes(self._agent, TaskId(session), event.version)
        attributes[names.OUR_MODE] = Mode.ROOT.value
        attributes[names.OUR_TURN] = event.turn
        if said := [self._mail.pop(seq) for seq in event.mail if seq in self._mail]:
            set_text(attributes, names.INPUT_MESSAGES, message_text("user", "\n\n".join(said)))
        if self._forked_from:
            attributes[names.OUR_FORKED_FROM] = self._forked_from
        ids, parent = turn_ids(session, event.turn, event.trace)
        self._tasks[TaskId(session)] = _OpenTask(
            ids=ids,
            parent=parent,
            name=f"{names.INVOKE_AGENT} {self._agent}",
            start=self._now,
            attributes=attributes,
            links=self._read(event.mail),
            key=turn_key(session, event.turn),
            agent=self._agent,
            mark=self._now,
            is_started=True,
        )

    def _read(self, mail: tuple[int, ...]) -> list[SpanIds]:
        """Return the spans of the results among mail."""
        return [self._unread.pop(seq) for seq in mail if seq in self._unread]

    def _request(self, event: TaskRequested) -> None:
        request = event.request
        attributes = self._task_attributes(request.agent, request.id, request.version)
        attributes[names.OUR_MODE] = event.mode.value
        if request.label:
            attributes[names.OUR_LABEL] = request.label
        if request.needs:
            attributes[names.OUR_NEEDS] = request.needs
        if self._content:
            set_text(attributes, names.INPUT_MESSAGES, message_text("user", request.goal))
        around: _OpenSpan | None = self._tasks.get(request.parent)
        if isinstance(around, _OpenTask):
            around = around.calls.get(CallId(request.call.rpartition("#")[0]), around)
        links: list[SpanIds] = []
        if around is None or event.mode is Mode.DETACHED:
            ids, parent = task_trace(request.id), 0
            if around is not None:
                links.append(around.ids)
                around.links.append(ids)
        else:
            ids, parent = SpanIds(around.ids.trace, task_span(request.id)), around.ids.span
        self._tasks[request.id] = _OpenTask(
            ids=ids,
            parent=parent,
            name=f"{names.INVOKE_AGENT} {request.agent}",
            start=self._now,
            attributes=attributes,
            links=links,
            key=request.id,
            agent=request.agent,
            mark=self._now,
        )

    def _start(self, event: TaskStarted) -> Iterator[Span]:
        task = self._tasks.get(event.task)
        if task is None:
            return
        if task.is_started:
            yield from self._resume(event.task, afresh=event.afresh)
            return
        task.is_started = True
        task.attributes[names.OUR_QUEUED] = round(self._now - task.start, 6)
        task.mark = self._now

    def _resume(self, id_: TaskId, *, afresh: bool) -> Iterator[Span]:
        task = self._tasks.get(id_)
        if task is None:
            return
        task.note(self._now, "resumed", afresh=afresh)
        task.mark = self._now
        if afresh:
            yield from self._break_off_calls(task)

    def _settle(self, id_: TaskId, outcome: Outcome) -> Iterator[Span]:
        task = self._tasks.pop(id_, None)
        if task is None:
            return
        if id_ != TaskId(self._session) and not task.parent:
            self._unread[self._seq] = task.ids
        attributes = task.attributes
        attributes[names.OUR_ENDING] = outcome.ending.value
        if self._content and outcome.output:
            set_text(attributes, names.OUTPUT_MESSAGES, message_text("assistant", outcome.output))
        error_type = "" if outcome.succeeded else outcome.kind or outcome.cause.value
        yield from self._close_task(task, error_type, outcome.error)

    def _close_task(self, task: _OpenTask, error_type: str = "", error: str = "") -> Iterator[Span]:
        yield from self._break_off_calls(task)
        if task.model:
            add_model(task.attributes, task.model)
        yield self._close(task, error_type, error)

    def _break_off_calls(self, task: _OpenTask) -> Iterator[Span]:
        for call in task.calls.values():
            yield self._close(call, "broken_off")
        task.calls.clear()

    def _close(self, span: _OpenSpan, error_type: str = "", error: str = "") -> Span:
        if error_type:
            span.attributes[names.ERROR_TYPE] = error_type
        return Span(
            ids=span.ids,
            parent=span.parent,
            name=span.name,
            kind="internal",
            session=self._session,
            seq=self._seq,
            start=span.start,
            end=self._now,
            attributes=span.attributes,
            events=tuple(span.events),
            links=tuple(span.links),
            failed=bool(error_type),
            error=error,
        )

    def _answer(self, task: _OpenTask, event: ModelAnswered) -> Iterator[Span]:
        message = event.message
        task.model = message.model
        attributes = self._chat_attributes(task, event.waited)
        if event.copied:
            attributes[names.OUR_COPIED] = True
        else:
            add_usage(attributes, message.usage)
        if event.left_out:
            attributes[names.OUR_LEFT_OUT] = event.left_out
        if self._content:
            said = message_text("assistant", message.text, message.calls)
            set_text(attributes, names.OUTPUT_MESSAGES, said)
        yield self._chat(task, attributes)
        task.attempts = 0
        for call in message.calls:
            task.calls[call.id] = self._open_call(task, call)

    def _fail(self, task: _OpenTask, event: ModelFailed) -> Span:
        # The fact does not name the model: it is the one that has answered before, if any has.
        attributes = self._chat_attributes(task, event.waited)
        add_usage(attributes, event.usage)
        if event.reason in _PURPOSES:
            attributes[names.OUR_PURPOSE] = _PURPOSES[event.reason]
            return self._chat(task, attributes)
        task.attempts += 1
        attributes[names.ERROR_TYPE] = event.reason.value
        if self._content and event.text:
            set_text(attributes, names.OUTPUT_MESSAGES, message_text("assistant", event.text))
        return self._chat(task, attributes, event.error)

    def _chat(self, task: _OpenTask, attributes: Attributes, error: str = "") -> Span:
        """Return the span of a model call that ends now."""
        task.chats += 1
        start, task.mark = task.mark, self._now
        return Span(
            ids=SpanIds(task.ids.trace, chat_span(task.key, task.chats)),
            parent=task.ids.span,
            name=f"{names.CHAT} {attributes.get(names.REQUEST_MODEL, '')}".rstrip(),
            kind="client",
            session=self._session,
            seq=self._seq,
            start=start,
            end=self._now,
            attributes=attributes,
            failed=names.ERROR_TYPE in attributes,
            error=error,
        )

    def _open_call(self, task: _OpenTask, call: ToolCall) -> _OpenSpan:
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.name,
            names.TOOL_CALL: call.id,
            names.AGENT_NAME: task.agent,
            names.CONVERSATION: self._session,
        }
        if self._content:
            set_text(attributes, names.TOOL_ARGUMENTS, json_text(call.arguments))
        return _OpenSpan(
            ids=SpanIds(task.ids.trace, call_span(task.key, task.chats, call.id)),
            parent=task.ids.span,
            name=f"{names.EXECUTE_TOOL} {call.name}",
            start=self._now,
            attributes=attributes,
        )

    def _answer_call(self, task: _OpenTask, event: ToolAnswered) -> Iterator[Span]:
        task.mark = self._now
        task.links += self._read(event.mail)
        message = event.message
        call = task.calls.pop(message.call, None)
        if call is None:
            return
        if self._content:
            set_text(call.attributes, names.TOOL_RESULT, message.text)
        if message.failed:
            error_type = "failed" if message.refused_by is None else message.refused_by.value
            yield self._close(call, error_type, message.text if self._content else "")
        else:
            yield self._close(call)

    def _note(self, event: Event) -> None:
        """Note a moment within the span of a task or a call."""
        match event:
            case JournalOpened():
                for task in self._tasks.values():
                    task.note(self._now, "interrupted")
            case TurnInterrupted():
                self._note_in(TaskId(self._session), "interrupted", reason=event.reason)
            case ApprovalAsked():
                self._note_in(event.task, "approval asked", event.call, tool=event.tool)
            case ApprovalAnswered():
                self._note_in(event.task, "approval answered", verdict=event.answer.value)
            case Steered():
                self._note_in(event.task, "message received", origin=event.origin.value)
            case CancelRequested():
                self._note_in(event.task, "cancel requested")
            case QuietChanged():
                self._note_in(event.task, "quiet" if event.quiet else "active again")
            case CallPlaced():
                where = {"place": event.place, "worker": event.worker}
                self._note_in(event.task, "placed", event.call, **where)
            case _:
                pass

    def _note_in(
        self, id_: TaskId, name: str, call: CallId | None = None, **attributes: Value
    ) -> None:
        task = self._tasks.get(id_)
        if task is not None:
            span = task if call is None else task.calls.get(call, task)
            span.note(self._now, name, **attributes)

    def _task_attributes(
        self, agent: str, task: TaskId, version: str | msgspec.UnsetType
    ) -> Attributes:
        attributes: Attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: agent,
            names.CONVERSATION: self._session,
            names.OUR_TASK: task,
        }
        if version is not msgspec.UNSET:
            attributes[names.AGENT_VERSION] = version
        return attributes

    def _chat_attributes(self, task: _OpenTask, waited: WaitSpan) -> Attributes:
        attributes: Attributes = {
            names.OPERATION: names.CHAT,
            names.AGENT_NAME: task.agent,
            names.CONVERSATION: self._session,
        }
        add_model(attributes, task.model)
        if task.attempts:
            attributes[names.OUR_ATTEMPT] = task.attempts + 1
        if waited is not msgspec.UNSET:
            began, sent = waited
            attributes[names.OUR_PROVIDER_WAIT] = round(sent - began, 6)
        return attributes
