"""A run that another process writes, read from its journal and kept up to date."""

from collections.abc import Sequence
from typing import Final

import trio

from orchestrator.cli.journal_queries import FoundRun, read_listed, read_run
from orchestrator.delegation import Ledger, TaskId, Tree, root_of
from orchestrator.delegation.events import Entry
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports.journals import Journals, fold

FOLD_BATCH: Final = 500
"""The number of facts that are folded before other tasks have a turn."""


class RunReader:
    """The state of one run. `open_run` finds it."""

    def __init__(self, journals: Journals, found: FoundRun) -> None:
        self._journals = journals
        self._journal = found.journal
        self._title = found.title
        self._store = found.store
        self.file = found.store.file
        """The journal file that has the run; None if it is not in a file."""
        self.session = found.id
        self._loaded = _LoadedRun(found)

    @property
    def ledger(self) -> Ledger:
        return self._loaded.ledger

    @property
    def tree(self) -> Tree:
        return self.ledger.sessions[self.session].tree

    @property
    def open_questions(self) -> list[ApprovalQuestion]:
        return list(self.ledger.open_questions.values())

    @property
    def seq(self) -> int:
        """The number of the last fact that was read."""
        return self._loaded.seq

    @property
    def active_at(self) -> float:
        """When the last fact of the run was posted."""
        return self._loaded.at

    @property
    def has_writer(self) -> bool:
        """Whether the journal had a writer when all of the run was read."""
        return self._loaded.writer is not None

    async def catch_up(self) -> None:
        """Read new entries; all of the run if its writer has changed."""
        await trio.lowlevel.checkpoint()
        if self.has_writer and self._store.writer() == self._loaded.writer:
            await self.read_new()
        elif self.has_changed():
            await self._read_all()

    async def _read_all(self) -> None:
        found = await trio.to_thread.run_sync(
            read_listed, self._journals, self._journal, self.session
        )
        self._loaded = _LoadedRun(found)

    async def read_new(self) -> Sequence[Entry]:
        """Read new entries, and return them."""
        loaded = self._loaded
        new = await trio.to_thread.run_sync(self._read_after, loaded.seq)
        for start in range(0, len(new), FOLD_BATCH):
            fold(loaded.ledger, new[start : start + FOLD_BATCH], self._title)
            await trio.lowlevel.checkpoint()
        if new:
            loaded.seq, loaded.at = new[-1].seq, _last_time(new, loaded.at)
        return new

    def has_changed(self) -> bool:
        """Return whether there are new entries, or another writer."""
        if self._store.writer() != self._loaded.writer:
            return True
        return bool(self._read_after(self.seq))

    async def read_task(self, task: TaskId) -> list[Entry]:
        """Return the entries about a task."""
        return await trio.to_thread.run_sync(self._read_task, task)

    def _read_after(self, seq: int) -> Sequence[Entry]:
        with self._store.open_reader(verify=False) as reader:
            return reader.entries(self.session, after=seq)

    def _read_task(self, task: TaskId) -> list[Entry]:
        with self._store.open_reader(verify=False) as reader:
            entries = reader.naming(task, session=self.session)
        return [entry for entry in entries if is_about(entry, task)]


class _LoadedRun:
    """A run at the moment when all of it was read."""

    def __init__(self, found: FoundRun) -> None:
        self.ledger = found.fold()
        self.seq = found.entries[-1].seq
        self.at = _last_time(found.entries)
        self.writer = found.writer


def _last_time(entries: Sequence[Entry], default: float = 0) -> float:
    """Return the time of the last fact of a session; facts without a session do not count."""
    times = (entry.at for entry in reversed(entries) if entry.session)
    return next(times, default)


async def open_run(journals: Journals, prefix: str | None) -> RunReader:
    """Read the run whose id begins with a prefix, or the newest one."""
    found = await trio.to_thread.run_sync(read_run, journals, prefix)
    return RunReader(journals, found)


def is_about(entry: Entry, task: TaskId | None) -> bool:
    """Return whether a fact is about a task."""
    event = entry.event
    request = getattr(event, "request", None)
    if request is not None:
        return bool(request.id == task)
    named = getattr(event, "task", None)
    return named == task if named is not None else root_of(entry.session) == task
