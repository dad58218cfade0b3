"""Remembers the version of each file that a task has read, and the task that wrote it last.

A task may change a file only if it has read the current version. Check and change happen under one
lock for the file, shared by all tasks of the process: of two siblings that have read the same
version one wins, and the other reads why it did not.
"""

import threading  # noqa: TID251 (tools that write run in trio's worker threads)
import unicodedata
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

import attrs

from orchestrator.agents.errors import ToolError

# How many files have a known last writer; of others it is only known that they changed.
MAX_WRITERS: Final = 10_000


@attrs.frozen(kw_only=True)
class Fingerprint:
    """Identifies a version of a file."""

    size: int
    modified: int
    """In nanoseconds, at the system's resolution: two quick changes may have the same."""
    inode: int
    digest: bytes | None
    """Of the content; None where the file is too long to be read for that."""

    def has_same_content(self, other: "Fingerprint") -> bool:
        """Return whether both versions have the same content."""
        if self.digest is not None and other.digest is not None:
            return (self.size, self.digest) == (other.size, other.digest)
        return attrs.evolve(self, digest=None) == attrs.evolve(other, digest=None)


class FileRegistry:
    """The files of an orchestrator: a lock and the last writer of each. All tasks share it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, _FileLock] = WeakValueDictionary()
        self._writers: OrderedDict[str, tuple[str, Fingerprint]] = OrderedDict()

    @contextmanager
    def lock_file(self, file: str) -> Generator[None]:
        """Hold the lock of a file. Only for worker threads: it blocks."""
        # On file systems that ignore case or accents, two spellings are one file.
        key = unicodedata.normalize("NFC", file).casefold()
        with self._guard:
            file_lock = self._locks.get(key) or _FileLock()
            self._locks[key] = file_lock
        with file_lock.lock:
            yield

    def record_writer(self, file: str, task_path: str, written: Fingerprint) -> None:
        """Remember the task that wrote a file."""
        with self._guard:
            self._writers[file] = task_path, written
            self._writers.move_to_end(file)
            if len(self._writers) > MAX_WRITERS:
                self._writers.popitem(last=False)

    def last_writer(self, file: str, found: Fingerprint) -> str | None:
        """Return the task that wrote this version, if it was a task of this process."""
        with self._guard:
            task_path, written = self._writers.get(file, (None, found))
        return task_path if written.has_same_content(found) else None


class _FileLock:
    """A lock that is collected with its last user: a plain lock has no weak references."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class SeenFiles:
    """The version of each file that one task has read or written."""

    def __init__(self, registry: FileRegistry, task_path: str) -> None:
        self.registry: Final = registry
        self._task_path = task_path
        self._seen: dict[str, Fingerprint] = {}

    def note_read(self, file: str, found: Fingerprint) -> None:
        self._seen[file] = found

    def note_written(self, file: str, written: Fingerprint) -> None:
        self._seen[file] = written
        self.registry.record_writer(file, self._task_path, written)

    def require_seen(self, file: str, found: Fingerprint, *, path: str) -> None:
        """Raise `ToolError` if the task has not read the current version."""
        seen = self._seen.get(file)
        if seen is None:
            raise ToolError(
                f"{path} is there already, and you have not read it: read it first, then"
                " repeat your change"
            )
        if seen.has_same_content(found):
            return
        writer = self.registry.last_writer(file, found)
        event = (
            "has changed"
            if writer is None or writer == self._task_path
            else f"was changed by {writer}"
        )
        raise ToolError(f"{path} {event} since you read it: read it again, then repeat your change")
