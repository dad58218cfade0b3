"""The model work of running runs, and its prediction from runs that have ended.

A prediction knows the agent of a run, the agent of a task and the number of its calls so far. It
learns three means: the seconds of calls, the seconds that a run had left beyond its open calls, and
the seconds along the longest chain of calls below a task. Only calls that may wait for a provider
count, so a program without limits pays nothing for it. The next process begins with these means.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import trio

from orchestrator.agents import AssistantMessage
from orchestrator.agents.models.call_order import CALL_SECONDS, Call, RunWork
from orchestrator.agents.models.samples import step_of
from orchestrator.delegation import Outcome, SessionId, SessionRecord, TaskId, TaskRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.engine.call_share import CallShareSlot
from orchestrator.kernel.engine.stored_predictions import StoredPredictions, Table
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

DEEPEST: Final = 16
"""How many tasks that need a task are looked at, one behind the other."""

RunKey: TypeAlias = tuple[str, str, int]
"""The agent of the run, the agent of a task, and the step of its calls."""


class Predictions:
    """The means of ended runs."""

    def __init__(self) -> None:
        self.calls: Final = Table()
        """The seconds of a call, by the agent of the task, and by the size of the prompt."""
        self.unseen: Final = Table()
        """The seconds of a run beyond its open calls, by `RunKey`."""
        self.left: Final = Table()
        """The seconds of the longest chain of calls below a task, by its agent and step."""
        self.tail: Final = Table()
        """The same of a parent from the moment at which it went on after a child, by the agents of
        both; zero where it only waited for other children."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """All tables by name, as they are stored."""
        return {"calls": self.calls, "unseen": self.unseen, "left": self.left, "tail": self.tail}

    def call_seconds(self, agent: str, size: int = 0) -> float:
        for key in ((agent, step_of(size)), agent, ""):
            if mean := self.calls.mean(key):
                return mean
        return CALL_SECONDS

    def add_call(self, agent: str, size: int, seconds: float) -> None:
        for key in ((agent, step_of(size)), agent, ""):
            self.calls.add(key, seconds)


class _TaskWork:
    """The chain of calls that leads to a task."""

    __slots__ = ("agent", "below", "calls", "followed", "front", "idle", "marks", "parent")

    def __init__(self, agent: str, parent: "_TaskWork | None") -> None:
        self.agent = agent
        self.parent = parent
        self.idle: dict[_TaskWork, None] = {}
        """Its children without an open call, since it last began something."""
        self.followed: float | None = None
        """The chain of its parent when that went on after it."""
        self.front = 0.0
        """The seconds of the longest chain of calls that ends with its latest one."""
        self.below = 0.0
        """The same of the calls of its descendants."""
        self.calls = 0
        self.marks: dict[int, float] = {}
        """The chain at the first call of each step."""
        if parent is not None:
            parent.begin()
            self.front = parent.end

    @property
    def end(self) -> float:
        return max(self.front, self.below)

    def begin(self) -> None:
        """Note that it makes a call or has a new child: this follows its idle children."""
        for child in self.idle:
            child.followed = self.end
        self.idle.clear()

    def begin_call(self) -> None:
        self.begin()
        self.front = self.end
        task = self
        while (parent := task.parent) is not None:
            parent.idle.pop(task, None)
            task.followed = None
            task = parent

    def end_call(self, seconds: float) -> None:
        self.front += seconds
        self.calls += 1
        task = self
        while (parent := task.parent) is not None:
            parent.idle[task] = None
            parent.below = max(parent.below, self.front)
            task = parent


class _Run:
    """A run with calls that may wait."""

    __slots__ = ("_calls_of_root", "agent", "marks", "tasks", "work")

    def __init__(self, session: SessionRecord, work: RunWork) -> None:
        self.agent = session.root.agent
        self.work = work
        self._calls_of_root = _calls_of_turn(session)
        self.tasks: dict[TaskId, _TaskWork] = {}
        self.marks: dict[RunKey, float] = {}
        """The seconds used and open at the latest call of each kind."""

    def task(self, record: TaskRecord) -> _TaskWork:
        if (found := self.tasks.get(record.id)) is None:
            parent = None if record.parent is None else self.task(record.parent)
            found = self.tasks[record.id] = _TaskWork(record.agent, parent)
            found.calls = self._calls_of_root if parent is None else record.node.usage.calls
        return found


class Workload:
    """The work of the runs that have made calls which may wait."""

    def __init__(self, book: Bookkeeper, call_share: CallShareSlot) -> None:
        self._book = book
        self._call_share = call_share
        self.predictions: Final = Predictions()
        self._stored = StoredPredictions(book.journal_file, self.predictions.tables)
        self.runs: Final[dict[SessionId, _Run]] = {}
        self._open: Final[dict[TaskId, Call]] = {}
        """The latest open call of each task."""

    def queued_call(self, record: TaskRecord, size: int) -> Call:
        """Return the next call of a task, with the prediction for its run."""
        run = self.runs.get(record.session)
        if run is None:
            run = self.runs[record.session] = self._new_run(record.session)
        session = self._book.records.sessions[record.session]
        task, work, predictions = run.task(record), run.work, self.predictions
        task.begin_call()
        step = step_of(task.calls)
        seconds = work.call_seconds = predictions.call_seconds(record.agent, size)
        work.to_come = session.slots.queued + session.tree.to_come
        key = (run.agent, record.agent, step)
        work.unseen = predictions.unseen.mean(key)
        left = predictions.left.mean((record.agent, step)) or seconds
        call = Call(work, left=left, path=left + self._behind(record, task))
        task.marks.setdefault(step, task.front)
        self._open[record.id] = call
        run.marks[key] = work.consumed + (work.open + work.to_come) * seconds
        return call

    def ended_call(self, record: TaskRecord, size: int, seconds: float) -> None:
        """Learn the seconds of a call at its provider."""
        self._open.pop(record.id, None)
        if (run := self.runs.get(record.session)) is None:
            return
        run.task(record).end_call(seconds)
        if seconds:
            self.predictions.add_call(record.agent, size, seconds)

    def wait_text(self, task: TaskId) -> str:
        """Return the place of a task's call in the queue of a provider; empty if none waits."""
        call = self._open.get(task)
        return "" if call is None else call.wait_text

    def wait_texts(self) -> dict[TaskId, str]:
        """Return the same of all tasks that wait."""
        return {task: call.wait_text for task, call in self._open.items() if call.waits_in}

    def end_run(self, session: SessionId, outcome: Outcome | None) -> None:
        """Forget a run whose turn has ended, and learn from it if it succeeded."""
        run = self.runs.pop(session, None)
        if run is None or outcome is None or not outcome.succeeded:
            return
        predictions, total = self.predictions, run.work.consumed
        for key, known in run.marks.items():
            predictions.unseen.add(key, max(0.0, total - known))
        for task in run.tasks.values():
            for step, front in task.marks.items():
                predictions.left.add((task.agent, step), task.end - front)
            if (parent := task.parent) is not None:
                after = 0.0 if task.followed is None else parent.end - task.followed
                predictions.tail.add((parent.agent, task.agent), after)
        self._stored.save()

    def _new_run(self, id_: SessionId) -> _Run:
        session = self._book.records.sessions[id_]
        # Its caller does not wait: the clock began it, or only detached tasks go on.
        background = session.kind is SessionKind.JOB_RUN or session.turn is None
        work = RunWork(id_, session.owner, trio.current_time(), background=background)
        work.key, work.share = self._call_share.share_of(session)
        # Its calls so far did not wait, or were made by a process that is gone.
        turns = session.tree.turns
        for node in reversed([*session.tree.nodes().values()]):
            if node.parent is None or not turns or node.requested < turns[-1][0]:
                break
            self._count_calls(work, node.agent, node.usage.calls)
        self._count_calls(work, session.root.agent, _calls_of_turn(session))
        return _Run(session, work)

    def _count_calls(self, work: RunWork, agent: str, calls: int) -> None:
        work.calls += calls
        work.consumed += calls * self.predictions.call_seconds(agent)

    def _behind(self, record: TaskRecord, task: _TaskWork) -> float:
        """Return the predicted seconds after a task: of those that need it, and of its parents."""
        seconds = self._needing(record, DEEPEST)
        for parent, child in _pairs(task):
            seconds += self.predictions.tail.mean((parent.agent, child.agent)) or 0.0
        return seconds

    def _needing(self, record: TaskRecord, deepest: int) -> float:
        if not record.dependents or not deepest:
            return 0.0
        predictions = self.predictions
        return max(
            (predictions.left.mean((it.agent, 0)) or predictions.call_seconds(it.agent))
            + self._needing(it, deepest - 1)
            for it in record.dependents
        )


def _calls_of_turn(session: SessionRecord) -> int:
    """Return the number of answers of a session in its turn."""
    if (turn := session.turn) is None:
        return 0
    answers = session.root.transcript[turn.transcript_start :]
    return sum(isinstance(it, AssistantMessage) for it in answers)


def _pairs(task: _TaskWork) -> Iterator[tuple[_TaskWork, _TaskWork]]:
    while (parent := task.parent) is not None:
        yield parent, task
        task = parent
