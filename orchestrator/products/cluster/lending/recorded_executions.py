"""The executions that count according to the journal: their calls have no answer yet.

The call of an execution may be in a session that is not in memory: an interrupted run awaits that a
caller resumes it. What such a session says is read from the journal before an execution is taken to
be over.
"""

from collections.abc import Collection, Sequence

import trio

from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import TaskRequested
from orchestrator.ports.journals import Bookkeeper, Records
from orchestrator.products.cluster.work import ExecutionId
from orchestrator.products.cluster.worker.wire import call_prefix_in


class RecordedExecutions:
    """Knows whether runs count."""

    def __init__(self, book: Bookkeeper, journal: str) -> None:
        """Know the executions of a journal, whose runs begin with its name."""
        self._book = book
        self._journal = journal
        self._read: dict[ExecutionId, bool] = {}
        """Records of executions whose sessions are not in memory."""

    def counts(self, execution: ExecutionId) -> bool | None:
        """Return whether an execution counts; None if that must be read first (`read`)."""
        tasks = self._tasks_of(execution)
        records = self._book.records
        if not any(it in records.tasks for it in tasks):
            is_all_there = len(records.sessions) == len(records.all_sessions)
            return False if is_all_there or not tasks else self._read.get(execution)
        self._read.pop(execution, None)
        return _counts(records, tasks, execution)

    async def read(self, executions: Collection[ExecutionId]) -> None:
        """Read the unknown records of some runs, and forget all others."""
        await trio.lowlevel.checkpoint()
        self._read = {
            execution: it for execution, it in self._read.items() if execution in executions
        }
        for execution in executions:
            if self.counts(execution) is None:
                self._read[execution] = await self._read_one(execution)

    async def _read_one(self, execution: ExecutionId) -> bool:
        tasks = self._tasks_of(execution)
        session = await self._session_of(tasks)
        if session is None:
            return False
        past = await self._book.cache.read_evicted(session)
        return _counts(self._book.records if past is None else past, tasks, execution)

    async def _session_of(self, tasks: Sequence[TaskId]) -> SessionId | None:
        await trio.lowlevel.checkpoint()
        for task in tasks:
            if SessionId(task) in self._book.records.all_sessions:
                return SessionId(task)
            for entry in await self._book.read_naming(TaskRequested, task):
                event = entry.event
                if isinstance(event, TaskRequested) and event.request.id == task:
                    return entry.session
        return None

    def _tasks_of(self, execution: ExecutionId) -> Sequence[TaskId]:
        """Return the possible names of an execution's task: a turn's number may be part of it."""
        prefix = call_prefix_in(execution, self._journal)
        if prefix is None:
            return ()
        return [TaskId(it) for it in (prefix, prefix.rpartition("~")[0]) if it]


def _counts(records: Records, tasks: Sequence[TaskId], execution: ExecutionId) -> bool:
    found = next((it for id_ in tasks if (it := records.tasks.get(id_))), None)
    if found is None or records.is_cancelled(found.id):
        return False
    return any(placed.execution == execution for placed in found.placed.values())
