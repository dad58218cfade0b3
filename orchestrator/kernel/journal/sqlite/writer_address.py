"""Where the writer of a journal is reached over HTTP, for other servers of the same folder.

The address is in a private file beside the journal, with the id of the process. It counts only as
long as that process holds the lock.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.sqlite.journal import SQLiteJournal, open_sqlite_journal
from orchestrator.kernel.private_files import PRIVATE_FILE, foreign_hand

SUFFIX: Final = ".address"
LONGEST: Final = 1_000


@asynccontextmanager
async def open_reachable_journal(path: Path, address: str) -> AsyncGenerator[SQLiteJournal]:
    """Open a journal for writing, and tell others where its writer is reached."""
    async with open_sqlite_journal(path) as journal:
        file = _file_of(path)
        with suppress(FileNotFoundError):
            file.unlink()  # of a writer that has died
        if not address:
            yield journal
            return
        try:
            _write(file, f"{os.getpid()} {address}\n")
        except OSError as exc:
            raise JournalError(path, f"{file.name}: {exc.strerror or exc}") from exc
        try:
            yield journal
        finally:
            with suppress(OSError):
                file.unlink()


def _write(file: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, PRIVATE_FILE), "w") as opened:
        opened.write(text)


def address_of(path: Path, process: int) -> str:
    """Return where the process that holds the lock of a journal is reached; "" if it is not."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(_file_of(path), flags), "rb") as opened:
            if foreign_hand(os.fstat(opened.fileno())):
                return ""
            text = opened.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
    of, _, address = text.strip().partition(" ")
    return address if of == str(process) else ""


def _file_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{SUFFIX}")
