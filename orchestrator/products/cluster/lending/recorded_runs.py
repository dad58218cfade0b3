"""Which runs the journal says count: those whose calls have no answer yet.

The call of a run may be in a session that is not in memory: an interrupted run awaits that a caller
resumes it. What such a session says is read from the journal before a run is taken to be over.
"""

from collections.abc import Collection, Sequence

import trio

from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import TaskRequested
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.records import Records
from orchestrator.products.cluster.work import RunId
from orchestrator.products.cluster.worker.wire import call_prefix_in


class RecordedRuns:
    """Knows whether runs count."""

    def __init__(self, book: Bookkeeper, journal: str) -> None:
        """Know the runs of a journal.

        Args:
            book: has the state of the journal.
            journal: its name, with which its runs begin.
        """
        self._book = book
        self._journal = journal
        self._read: dict[RunId, bool] = {}
        """Records of runs whose sessions are not in memory."""

    def counts(self, run: RunId) -> bool | None:
        """Return whether a run counts; None if that must be read first (`read`)."""
        tasks = self._tasks_of(run)
        records = self._book.records
        if not any(it in records.tasks for it in tasks):
            is_all_there = len(records.sessions) == len(records.all_sessions)
            return False if is_all_there or not tasks else self._read.get(run)
        self._read.pop(run, None)
        return _counts(records, tasks, run)

    async def read(self, runs: Collection[RunId]) -> None:
        """Read the unknown records of some runs, and forget all others."""
        await trio.lowlevel.checkpoint()
        self._read = {run: it for run, it in self._read.items() if run in runs}
        for run in runs:
            if self.counts(run) is None:
                self._read[run] = await self._read_one(run)

    async def _read_one(self, run: RunId) -> bool:
        tasks = self._tasks_of(run)
        session = await self._session_of(tasks)
        if session is None:
            return False
        past = await self._book.cache.read_evicted(session)
        return _counts(self._book.records if past is None else past, tasks, run)

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

    def _tasks_of(self, run: RunId) -> Sequence[TaskId]:
        """Return the possible names of a run's task: a turn's number may be part of it."""
        prefix = call_prefix_in(run, self._journal)
        if prefix is None:
            return ()
        return [TaskId(it) for it in (prefix, prefix.rpartition("~")[0]) if it]


def _counts(records: Records, tasks: Sequence[TaskId], run: RunId) -> bool:
    found = next((it for id_ in tasks if (it := records.tasks.get(id_))), None)
    if found is None or records.is_cancelled(found.id):
        return False
    return any(placed.run == run for placed in found.placed.values())
