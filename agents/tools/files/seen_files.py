"""What a task knows of the files it works on, and who of the house wrote them last.

A file is changed only by a task that has seen what it changes. Whether that is so, and the change
itself, are one step, taken while nobody else of the house takes it with the same file: of two
siblings that have read the same version one wins, and the other reads why it did not.
"""

import threading  # noqa: TID251 (tools that write run in trio's worker threads)
import unicodedata
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

import attrs

from agents.errors import ToolError

# Files of which it is known who wrote them: of older ones it is only known that they changed.
WRITERS: Final = 10_000


@attrs.frozen(kw_only=True)
class Fingerprint:
    """By what a version of a file is known again."""

    size: int
    modified: int
    """In nanoseconds, as the system counts: a quick second change may have the same."""
    inode: int
    digest: bytes | None
    """Of what is in it; None where it is too long to be read for that."""

    def has_same_content(self, other: "Fingerprint") -> bool:
        """Tell whether both are of the same content."""
        if self.digest is not None and other.digest is not None:
            return (self.size, self.digest) == (other.size, other.digest)
        return attrs.evolve(self, digest=None) == attrs.evolve(other, digest=None)


class FileRegistry:
    """The files of a house: who has one in hand, and who wrote it last. All desks share one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, _FileLock] = WeakValueDictionary()
        self._writers: OrderedDict[str, tuple[str, Fingerprint]] = OrderedDict()

    @contextmanager
    def lock_file(self, file: str) -> Generator[None]:
        """Have a file for oneself, as far as the house goes. Only for worker threads: it blocks."""
        # Where case or accents make no other file, two spellings must not make two hands.
        key = unicodedata.normalize("NFC", file).casefold()
        with self._guard:
            hand = self._locks.get(key) or _FileLock()
            self._locks[key] = hand
        with hand.lock:
            yield

    def record_writer(self, file: str, task_path: str, written: Fingerprint) -> None:
        """Remember who wrote a file."""
        with self._guard:
            self._writers[file] = task_path, written
            self._writers.move_to_end(file)
            if len(self._writers) > WRITERS:
                self._writers.popitem(last=False)

    def last_writer(self, file: str, found: Fingerprint) -> str | None:
        """Return who wrote the file as it was found, if it was one of the house."""
        with self._guard:
            who, written = self._writers.get(file, (None, found))
        return who if written.has_same_content(found) else None


class _FileLock:
    """It is forgotten with the last one who uses it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class SeenFiles:
    """The files that one task has read or written, each as it was then."""

    def __init__(self, registry: FileRegistry, task_path: str) -> None:
        """Set up the desk of a task.

        Args:
            shelf: that of the house.
            who: the path of the task, by which its siblings know it.
        """
        self.registry: Final = registry
        self._task_path = task_path
        self._seen: dict[str, Fingerprint] = {}

    def note_read(self, file: str, found: Fingerprint) -> None:
        self._seen[file] = found

    def note_written(self, file: str, written: Fingerprint) -> None:
        self._seen[file] = written
        self.registry.record_writer(file, self._task_path, written)

    def require_seen(self, file: str, found: Fingerprint, *, path: str) -> None:
        """Raise `ToolError` if the task does not know what is in the file now.

        Args:
            file: its real path.
            found: what is there now.
            path: what the model calls it.
        """
        seen = self._seen.get(file)
        if seen is None:
            raise ToolError(
                f"{path} is there already, and you have not read it: read it first, then"
                " repeat your change"
            )
        if seen.has_same_content(found):
            return
        writer = self.registry.last_writer(file, found)
        happened = (
            "has changed"
            if writer is None or writer == self._task_path
            else f"was changed by {writer}"
        )
        raise ToolError(
            f"{path} {happened} since you read it: read it again, then repeat your change"
        )
