"""A run that another process writes, read beside its writer and kept up to date."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from orchestrator.delegation import Ledger, SessionId, TaskId
from orchestrator.delegation.events import Entry
from orchestrator.ports.journals import (
    JournalStore,
    TaskTranscript,
    Writer,
    fold,
    read_history,
    read_task_transcript,
)
from orchestrator.ports.reads import FoundSession
from orchestrator.products.server.cluster.store_readers import StoreReaders

FOLD_BATCH: Final = 500
"""The number of facts that are folded before other tasks have a turn."""

ReceiveEntries = Callable[[Sequence[Entry]], None]


class FollowedRun:
    """The ledger of one run of another process. `OtherProcesses.find` makes it."""

    def __init__(
        self, session: SessionId, store: JournalStore, writer: Writer, readers: StoreReaders
    ) -> None:
        self.session = session
        self.store = store
        self.writer = writer
        """The process that wrote the journal when the run was first read."""
        self.has_left = False
        """Whether that process no longer writes the journal: the run has to be found again."""
        self.receivers: dict[object, ReceiveEntries] = {}
        """The views that receive new entries; an empty sequence says that the process has left."""
        self._readers = readers
        self._ledger = Ledger()
        self._lock = trio.Lock()

    @property
    def seq(self) -> int:
        """The number of the last fact that was read."""
        return self._ledger.last_seq

    @property
    def found(self) -> FoundSession | None:
        """The run as far as it was read; None if it was deleted."""
        record = self._ledger.sessions.get(self.session)
        return None if record is None or record.deleted else FoundSession(record, self._ledger)

    async def catch_up(self) -> None:
        """Read and fold the new entries, and pass them to the views."""
        async with self._lock:
            new = await self.entries(after=self.seq)
            for start in range(0, len(new), FOLD_BATCH):
                batch = new[start : start + FOLD_BATCH]
                fold(self._ledger, batch, self.session)
                self._tell(batch)
                await trio.lowlevel.checkpoint()

    def leave(self) -> None:
        """Note that the process no longer writes the journal."""
        self.has_left = True
        self._tell(())

    def _tell(self, entries: Sequence[Entry]) -> None:
        for receive in [*self.receivers.values()]:
            receive(entries)

    async def entries(self, *, after: int = 0) -> Sequence[Entry]:
        """Return the durable entries of the run after a number."""
        return await self._readers.read(partial(self._read_entries, after))

    def _read_entries(self, after: int) -> Sequence[Entry]:
        with self.store.open_reader(verify=False) as reader:
            return reader.entries(self.session, after=after)

    async def transcript(self, task: TaskId) -> TaskTranscript:
        """Return the messages of a task, which the ledger has only until the task ends."""
        record = self._ledger.tasks[task]
        if record.outcome is None:
            await trio.lowlevel.checkpoint()
            return TaskTranscript(record.transcript, None, record.incidents)
        return await self._readers.read(partial(self._read_transcript, task))

    def _read_transcript(self, task: TaskId) -> TaskTranscript:
        with self.store.open_reader(verify=False) as reader:
            own = reader.naming(task, session=self.session)
            found = read_task_transcript(self.session, task, own)
            if found is not None:
                return found
            entries = reader.entries(self.session)
        history = read_history(
            self.session, entries, has_writer=True, wants_transcript=lambda _: True
        )
        return history.transcripts[task]
