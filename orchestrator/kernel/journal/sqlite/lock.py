"""The lock of a journal's one writer, with the id of that process for the others.

The system releases the lock when the process dies, however it dies. The process id in the file only
names the holder. The number beside it is the last entry that the process knew to be durable: a
journal that ends before it has lost entries.
"""

import fcntl
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.kernel import private_files
from orchestrator.kernel.errors import JournalError, JournalInUseError

UNKNOWN: Final = 0
"""A process that holds the lock and has not written its id yet."""
LOCK_ATTEMPTS: Final = 1_000
LOCK_RETRY_SECONDS: Final = 0.001
NEVER_ELSEWHERE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Opens no link, waits for no pipe, and no command inherits it."""
MAX_LOCK_BYTES: Final = 64


class WriterLock:
    """The right to write one journal. `hold_lock` takes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = lock_path(path)
        self._descriptor = self._open()
        self.last_writer = LastWriter()
        """The writer before this one, and then this one."""
        self._is_closed = False

    def _open(self) -> int:
        path = self._lock_path
        flags = os.O_RDWR | os.O_CREAT | NEVER_ELSEWHERE
        descriptor = os.open(path, flags, private_files.PRIVATE_FILE)
        if problem := private_files.foreign_hand(os.fstat(descriptor)):
            os.close(descriptor)
            raise JournalError(self._path, f"its lock file {path.name}: {problem}")
        return descriptor

    def try_take(self) -> bool:
        """Take the lock, or return False while it is tested; raise `JournalInUseError` if held."""
        return self._take(self._descriptor)

    def _take(self, descriptor: int) -> bool:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            # A test shares the lock for a moment; a writer holds it alone.
            if _try_lock(descriptor, fcntl.LOCK_SH):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                return False
            writer = f"process {_written(descriptor).process or '(unknown)'}"
            raise JournalInUseError(
                self._path,
                f"{writer} is writing it; wait for that one, or name a folder instead of a file"
                " (--journal runs/), or none: there each process has a journal of its own",
                writer=writer,
            )
        if not self.last_writer.process:
            self.last_writer = _written(descriptor)
        _write(descriptor, LastWriter(os.getpid(), self.last_writer.durable_seq))
        return True

    def note_durable(self, seq: int) -> None:
        """Tell the next writer the last durable entry, should this process die."""
        self.last_writer = LastWriter(os.getpid(), seq)
        _write(self._descriptor, self.last_writer)

    def note_closed(self) -> None:
        """Tell the next writer that the file was closed: it may be replaced by an older copy."""
        self._is_closed = True

    def ensure_held(self) -> None:
        """Take the lock again if its file was removed, or raise `JournalInUseError`."""
        with suppress(FileNotFoundError):
            if _is_at(self._descriptor, self._lock_path):
                return
        descriptor = self._open()
        try:
            is_taken = self._take(descriptor)
        except JournalInUseError:
            os.close(descriptor)
            raise
        if not is_taken:
            os.close(descriptor)  # another process tests it; the next commit tries again
            return
        os.close(self._descriptor)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._is_closed:
            with suppress(OSError):
                # A full disk must not prevent the release.
                _write(self._descriptor, replace(self.last_writer, process=UNKNOWN))
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
        private_files.make_private_folder(path.parent)
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
    raise JournalInUseError(path, "other processes test its lock file all the time; try again")


def writer_of(path: Path) -> int | None:
    """Return the id of the process that writes a journal now; None if there is none.

    It is `UNKNOWN` for a moment while that process begins.
    """
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | NEVER_ELSEWHERE)
    except FileNotFoundError:
        return None  # never written
    except OSError as exc:
        raise JournalError(path, f"its lock file: {exc.strerror or exc}") from exc
    try:
        if problem := private_files.irregularity(os.fstat(descriptor)):
            raise JournalError(path, f"its lock file: {problem}")
        if _try_lock(descriptor, fcntl.LOCK_SH):
            # Closing releases it. A writer that begins in this moment tries again.
            return None
        return _written(descriptor).process
    finally:
        os.close(descriptor)


class LastWriter(msgspec.Struct, frozen=True, gc=False):
    """The process that wrote the journal last."""

    process: int = UNKNOWN
    """Its id; unknown if it has closed the file."""
    durable_seq: int = 0
    """The last entry that it knew to be durable."""


def last_writer_of(path: Path) -> LastWriter:
    """Return the last writer if it ended without closing the file; else one that is unknown."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | NEVER_ELSEWHERE)
    except OSError:
        return LastWriter()
    try:
        return _written(descriptor)
    except OSError:
        return LastWriter()
    finally:
        os.close(descriptor)


def lock_path(path: Path) -> Path:
    path = real_path(path)
    return path.with_name(f"{path.name}.lock")


def real_path(path: Path) -> Path:
    """Return the one path of a journal: by whichever link it is opened, it has one lock. Raise
    `JournalError` if another user has made such a link, and so chooses the file.
    """
    if (link := private_files.foreign_link(path)) is not None:
        raise JournalError(path, f"{link} is a link that another user has made")
    return Path(os.path.realpath(path))


def require_one_name(path: Path) -> None:
    """Raise `JournalError` if a file has hard links: SQLite keeps its log beside one name only."""
    with suppress(FileNotFoundError):
        found = path.stat()
        names = found.st_nlink
        # A folder has several names by its nature; that it is no journal is said when it is opened.
        if names > 1 and stat.S_ISREG(found.st_mode):
            raise JournalError(
                path,
                f"it has {names} names (hard links), and its log can be beside each of them:"
                " remove the others, or make them symbolic links",
            )


def _is_at(descriptor: int, path: Path) -> bool:
    return os.path.samestat(os.fstat(descriptor), path.stat())


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(descriptor: int) -> LastWriter:
    return _parse(os.pread(descriptor, MAX_LOCK_BYTES, 0))


def _parse(content: bytes) -> LastWriter:
    words = [int(word) for word in content.split()[:2] if word.isdigit()]
    return LastWriter(*words)


def _write(descriptor: int, writer: LastWriter) -> None:
    # Always as long, so that nothing of an earlier one is left behind it.
    os.pwrite(descriptor, f"{writer.process:<20}{writer.durable_seq:<20}\n".encode(), 0)
