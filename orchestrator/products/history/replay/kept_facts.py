"""The facts of an old run that a new run begins with.

A fork keeps the facts from before a task was requested. A retry leaves out the end of a task and
its consequences: the causes of each kept fact are kept too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from msgspec.structs import replace

from orchestrator.delegation import Cause, Mode, TaskId, TaskRecord, events
from orchestrator.delegation.board import BoardState
from orchestrator.delegation.memory import MemoryState
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import ended_with_caller
from orchestrator.products.history.replay.record import DELEGATION_TOOLS, RecordedRun, ReplayError

CopiedFact: TypeAlias = (
    events.WorkFact | events.ReplyDelivered | events.SteeringFact | events.ProcessFact
)
"""Facts that hold for the new run too. All other facts hold for the old run alone: the copy pays
for no model call. The text of a failed call is copied if later turns read it; so are boards, and
summaries for delegated tasks.
"""
KeptFacts: TypeAlias = Callable[[RecordedRun, TaskId], Sequence[events.Entry]]
"""Selects the facts of a run that a new run begins with, given one of the run's tasks."""


def facts_before(record: RecordedRun, task: TaskId) -> list[events.Entry]:
    """Return the facts before the request of a task, and later answers to earlier tool calls."""
    until = _requested_at(record, task)
    kept = [it for it in _copied_facts(record) if it.seq < until]
    return [*kept, *_pending_tool_answers(record, until), *_memories_read_later(record, until)]


def facts_without(record: RecordedRun, task: TaskId) -> list[events.Entry]:
    """Return the facts that do not follow from the end of a task; of the task, keep only the
    request. Raise `ReplayError` if the task has not ended.
    """
    found = record.ledger.tasks[task]
    outcome = record.session.last_outcome if found.is_root else found.outcome
    path = found.path
    if outcome is None:
        raise ReplayError(f"{path} has not ended: there is nothing to retry yet")
    if found.is_root:
        if len(record.turns) > 1:
            raise ReplayError(
                f"{path} is a conversation: send the message again in the session, or fork it"
            )
        return facts_before(record, task)
    return list(_Retry(record, found).kept())


def _copied_facts(record: RecordedRun) -> Iterator[events.Entry]:
    for entry in record.entries:
        if isinstance(entry.event, CopiedFact) or entry.seq in record.broken_off_answers:
            yield entry
        else:
            match entry.event:
                case (
                    events.StateChanged(state=BoardState.NAME | MemoryState.NAME)
                    | events.ModelFailed(reason=events.ModelFailure.CONVERSATION)
                ):
                    yield entry
                case _:
                    pass


def _requested_at(record: RecordedRun, task: TaskId) -> int:
    if task == record.root:
        if not record.turns:
            raise UnknownIdError(f"run {record.run} has no turn")
        return min(entry.seq for entry in record.turns.values())
    request = record.ledger.tasks[task].request
    assert request is not None, "every task but the root has a request"
    return record.requests[request.parent, request.call].seq


def _pending_tool_answers(record: RecordedRun, until: int) -> Iterator[events.Entry]:
    """Yield the later answers to earlier calls, so that no tool runs twice."""
    for entry in record.entries:
        event = entry.event
        if entry.seq > until and isinstance(event, events.ToolAnswered):
            call = record.calls.get((event.task, event.message.call))
            if call is None or call.seq > until or call.name in DELEGATION_TOOLS:
                continue
            if (event.task, event.message.call) in record.first_request_seqs:
                continue  # its tool is an agent
            # The open calls of a turn are answered when the next turn starts.
            end = record.outcomes.get((event.task, call.turn))
            if end is None or end.seq > until:
                yield events.Entry(entry.seq, entry.at, entry.session, replace(event, mail=()))


def _memories_read_later(record: RecordedRun, until: int) -> Iterator[events.Entry]:
    """Yield the first text of each memory that the run read after a point, and not before it.

    No task of the run had changed it, so it is the memory at that point.
    """
    known: set[str] = set()
    for entry in record.entries:
        match entry.event:
            case events.StateChanged(state=MemoryState.NAME, changes=changes) if "texts" in changes:
                recorded = cast("dict[str, str]", changes["texts"])
                read = {file: text for file, text in recorded.items() if file not in known}
                known.update(recorded)
                if read and entry.seq > until and "changes" not in entry.event.changes:
                    changed = replace(entry.event, changes={"texts": read})
                    yield events.Entry(entry.seq, entry.at, entry.session, changed)
            case _:
                pass


class _Retry:
    """Passes through a run once, and leaves out the consequences of the end of one task.

    It leaves out: all work of the task; the next step of each ancestor that saw the end, and all
    later steps; all work of tasks that depended on the task; and the cancels of tasks that ended
    with a task whose own end is left out. Such a task continues from its last step.
    """

    def __init__(self, record: RecordedRun, task: TaskRecord) -> None:
        self._record = record
        self._tasks = record.ledger.tasks
        self._ended_at = record.outcomes[record.task_turn(task.id)].seq
        self._requested_at = _requested_at(record, task.id)
        self._anew = {task.id}
        """The tasks that keep only their request."""
        self._absent: set[TaskId] = set()
        """The tasks whose request is left out too."""
        self._told: set[TaskId] = set()
        """The tasks that received an answer that is left out: their next step is left out too."""
        self._stopped: set[TaskId] = set()
        """The tasks that take no more steps."""
        self._unended: set[TaskId] = set()
        """The tasks that have not ended in the new run."""
        self._open_calls: set[tuple[TaskId, str]] = set()
        """The calls without an answer in the new run."""
        self._open_turns: set[int] = set()
        self._ended_turns: set[int] = set()
        self._kept: set[int] = set()
        self._undo_end(task)
        self._undo_dependents(task)

    def _undo_dependents(self, task: TaskRecord) -> None:
        """Let the tasks that depended on a task begin anew, and in turn their dependents."""
        dependents: dict[TaskId, list[TaskRecord]] = {}
        for each in self._tasks.values():
            for need in () if each.request is None else each.request.needs:
                dependents.setdefault(need, []).append(each)
        pending = [task]
        while pending:
            for dependent in dependents.get(pending.pop().id, ()):
                if dependent.id not in self._anew:
                    self._anew.add(dependent.id)
                    self._undo_end(dependent)
                    pending.append(dependent)

    def _undo_end(self, task: TaskRecord) -> None:
        """Mark a task as not ended, and with it the ancestors that wait for it."""
        while task.request is not None and task.parent is not None:
            self._unended.add(task.id)
            if task.mode is Mode.DETACHED:
                return  # the task's end is mail
            call, _, _ = task.request.call.rpartition("#")
            self._open_calls.add((task.parent.id, call))
            if task.parent.is_root:
                self._open_turns.add(task.request.origin.turn)
            task = task.parent
        self._unended.add(task.id)

    def kept(self) -> Iterator[events.Entry]:
        """Yield the kept facts."""
        yield from _memories_read_later(self._record, self._requested_at)
        for entry in _copied_facts(self._record):
            if self._is_kept(entry):
                self._kept.add(entry.seq)
                yield entry
            else:
                # The answer before the end of a task may have the same number.
                self._kept.discard(entry.seq)

    def _is_kept(self, entry: events.Entry) -> bool:  # noqa: C901, PLR0911, PLR0912 (a case a fact)
        root = self._record.root
        match event := entry.event:
            case events.TaskRequested(request):
                if self._is_left_out(request.parent):
                    self._absent.add(request.id)
                return request.id not in self._absent
            case events.MessageReceived():
                return root not in self._stopped
            case events.StateChanged(state=MemoryState.NAME):
                return entry.seq < self._requested_at
            case events.StateChanged():
                return True
            case events.TurnStarted(mail=mail):
                if not self._kept.issuperset(mail):
                    self._stopped.add(root)
                return self._takes_step(root)
            case events.TurnEnded(turn=turn):
                return self._ends_turn(turn)
            case events.ReplyDelivered(turn=turn):
                return turn in self._ended_turns
            case events.TaskSettled(task):
                return not self._is_left_out(task) and self._settles(self._tasks[task])
            case events.ToolAnswered(task, message, mail):
                if self._is_left_out(task):
                    return False
                return self._is_answered(task, message.call, mail)
            case events.CancelRequested(task):
                return not self._is_left_out(task) and task not in self._unended
            case (
                events.ModelAnswered(task=task)
                | events.ModelFailed(task=task)
                | events.SteeringSeen(task)
            ):
                return self._takes_step(task)
            case _:
                is_copied = "only these facts are left of those that are copied"
                assert isinstance(
                    event, events.TaskStarted | events.SteeringFact | events.ProcessFact
                ), is_copied
                return not self._is_left_out(event.task)

    def _is_left_out(self, task: TaskId) -> bool:
        return task in self._anew or task in self._absent or task in self._stopped

    def _takes_step(self, task: TaskId) -> bool:
        if task in self._told:
            self._stopped.add(task)
        return not self._is_left_out(task)

    def _is_answered(self, task: TaskId, call: str, mail: Sequence[int]) -> bool:
        if (task, call) in self._open_calls or not self._kept.issuperset(mail):
            self._told.add(task)
            return False
        return True

    def _ends_turn(self, turn: int) -> bool:
        root = self._record.root
        if turn in self._open_turns or root in self._told:
            self._stopped.add(root)
        if root not in self._stopped:
            self._ended_turns.add(turn)
        return turn in self._ended_turns

    def _settles(self, task: TaskRecord) -> bool:
        if task.id in self._unended:
            return False
        assert task.outcome is not None, "it has settled"
        assert task.request is not None, "only a root has no request"
        is_refused = task.outcome.cause is Cause.DEPENDENCY
        if is_refused and not self._unended.isdisjoint(task.request.needs):
            self._anew.add(task.id)
            self._undo_end(task)
        elif self._was_cut_short(task):
            self._undo_end(task)
        return task.id not in self._unended

    def _was_cut_short(self, task: TaskRecord) -> bool:
        """Return whether a task ended with an ancestor whose end is left out."""
        parent, outcome = task.parent, task.outcome
        if parent is None or outcome is None or not ended_with_caller(task):
            return False
        ended_at = self._record.outcomes[self._record.task_turn(task.id)].seq
        if outcome.cause is Cause.NOT_AWAITED and ended_at < self._ended_at:
            return False  # the program stops waiting for it again
        return parent.id in self._unended or self._was_cut_short(parent)
