"""Who writes a journal: one process, and the others can tell which.

The system lets go of the lock when that process dies, however it dies. Nobody trusts the number
that is written in the file: it only names the one that holds the lock.
"""

import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from orchestrator.errors import JournalError, JournalInUseError

UNKNOWN: Final = 0
"""A process that holds the lock and has not said yet who it is."""
LOCK_ATTEMPTS: Final = 1_000
LOCK_RETRY_SECONDS: Final = 0.001


class WriterLock:
    """The right to write one journal. `hold_lock` gives it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(
            lock_path(self._path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def try_take(self) -> bool:
        """Take it, or return False while others only look whether anybody has it.

        Raises:
            JournalInUseError: another process has it.
        """
        return self._take(self._descriptor)

    def _take(self, descriptor: int) -> bool:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            # Whoever looks holds it for a moment, together with others; a writer does so alone.
            if _try_lock(descriptor, fcntl.LOCK_SH):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                return False
            writer = _written(descriptor) or "(unknown)"
            raise JournalInUseError(
                self._path,
                f"process {writer} is writing it; wait for that one, or use another journal",
            )
        _write(descriptor, str(os.getpid()))
        return True

    def ensure_held(self) -> None:
        """See to it that it is still ours: somebody may have removed the file.

        Raises:
            JournalInUseError: somebody has, and another process writes the journal now.
        """
        with suppress(FileNotFoundError):
            if _is_at(self._descriptor, lock_path(self._path)):
                return
        descriptor = self._open()
        try:
            is_taken = self._take(descriptor)
        except JournalInUseError:
            os.close(descriptor)
            raise
        if not is_taken:
            os.close(descriptor)  # somebody looks; there will be a next time
            return
        os.close(self._descriptor)
        self._descriptor = descriptor

    def release(self) -> None:
        with suppress(OSError):
            # A full disk does not keep us from leaving.
            _write(self._descriptor, "")
        os.close(self._descriptor)

    def close_untaken(self) -> None:
        """Forget a lock that was never taken."""
        os.close(self._descriptor)


@asynccontextmanager
async def hold_lock(path: Path) -> AsyncGenerator[WriterLock]:
    """Be the one that writes a journal.

    Raises:
        JournalInUseError: another process is.
        JournalError: the lock file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = WriterLock(path)
    except OSError as exc:
        raise JournalError(path, f"its lock file: {exc.strerror or exc}") from exc
    try:
        await _wait_taken(lock, path)
    except BaseException:
        lock.close_untaken()
        raise
    try:
        yield lock
    finally:
        lock.release()


async def _wait_taken(lock: WriterLock, path: Path) -> None:
    await trio.lowlevel.checkpoint()
    for _ in range(LOCK_ATTEMPTS):
        try:
            if lock.try_take():
                return
        except OSError as exc:
            raise JournalError(path, f"its lock file: {exc.strerror or exc}") from exc
        # There is nothing to wait for but time: a look takes microseconds.
        await trio.sleep(LOCK_RETRY_SECONDS)
    raise JournalInUseError(
        path, "others look at its lock file all the time; try again"
    )


def writer_of(path: Path) -> int | None:
    """Return the process that writes a journal now, or None if nobody does.

    It is `UNKNOWN` for a moment while that process begins.
    """
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # never written
    except OSError as exc:
        raise JournalError(path, f"its lock file: {exc.strerror or exc}") from exc
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH):
            # Closing lets go of it. A writer that begins in this moment tries again.
            return None
        written = _written(descriptor)
        return int(written) if written.isdecimal() else UNKNOWN
    finally:
        os.close(descriptor)


def last_writer_of(path: Path) -> str:
    """Return the process that wrote a journal last, and never said that it was done."""
    try:
        return lock_path(path).read_text(errors="replace")
    except OSError:
        return ""


def lock_path(path: Path) -> Path:
    path = path.absolute()
    return path.with_name(f"{path.name}.lock")


def _is_at(descriptor: int, path: Path) -> bool:
    return os.path.samestat(os.fstat(descriptor), path.stat())


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
