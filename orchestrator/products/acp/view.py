"""The view of one session in an editor: events of its tasks become updates, in their order.

An editor that knows subagents gets a session for each task. Any other one gets each task as a tool
call, and the calls of the task with its name. The tasks that the session itself delegates are its
plan.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from orchestrator.agents import ToolCall, new_message_id
from orchestrator.delegation import Ending, Outcome, SessionId, Status, TaskId, Tree, root_of
from orchestrator.delegation.tree.node import TaskNode
from orchestrator.ports import sessions
from orchestrator.products.acp import schema, tool_calls
from orchestrator.products.acp.tool_calls import DELEGATE_TASK

Send: TypeAlias = Callable[[str, schema.Update], None]
"""Sends an update of the session of an id."""
TextEvent: TypeAlias = (
    sessions.TextWritten | sessions.TextReplaced | sessions.ReasoningWritten | sessions.ModelRetried
)
MOST_PLANNED: Final = 100
"""How many tasks a plan names: the newest."""
STOPS: Final = {Ending.SUCCEEDED: "end_turn", Ending.CANCELLED: "cancelled"}
"""The stop reasons of subagents; any other end is an error."""


class View:
    """Shows a session to an editor."""

    def __init__(
        self, session: SessionId, tree: Tree, cwd: Path, send: Send, *, knows_subagents: bool
    ) -> None:
        self._session = session
        self._root = root_of(session)
        self._tree = tree
        self._cwd = cwd
        self._send = send
        self._knows_subagents = knows_subagents
        self._messages: dict[TaskId, str] = {}
        """The ids of the messages that models are writing."""
        self._calls: dict[str, schema.CallBegun] = {}
        """The calls without an answer."""
        self._planned: list[TaskId] = []
        """The tasks of the plan."""
        self._shown_plan: list[schema.PlanEntry] = []
        self._has_answer = False
        """The session has written text since its last call."""

    def show(self, events: list[sessions.RunEvent]) -> None:
        """Show events, in their order."""
        planned = False
        for event in events:
            self._show(event)
            planned |= event.task in self._planned
        if planned:
            self._show_plan()

    def _show(self, event: sessions.RunEvent) -> None:
        match event:
            case (
                sessions.TextWritten()
                | sessions.TextReplaced()
                | sessions.ReasoningWritten()
                | sessions.ModelRetried()
            ):
                self._show_text(event)
            case sessions.ToolCalled(task=task, call=call):
                self._messages.pop(task, None)
                if task == self._root:
                    self._has_answer = False
                self._begin_call(task, call)
            case sessions.ToolReturned(task=task, call=call, text=text, failed=failed):
                self._end_call(task, call, text, failed=failed)
            case sessions.TaskDelegated(task=task, parent=parent, goal=goal):
                self._begin_task(task, parent, goal)
            case sessions.ApprovalNeeded(task=task, question=question):
                self._await_approval(task, question.call)
            case sessions.TaskEnded(task=task, outcome=outcome):
                self._messages.pop(task, None)
                self._drop_calls(task)
                if task == self._root:
                    self._end_turn(outcome)
                else:
                    self._end_task(task, outcome)

    # Texts.

    def _show_text(self, event: TextEvent) -> None:
        match event:
            case sessions.TextWritten(task=task, text=text):
                self._write(task, text)
            case sessions.TextReplaced(task=task, text=text):
                # A chunk cannot be taken back: the text is another message.
                self._messages.pop(task, None)
                self._write(task, text)
            case sessions.ReasoningWritten(task=task, text=text):
                self._think(task, text)
            case sessions.ModelRetried(task=task, error=error):
                self._messages.pop(task, None)
                self._think(task, f"The model is asked again: {error}\n")
                self._messages.pop(task, None)

    def _write(self, task: TaskId, text: str) -> None:
        if task == self._root:
            self._has_answer = self._has_answer or bool(text)
        if (session := self._session_of(task)) is not None:
            chunk = schema.MessageChunk(
                content=schema.Text(text=text), message_id=self._message_of(task)
            )
            self._send(session, chunk)

    def _think(self, task: TaskId, text: str) -> None:
        if (session := self._session_of(task)) is not None:
            chunk = schema.ThoughtChunk(
                content=schema.Text(text=text), message_id=self._message_of(task)
            )
            self._send(session, chunk)

    def _message_of(self, task: TaskId) -> str:
        return self._messages.setdefault(task, new_message_id())

    def _session_of(self, task: TaskId) -> str | None:
        """Return the session of a task's texts; None if the editor shows no subagents."""
        return task if task == self._root or self._knows_subagents else None

    # Calls.

    def _begin_call(self, task: TaskId, call: ToolCall) -> None:
        begun = tool_calls.show_call(task, call, self._cwd, self._name_in_titles(task))
        self._calls[begun.tool_call_id] = begun
        if self._is_shown(begun):
            self._send(self._session_of(task) or self._session, begun)

    def _end_call(self, task: TaskId, call: ToolCall, text: str, *, failed: bool) -> None:
        session = self._session_of(task) or self._session
        begun = self._calls.pop(tool_calls.call_id(task, call.id), None)
        if begun is None:
            return
        if not self._is_shown(begun):
            if not failed:
                return
            self._send(session, begun)
        self._send(session, tool_calls.show_result(begun, text, failed=failed))

    def _drop_calls(self, task: TaskId) -> None:
        """Show the calls as failed that a task leaves without an answer."""
        for id_ in [it for it in self._calls if it.startswith(f"{task}/")]:
            if self._is_shown(self._calls.pop(id_)):
                failed = schema.CallChanged(tool_call_id=id_, status="failed")
                self._send(self._session_of(task) or self._session, failed)

    def _is_shown(self, begun: schema.CallBegun) -> bool:
        """Return whether a call is shown; its tasks are, where the editor has no place for both."""
        return begun.name != DELEGATE_TASK or self._knows_subagents

    def _await_approval(self, task: TaskId, call: str) -> None:
        begun = self._calls.get(tool_calls.call_id(task, call))
        if begun is not None and self._is_shown(begun):
            waits = schema.CallChanged(tool_call_id=begun.tool_call_id, status="pending")
            self._send(self._session_of(task) or self._session, waits)
        if task != self._root and self._knows_subagents:
            self._change_subagent(task, "requires_action")

    def question(self, task: TaskId, call: ToolCall, why: str) -> tuple[str, schema.CallFields]:
        """Return the session and the call of an approval question."""
        id_ = tool_calls.call_id(task, call.id)
        begun = self._calls.get(id_)
        if begun is None:
            # The call began in an earlier process.
            begun = tool_calls.show_call(task, call, self._cwd, self._name_in_titles(task))
            self._calls[id_] = begun
        return self._session_of(task) or self._session, tool_calls.show_question(begun, why)

    def _name_in_titles(self, task: TaskId) -> str:
        is_named = task != self._root and not self._knows_subagents
        return self._name_of(task) if is_named else ""

    def _name_of(self, task: TaskId) -> str:
        return self._tree[task].path.rpartition("/")[2]

    # Tasks.

    def _begin_task(self, task: TaskId, parent: TaskId, goal: str) -> None:
        name = self._name_of(task)
        if parent == self._root:
            if all(self._tree[it].ended is not None for it in self._planned):
                self._planned.clear()
            self._planned.append(task)
            del self._planned[:-MOST_PLANNED]
        if self._knows_subagents:
            begun = schema.SubagentChanged(
                session_id=task,
                title=name,
                description=goal,
                capabilities=schema.SubagentCapabilities(cancel=schema.Supported()),
                state=schema.WorkState(state="running"),
            )
            self._send(parent, begun)
            self._send(task, schema.UserChunk(content=schema.Text(text=goal)))
        else:
            call = schema.CallBegun(
                tool_call_id=task,
                title=tool_calls.short_title(goal, name),
                kind="think",
                status="in_progress",
            )
            self._send(self._session, call)

    def _end_task(self, task: TaskId, outcome: Outcome) -> None:
        if self._knows_subagents:
            self._change_subagent(task, "idle", STOPS.get(outcome.ending, "error"))
            return
        text = outcome.output if outcome.succeeded else f"{outcome.ending}: {outcome.error}"
        ended = schema.CallChanged(
            tool_call_id=task,
            status="completed" if outcome.succeeded else "failed",
            content=(tool_calls.show_text(text),),
        )
        self._send(self._session, ended)

    def _change_subagent(
        self, task: TaskId, state: schema.WorkKind, stop: str | None = None
    ) -> None:
        parent = self._tree[task].parent
        assert parent is not None, "a task below the root has a parent"
        work = schema.WorkState(state=state, stop_reason=stop)
        self._send(parent, schema.SubagentChanged(session_id=task, state=work))

    def _show_plan(self) -> None:
        entries = [
            schema.PlanEntry(
                content=tool_calls.short_title(self._tree[task].goal, self._name_of(task)),
                status=_progress(self._tree[task]),
            )
            for task in self._planned
        ]
        if entries != self._shown_plan:
            self._shown_plan = entries
            self._send(self._session, schema.Plan(entries=entries))

    def _end_turn(self, outcome: Outcome) -> None:
        # A program writes no text, and a task may have answered in its place.
        if outcome.succeeded and outcome.output and not self._has_answer:
            self._write(self._root, outcome.output)
            self._messages.pop(self._root, None)
        self._has_answer = False

    def show_unfinished(self) -> None:
        """Show the tasks of an earlier process that have not ended, before their events come."""
        for task in self._tree:
            node = self._tree[task]
            if node.parent is not None and node.ended is None:
                self._begin_task(task, node.parent, node.goal)
        if self._planned:
            self._show_plan()


def _progress(node: TaskNode) -> Literal["pending", "in_progress", "completed"]:
    if node.ended is not None:
        return "completed"
    return "pending" if node.status == Status.QUEUED else "in_progress"
