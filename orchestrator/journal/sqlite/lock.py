"""The lock of a journal's one writer, with the id of that process for the others.

The system releases the lock when the process dies, however it dies. The process id in the file
only names the holder of the lock; it proves nothing by itself.
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
"""A process that holds the lock and has not written its id yet."""
LOCK_ATTEMPTS: Final = 1_000
LOCK_RETRY_SECONDS: Final = 0.001


class WriterLock:
    """The right to write one journal. `hold_lock` takes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(
            lock_path(self._path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def try_take(self) -> bool:
        """Take the lock, or return False while another process only tests it.

        Raises:
            JournalInUseError: another process has it.
        """
        return self._take(self._descriptor)

    def _take(self, descriptor: int) -> bool:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            # A test shares the lock for a moment; a writer holds it alone.
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
        """Take the lock again if its file was removed.

        Raises:
            JournalInUseError: another process has taken it first.
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
            os.close(
                descriptor
            )  # another process tests it; the next commit tries again
            return
        os.close(self._descriptor)
        self._descriptor = descriptor

    def release(self) -> None:
        with suppress(OSError):
            # A full disk must not prevent the release.
            _write(self._descriptor, "")
        os.close(self._descriptor)

    def close_untaken(self) -> None:
        """Close a lock that was never taken."""
        os.close(self._descriptor)


@asynccontextmanager
async def hold_lock(path: Path) -> AsyncGenerator[WriterLock]:
    """Hold the lock of a journal, as long as the block lasts.

    Raises:
        JournalInUseError: another process holds it.
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
        # Nothing notifies us: a test of the lock takes microseconds.
        await trio.sleep(LOCK_RETRY_SECONDS)
    raise JournalInUseError(
        path, "other processes test its lock file all the time; try again"
    )


def writer_of(path: Path) -> int | None:
    """Return the id of the process that writes a journal now; None if there is none.

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
            # Closing releases it. A writer that begins in this moment tries again.
            return None
        written = _written(descriptor)
        return int(written) if written.isdecimal() else UNKNOWN
    finally:
        os.close(descriptor)


def last_writer_of(path: Path) -> str:
    """Return the id of the last writer if it ended without releasing the lock; else nothing."""
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
