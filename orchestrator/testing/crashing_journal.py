"""A journal whose process dies when a test says so."""

import os
import signal
from collections.abc import Mapping, Sequence

from delegation import Encoded, SessionId
from delegation.events import Entry
from orchestrator.errors import JournalError
from orchestrator.journal.journal import Journal, JournalContents


class CrashedError(JournalError):
    """The process is dead, as far as the journal goes."""


class CrashingJournal:
    """Keeps so many entries, and then nothing any more.

    Whoever waits for a later one to be durable meets `CrashedError`, and with that the orchestrator
    is torn down. What it had done by then without waiting is lost, as in a real crash. Open the
    journal underneath again to go on.
    """

    def __init__(self, journal: Journal, *, after: int, kill: bool = False) -> None:
        """Let a journal crash.

        Args:
            journal: what keeps the entries.
            after: the number of the last entry that is kept.
            kill: really kill this process, with SIGKILL, once that entry is durable.
        """
        self._journal = journal
        self._after = after
        self._kill = kill
        self.crashed = False

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
    ) -> None:
        if entry.seq > self._after:
            self.crashed = True
        else:
            self._journal.append(entry, encoded, idle_changes)

    async def wait_durable(self, seq: int) -> None:
        await self._journal.wait_durable(min(seq, self._after))
        if self._kill and seq >= self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        if seq > self._after:
            raise CrashedError(
                type(self._journal).__name__, f"it crashed after entry {self._after}"
            )

    async def read(self) -> JournalContents:
        return await self._journal.read()

    async def read_session(self, session: SessionId) -> Sequence[Entry]:
        return await self._journal.read_session(session)

    async def read_naming(self, kind: str, id_: str) -> Sequence[Entry]:
        return await self._journal.read_naming(kind, id_)
