"""A run as its journal tells it, read by another process than the one that writes it.

What is new is read when whoever writes says that there is more. Where nobody says so, it is looked
for once a second.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from delegation import Ledger, SessionId, TaskId, Tree, root_of
from delegation.events import Entry
from delegation.events.approvals import ApprovalQuestion
from orchestrator.cli.journal_queries import fold_run, read_entries, require_journal
from orchestrator.journal.journal import fold
from orchestrator.journal.sqlite.entries import (
    open_file_read_only,
    read_after,
    read_naming,
)
from orchestrator.journal.sqlite.lock import writer_of
from orchestrator.journal.sqlite.schema import translate_errors

FOLD_BATCH: Final = 500
"""How many facts are folded before somebody else has a turn."""


class RunReader:
    """What is true of one run. `open_run` finds it."""

    def __init__(self, path: Path, session: SessionId, loaded: "_LoadedRun") -> None:
        self.path = path
        self.session = session
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
        """When that became true."""
        return self._loaded.at

    @property
    def has_writer(self) -> bool:
        """Whether the process that writes the journal was there when all of it was read."""
        return self._loaded.writer is not None

    async def catch_up(self) -> None:
        """Read what is new; all of it where another process writes it now, or none does."""
        await trio.lowlevel.checkpoint()
        if self.has_writer and writer_of(self.path) == self._loaded.writer:
            await self.read_new()
        elif self.has_changed():
            await self._read_all()

    async def _read_all(self) -> None:
        _, self._loaded = await trio.to_thread.run_sync(_load, self.path, self.session)

    async def read_new(self) -> Sequence[Entry]:
        """Read what is new, and return it."""
        loaded = self._loaded
        new = await trio.to_thread.run_sync(self._read_after, loaded.seq)
        for start in range(0, len(new), FOLD_BATCH):
            fold(loaded.ledger, new[start : start + FOLD_BATCH], self.path)
            await trio.lowlevel.checkpoint()
        if new:
            loaded.seq, loaded.at = new[-1].seq, new[-1].at
        return new

    def has_changed(self) -> bool:
        """Tell whether there is more to read, or somebody has begun or ceased to write."""
        if writer_of(self.path) != self._loaded.writer:
            return True
        with open_file_read_only(self.path) as connection, translate_errors(self.path):
            found = connection.execute(
                "SELECT 1 FROM entries WHERE seq > ?2 AND session IN (?1, '') LIMIT 1",
                (self.session, self.seq),
            )
            return found.fetchone() is not None

    async def read_task(self, task: TaskId) -> list[Entry]:
        """Return what was ever said by a task, to it, and about it."""
        return await trio.to_thread.run_sync(self._read_task, task)

    def _read_after(self, seq: int) -> list[Entry]:
        with open_file_read_only(self.path) as connection, translate_errors(self.path):
            return read_after(connection, self.session, seq)

    def _read_task(self, task: TaskId) -> list[Entry]:
        with open_file_read_only(self.path) as connection, translate_errors(self.path):
            entries = read_naming(connection, self.session, task)
        return [entry for entry in entries if is_about(entry, task)]


class _LoadedRun:
    """All that was read."""

    def __init__(self, ledger: Ledger, last: Entry, writer: int | None) -> None:
        self.ledger = ledger
        self.seq = last.seq
        self.at = last.at
        self.writer = writer


async def open_run(path: Path, prefix: str | None) -> RunReader:
    """Read the run whose id begins like this, or the newest one."""
    session, loaded = await trio.to_thread.run_sync(_load, path, prefix)
    return RunReader(path, session, loaded)


def _load(path: Path, prefix: str | None) -> tuple[SessionId, _LoadedRun]:
    while True:
        require_journal(path)
        writer = writer_of(path)
        session, entries = read_entries(path, prefix)
        # Whoever came or went in between may have changed what runs.
        if writer_of(path) == writer:
            break
    ledger = fold_run(entries, path, has_writer=writer is not None)
    return session, _LoadedRun(ledger, entries[-1], writer)


def is_about(entry: Entry, task: TaskId | None) -> bool:
    """Tell whether a fact belongs to the life of a task."""
    event = entry.event
    request = getattr(event, "request", None)
    if request is not None:
        return bool(request.id == task)
    named = getattr(event, "task", None)
    return named == task if named is not None else root_of(entry.session) == task
