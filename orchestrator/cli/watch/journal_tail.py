"""A run that another process writes, read from its journal and kept up to date.

New entries are read when the writer says over the control socket that there are some, and once a
second where there is no control socket.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from delegation import Ledger, SessionId, TaskId, Tree, root_of
from delegation.events import Entry
from delegation.events.approvals import ApprovalQuestion
from orchestrator.cli.journal_queries import fold_run, read_journal, read_run
from orchestrator.journal.backends import store_at
from orchestrator.journal.journal import fold

FOLD_BATCH: Final = 500
"""How many facts are folded before other tasks have a turn."""


class RunReader:
    """The state of one run. `open_run` finds it."""

    def __init__(self, path: Path, session: SessionId, loaded: "_LoadedRun") -> None:
        self.path = path
        self.session = session
        self._store = store_at(path)
        self._loaded = loaded

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
        _, self._loaded = await trio.to_thread.run_sync(_load, self.path, self.session)

    async def read_new(self) -> Sequence[Entry]:
        """Read new entries, and return them."""
        loaded = self._loaded
        new = await trio.to_thread.run_sync(self._read_after, loaded.seq)
        for start in range(0, len(new), FOLD_BATCH):
            fold(loaded.ledger, new[start : start + FOLD_BATCH], self.path)
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
    """What was read of a run."""

    def __init__(
        self, ledger: Ledger, entries: Sequence[Entry], writer: int | None
    ) -> None:
        self.ledger = ledger
        self.seq = entries[-1].seq
        self.at = _last_time(entries)
        self.writer = writer


def _last_time(entries: Sequence[Entry], default: float = 0) -> float:
    """Return when the last fact of a session was posted; an opened journal is none."""
    times = (entry.at for entry in reversed(entries) if entry.session)
    return next(times, default)


async def open_run(path: Path, prefix: str | None) -> RunReader:
    """Read the run whose id begins with a prefix, or the newest one."""
    session, loaded = await trio.to_thread.run_sync(_load, path, prefix)
    return RunReader(path, session, loaded)


def _load(path: Path, prefix: str | None) -> tuple[SessionId, _LoadedRun]:
    (session, entries), writer = read_journal(
        path, lambda reader: read_run(reader, prefix, path)
    )
    ledger = fold_run(entries, path, has_writer=writer is not None)
    return session, _LoadedRun(ledger, entries, writer)


def is_about(entry: Entry, task: TaskId | None) -> bool:
    """Return whether a fact is about a task."""
    event = entry.event
    request = getattr(event, "request", None)
    if request is not None:
        return bool(request.id == task)
    named = getattr(event, "task", None)
    return named == task if named is not None else root_of(entry.session) == task
