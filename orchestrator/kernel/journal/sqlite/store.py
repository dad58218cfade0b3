"""One SQLite file as a store of a journal.

The writer says in a private file beside the journal where it is reached over HTTP, for other
servers of the same folder. The address counts only as long as that process holds the lock.
"""

import os
import platform
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orchestrator.delegation import Rules, SessionId
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.journal import Pruned
from orchestrator.kernel.journal.reader import JournalReader
from orchestrator.kernel.journal.sqlite.journal import SQLiteJournal, open_sqlite_journal
from orchestrator.kernel.journal.sqlite.lock import real_path, writer_of
from orchestrator.kernel.journal.sqlite.reader import (
    SQLiteReader,
    open_journal_read_only,
    open_verified_read_only,
)
from orchestrator.kernel.journal.sqlite.schema import translate_errors
from orchestrator.kernel.journal.store import Finding, Writer
from orchestrator.kernel.private_files import PRIVATE_FILE, foreign_hand

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditedEvent, AuditEvent

ADDRESS_SUFFIX: Final = ".address"
LONGEST_ADDRESS: Final = 1_000


class SQLiteStore:
    """A file, the log of SQLite beside it, and the lock of its writer."""

    def __init__(self, path: Path) -> None:
        self._path = real_path(path)
        self.file = self._path

    def exists(self) -> bool:
        return self._path.exists()

    def open_writer(self, *, address: str = "") -> AbstractAsyncContextManager[SQLiteJournal]:
        return _open_reachable(self._path, address)

    def writer(self) -> Writer | None:
        process = writer_of(self._path)
        if process is None:
            return None
        return Writer(
            process=process,
            host=platform.node(),
            network=platform.node(),
            address=_address_of(self._path, process),
        )

    @contextmanager
    def open_reader(self, *, verify: bool = True) -> Generator[JournalReader]:
        open_read_only = open_journal_read_only if verify else open_verified_read_only
        with open_read_only(self._path) as connection, translate_errors(self._path):
            yield SQLiteReader(self._path, connection)

    def check(self) -> Iterator[Finding]:
        # Imported late: only `orchestrator doctor` and its like check a whole file.
        from orchestrator.kernel.journal.sqlite.check import check_journal

        return check_journal(self._path)

    def preview_prune(self, *, before: float) -> Pruned:
        from orchestrator.kernel.journal.sqlite.prune import preview_prune

        return preview_prune(self._path, before=before)

    async def append_audit(self, at: float, event: "AuditEvent") -> None:
        async with open_sqlite_journal(self._path) as journal:
            journal.append_audit(at, event)
            await journal.wait_audited()

    async def prune_audit(self, *, before: float, at: float, event: "AuditEvent") -> int:
        async with open_sqlite_journal(self._path) as journal:
            return await journal.prune_audit(before=before, at=at, event=event)

    async def prune(
        self, *, before: float, only: SessionId | None = None, audit: "AuditedEvent | None" = None
    ) -> Pruned:
        from orchestrator.kernel.journal.sqlite.prune import size_of

        size = size_of(self._path)
        async with open_sqlite_journal(self._path) as journal:
            await journal.read(Rules())  # refuses a journal that is not complete
            pruned = await journal.prune(
                before=before, release=lambda _: True, only=only, audit=audit
            )
        return replace(pruned, freed=max(0, size - size_of(self._path)))


@asynccontextmanager
async def _open_reachable(path: Path, address: str) -> AsyncGenerator[SQLiteJournal]:
    """Open a journal for writing, and tell others where its writer is reached."""
    async with open_sqlite_journal(path) as journal:
        file = _address_file(path)
        with suppress(FileNotFoundError):
            file.unlink()  # of a writer that has died
        if not address:
            yield journal
            return
        try:
            _write_private(file, f"{os.getpid()} {address}\n")
        except OSError as exc:
            raise JournalError(path, f"{file.name}: {exc.strerror or exc}") from exc
        try:
            yield journal
        finally:
            with suppress(OSError):
                file.unlink()


def _write_private(file: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, PRIVATE_FILE), "w") as opened:
        opened.write(text)


def _address_of(path: Path, process: int) -> str:
    """Return where the process that holds the lock of a journal is reached; "" if it is not."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(_address_file(path), flags), "rb") as opened:
            if foreign_hand(os.fstat(opened.fileno())):
                return ""
            text = opened.read(LONGEST_ADDRESS).decode(errors="replace")
    except OSError:
        return ""
    of, _, address = text.strip().partition(" ")
    return address if of == str(process) else ""


def _address_file(path: Path) -> Path:
    return path.with_name(f"{path.name}{ADDRESS_SUFFIX}")
