"""The facts of a run as events of AG-UI: messages, calls, subagents and state, each in order.

The text of the agent itself may begin before its fact. All other events are made of facts, so the
same facts always give the same ids, and a client that comes back recognizes its messages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from orchestrator.agents import AssistantMessage, ToolMessage, Usage
from orchestrator.delegation import (
    Ending,
    Outcome,
    SessionId,
    TaskId,
    TaskRequest,
    one_line,
    root_of,
)
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Entry,
    Event,
    ModelAnswered,
    ModelFailed,
    ModelFailure,
    Steered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    parts_of,
)
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.products.server.agui.bodies import interrupt_id
from orchestrator.products.server.agui.request import STATE
from orchestrator.products.server.agui.snapshot import id_of, merged_messages

PROTOCOL: Final = "1.0"
_SAID: Final = frozenset({ModelFailure.FAILED, ModelFailure.CUT_OFF, ModelFailure.BROKEN_OFF})
"""The failures whose text is a message of the conversation."""
APPROVAL_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "scope": {"enum": ["once", "task", "session"]},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""The answer to an approval."""


class RunEvents:
    """Makes the events of one run for one client."""

    def __init__(self, session: SessionId, agent: str) -> None:
        self._session = session
        self._root = root_of(session)
        self._events: list[dict[str, Any]] = []
        self._at = 0.0
        self._answers: Counter[TaskId] = Counter()
        """The number of answers of each task's model."""
        self._written: str | None = None
        """The text of the agent's next message that was sent; None if it has not begun."""
        self._last_text = ""
        """The text of the agent's last message."""
        self._requests: dict[TaskId, TaskRequest] = {}
        self._calls: set[tuple[TaskId, str]] = set()
        self._started: set[TaskId] = set()
        self._running: dict[TaskId, None] = {}
        """The subagents that have begun and not ended, parents first."""
        self._unanswered: dict[str, None] = {}
        """The calls of the agent's last answer that have no result."""
        self._usage: dict[str, Usage] = {}
        self._status = "queued"
        self._tasks: dict[TaskId, dict[str, Any]] = {}
        self._agent = agent

    def take(self) -> list[dict[str, Any]]:
        """Return the events that are due."""
        events, self._events = self._events, []
        return events

    @property
    def is_writing(self) -> bool:
        """Whether a message of the agent has begun and not ended."""
        return self._written is not None

    def begin(self, thread: str, run: str, state: Mapping[str, Any]) -> None:
        """Add the first events of a stream."""
        self._add("RUN_STARTED", threadId=thread, runId=run, protocolVersion=PROTOCOL)
        self._add("STATE_SNAPSHOT", snapshot={**state, STATE: self._state()})

    def begin_again(
        self, thread: str, run: str, state: Mapping[str, Any], messages: Sequence[msgspec.Raw]
    ) -> None:
        """Replace the events so far with a summary for a client that may know some of them."""
        before = self.take()
        self._usage.clear()
        self.begin(thread, run, state)
        self._add("MESSAGES_SNAPSHOT", messages=merged_messages(messages, before))
        self._events += [it for it in before if it["type"].startswith("SUBAGENT_")]

    def add(self, entry: Entry) -> None:
        """Add the events of a fact."""
        self._at = entry.at
        for event in parts_of(entry.event):
            self._add_fact(event)

    def _add_fact(self, event: Event) -> None:
        match event:
            case TurnStarted() | TurnResumed():
                self._change_status("running")
            case TurnEnded(outcome=outcome):
                self._end_text()
                self._change_status(str(outcome.ending))
            case TaskRequested(request):
                self._requests[request.id] = request
                self._set_task(request.id, {**_described(request), "status": "queued"})
            case TaskStarted(task):
                self._start(task)
            case TaskSettled(task, outcome):
                self._settle(task, outcome)
            case ApprovalAsked(task):
                self._set_status(task, "waiting")
            case ApprovalAnswered(task):
                self._set_status(task, "running")
            case _:
                self._add_step(event)

    def _add_step(self, event: Event) -> None:
        match event:
            case ModelAnswered(task, message):
                self._answer(task, message)
            case ModelFailed(task, text=text, reason=reason) if text and reason in _SAID:
                self._say(task, self._next_message(task), text)
                self._answers[task] += 1
            case ToolAnswered(task, message):
                self._return(task, message)
            case Steered(task, id_, text):
                self._message(task, id_, text, role="user")
            case _:
                pass

    def write(self, text: str) -> None:
        """Add the new part of the message that the agent is writing."""
        sent = self._written
        if sent is None:
            if not text:
                return
            sent = ""
            id_ = self._next_message(self._root)
            self._add("TEXT_MESSAGE_START", messageId=id_, role="assistant")
        # A model that is called again repeats the text, or writes another one.
        if len(text) > len(sent) and text.startswith(sent):
            id_ = self._next_message(self._root)
            self._add("TEXT_MESSAGE_CONTENT", messageId=id_, delta=text[len(sent) :])
            sent = text
        self._written = sent

    def show_written(self, text: str) -> None:
        """Show the unfinished message of the agent to a client that may know a part of it."""
        if not text:
            return
        id_ = self._next_message(self._root)
        snapshot = next(it for it in self._events if it["type"] == "MESSAGES_SNAPSHOT")
        known: list[Any] = snapshot["messages"]
        known[:] = [it for it in known if id_of(it) != id_]
        known.append({"id": id_, "role": "assistant", "content": text})
        self._add("TEXT_MESSAGE_START", messageId=id_, role="assistant")
        self._written = text

    def interrupt(self, thread: str, run: str, questions: Iterable[ApprovalQuestion]) -> None:
        """End the stream with questions; the run itself waits for their answers."""
        asked = list(questions)
        for task in reversed(self._running):
            ids = [interrupt_id(self._session, it.id) for it in asked if it.task == task]
            outcome = {"type": "suspended", **({"interruptIds": ids} if ids else {})}
            self._add("SUBAGENT_FINISHED", subagentRunId=task, outcome=outcome)
        interrupts = [self._interrupt(it) for it in asked]
        self._finish(thread, run, {"type": "interrupt", "interrupts": interrupts})

    def succeed(self, thread: str, run: str, output: str) -> None:
        """End the stream of a run that has an answer."""
        if output and output != self._last_text:
            # The output of a pipeline is no answer of a model.
            self._message(self._root, f"{self._root}.output", output)
        pending = list(self._unanswered)
        outcome = {"type": "success", **({"pendingToolCallIds": pending} if pending else {})}
        self._close_subagents()
        self._finish(thread, run, outcome, result=output)

    def cancel(self, thread: str, run: str) -> None:
        """End the stream of a run that was stopped."""
        self._close_subagents()
        self._finish(thread, run, {"type": "cancelled"})

    def fail(self, message: str, code: str) -> None:
        """End the stream of a run that failed."""
        self._add("RUN_ERROR", message=message, code=code, **self._usage_field())

    def _finish(self, thread: str, run: str, outcome: Mapping[str, Any], **fields: Any) -> None:
        self._end_text()
        self._add(
            "RUN_FINISHED",
            threadId=thread,
            runId=run,
            outcome=outcome,
            **fields,
            **self._usage_field(),
        )

    def _close_subagents(self) -> None:
        for task in reversed(self._running):
            self._add("SUBAGENT_FINISHED", subagentRunId=task, outcome={"type": "suspended"})

    def _usage_field(self) -> dict[str, Any]:
        usage = [
            {
                **({"model": model} if model else {}),
                "inputTokens": it.input_tokens,
                "outputTokens": it.output_tokens,
                "totalTokens": it.input_tokens + it.output_tokens,
                "cachedInputTokens": it.cached_tokens,
                "reasoningTokens": it.reasoning_tokens,
            }
            for model, it in self._usage.items()
        ]
        return {"usage": usage} if usage else {}

    def _interrupt(self, question: ApprovalQuestion) -> dict[str, Any]:
        why = f" ({question.why})" if question.why else ""
        return {
            "id": interrupt_id(self._session, question.id),
            "reason": "tool_call",
            "message": f"{question.path} asks to run {question.tool}{why}: {question.subject}",
            "toolCallId": self._call_id(question.task, question.call),
            "responseSchema": APPROVAL_SCHEMA,
            "expiresAt": datetime.fromtimestamp(question.deadline, UTC).isoformat(),
            "metadata": {
                "tool": question.tool,
                "subject": question.subject,
                "details": question.details,
                "path": question.path,
            },
            **self._owner(question.task),
        }

    # Facts.

    def _start(self, task: TaskId) -> None:
        if task not in self._started:
            self._started.add(task)
            self._running[task] = None
            request = self._requests[task]
            parent, call = request.parent, request.call.rpartition("#")[0]
            fields: dict[str, Any] = {"subagentRunId": task, "name": request.agent}
            fields["description"] = one_line(request.label or request.goal)
            if parent != self._root:
                fields["parentSubagentRunId"] = parent
            if (parent, call) in self._calls:
                fields["parentToolCallId"] = self._call_id(parent, call)
            self._add("SUBAGENT_STARTED", **fields)
        self._set_status(task, "running")

    def _settle(self, task: TaskId, outcome: Outcome) -> None:
        if task not in self._started:
            self._start(task)
        self._running.pop(task, None)
        if outcome.ending is Ending.SUCCEEDED:
            self._add("SUBAGENT_FINISHED", subagentRunId=task, result=outcome.output)
        else:
            message = f"{outcome.ending}: {outcome.error}"
            code = str(outcome.ending)
            self._add("SUBAGENT_ERROR", subagentRunId=task, message=message, code=code)
        self._set_status(task, str(outcome.ending))

    def _answer(self, task: TaskId, message: AssistantMessage) -> None:
        id_ = self._next_message(task)
        if message.text or (task == self._root and self.is_writing):
            self._say(task, id_, message.text)
        self._answers[task] += 1
        if task == self._root:
            self._unanswered = {}
        for call in message.calls:
            self._calls.add((task, call.id))
            call_id = self._call_id(task, call.id)
            if task == self._root:
                self._unanswered[call_id] = None
            owner = self._owner(task)
            self._add(
                "TOOL_CALL_START",
                toolCallId=call_id,
                toolCallName=call.name,
                parentMessageId=id_,
                **owner,
            )
            arguments = msgspec.json.encode(call.arguments).decode()
            self._add("TOOL_CALL_ARGS", toolCallId=call_id, delta=arguments, **owner)
            self._add("TOOL_CALL_END", toolCallId=call_id, **owner)
        spent = self._usage.get(message.model, Usage())
        self._usage[message.model] = spent + message.usage

    def _return(self, task: TaskId, message: ToolMessage) -> None:
        call_id = self._call_id(task, message.call)
        self._unanswered.pop(call_id, None)
        failed = {"metadata": {"failed": True}} if message.failed else {}
        self._add(
            "TOOL_CALL_RESULT",
            messageId=f"{call_id}.result",
            toolCallId=call_id,
            content=message.text,
            role="tool",
            **failed,
            **self._owner(task),
        )

    def _say(self, task: TaskId, id_: str, text: str) -> None:
        """Add the rest of a message, which is now durable."""
        if task != self._root:
            self._message(task, id_, text)
            return
        if self._written is not None and text.startswith(self._written):
            self.write(text)
            self._end_text()
            self._last_text = text
        elif self._written is not None:
            # The model was called again, and has written another text.
            self._end_text()
            self._message(task, f"{id_}.again", text)
        else:
            self._message(task, id_, text)

    def _message(self, task: TaskId, id_: str, text: str, role: str = "assistant") -> None:
        if not text:
            return
        owner = self._owner(task)
        self._add("TEXT_MESSAGE_START", messageId=id_, role=role, **owner)
        self._add("TEXT_MESSAGE_CONTENT", messageId=id_, delta=text, **owner)
        self._add("TEXT_MESSAGE_END", messageId=id_, **owner)
        if task == self._root and role == "assistant":
            self._last_text = text

    def _end_text(self) -> None:
        if self._written is not None:
            self._written = None
            self._add("TEXT_MESSAGE_END", messageId=self._next_message(self._root))

    # State.

    def _state(self) -> dict[str, Any]:
        return {
            "run": self._session,
            "agent": self._agent,
            "status": self._status,
            "tasks": {task: {**it} for task, it in self._tasks.items()},
        }

    def _set_task(self, task: TaskId, described: dict[str, Any]) -> None:
        self._tasks[task] = described
        self._patch("add", f"tasks/{_pointer(task)}", {**described})

    def _set_status(self, task: TaskId, status: str) -> None:
        if (known := self._tasks.get(task)) is None:
            self._change_status(status)
        elif known["status"] != status:
            known["status"] = status
            self._patch("replace", f"tasks/{_pointer(task)}/status", status)

    def _change_status(self, status: str) -> None:
        if self._status != status:
            self._status = status
            self._patch("replace", "status", status)

    def _patch(self, op: str, path: str, value: Any) -> None:
        delta = [{"op": op, "path": f"/{STATE}/{path}", "value": value}]
        self._add("STATE_DELTA", delta=delta)

    # Ids.

    def _next_message(self, task: TaskId) -> str:
        return f"{task}.{self._answers[task]}"

    def _call_id(self, task: TaskId, call: str) -> str:
        """Return the id of a call: the agent's own calls come back with their results."""
        return call if task == self._root else f"{task}.{call}"

    def _owner(self, task: TaskId) -> dict[str, str]:
        return {} if task == self._root else {"subagentRunId": task}

    def _add(self, kind: str, **fields: Any) -> None:
        at = {"timestamp": int(self._at * 1000)} if self._at else {}
        self._events.append({"type": kind, **at, **fields})


def _described(request: TaskRequest) -> dict[str, Any]:
    return {
        "agent": request.agent,
        "goal": one_line(request.label or request.goal),
        "parent": request.parent,
    }


def _pointer(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
