"""One SQLite file as a store of a journal."""

import platform
from collections.abc import Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import attrs

from orchestrator.delegation import Rules, SessionId
from orchestrator.kernel.journal.audit import AuditedEvent, AuditEvent
from orchestrator.kernel.journal.journal import Pruned
from orchestrator.kernel.journal.reader import JournalReader
from orchestrator.kernel.journal.sqlite.check import check_journal
from orchestrator.kernel.journal.sqlite.journal import SQLiteJournal, open_sqlite_journal
from orchestrator.kernel.journal.sqlite.lock import real_path, writer_of
from orchestrator.kernel.journal.sqlite.prune import preview_prune, size_of
from orchestrator.kernel.journal.sqlite.reader import (
    SQLiteReader,
    open_journal_read_only,
    open_verified_read_only,
)
from orchestrator.kernel.journal.sqlite.schema import translate_errors
from orchestrator.kernel.journal.sqlite.writer_address import address_of, open_reachable_journal
from orchestrator.kernel.journal.store import Finding, Writer


class SQLiteStore:
    """A file, the log of SQLite beside it, and the lock of its writer."""

    def __init__(self, path: Path) -> None:
        self._path = real_path(path)
        self.file = self._path

    def exists(self) -> bool:
        return self._path.exists()

    def open_writer(self, *, address: str = "") -> AbstractAsyncContextManager[SQLiteJournal]:
        return open_reachable_journal(self._path, address)

    def writer(self) -> Writer | None:
        process = writer_of(self._path)
        if process is None:
            return None
        return Writer(
            process=process,
            host=platform.node(),
            network=platform.node(),
            address=address_of(self._path, process),
        )

    @contextmanager
    def open_reader(self, *, verify: bool = True) -> Generator[JournalReader]:
        open_read_only = open_journal_read_only if verify else open_verified_read_only
        with open_read_only(self._path) as connection, translate_errors(self._path):
            yield SQLiteReader(self._path, connection)

    def check(self) -> Iterator[Finding]:
        return check_journal(self._path)

    def preview_prune(self, *, before: float) -> Pruned:
        return preview_prune(self._path, before=before)

    async def append_audit(self, at: float, event: AuditEvent) -> None:
        async with open_sqlite_journal(self._path) as journal:
            journal.append_audit(at, event)
            await journal.wait_audited()

    async def prune_audit(self, *, before: float, at: float, event: AuditEvent) -> int:
        async with open_sqlite_journal(self._path) as journal:
            return await journal.prune_audit(before=before, at=at, event=event)

    async def prune(
        self, *, before: float, only: SessionId | None = None, audit: AuditedEvent | None = None
    ) -> Pruned:
        size = size_of(self._path)
        async with open_sqlite_journal(self._path) as journal:
            await journal.read(Rules())  # refuses a journal that is not complete
            pruned = await journal.prune(
                before=before, release=lambda _: True, only=only, audit=audit
            )
        return attrs.evolve(pruned, freed=max(0, size - size_of(self._path)))
