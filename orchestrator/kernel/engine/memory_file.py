"""The file of a memory: read whole, and replaced whole, by one process at a time.

A change is prepared in a file beside it, then recorded as a fact, then applied by a rename. The
prepared file is gone exactly when the change is applied, also after a crash.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from orchestrator.agents import ToolError
from orchestrator.delegation.memory import version_of

MOST_BYTES: Final = 1_000_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class MemoryFile:
    """A file that many processes change. Its functions block, so they run in threads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str:
        """Return its text; a missing file is empty. Raise `ToolError` if it cannot be read."""
        with _tool_errors(self.path):
            return self._text()

    def prepare(self, key: str, change: Callable[[str], str]) -> tuple[str, str]:
        """Write the changed text beside the file; return the text before and after the change."""
        with _tool_errors(self.path), self._locked():
            before = self._text()
            after = change(before)
            _write(self._prepared(key), after.encode(errors="replace"))
            return before, after

    def apply(self, key: str, before: str) -> bool:
        """Replace the file by the prepared one; return whether that is done.

        It is not done if the file has another version than `before`.
        """
        with _tool_errors(self.path), self._locked():
            prepared = self._prepared(key)
            if not prepared.exists():
                return True
            if version_of(self._text()) != before:
                return False
            with suppress(FileNotFoundError):
                prepared.chmod(stat.S_IMODE(self.path.stat().st_mode))
            prepared.replace(self.path)
            _sync(self.path.parent)
            return True

    def discard(self, key: str) -> None:
        """Remove a prepared change."""
        with _tool_errors(self.path):
            self._prepared(key).unlink(missing_ok=True)

    def _text(self) -> str:
        try:
            descriptor = os.open(self.path, _READ)
        except FileNotFoundError:
            return ""
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolError(f"the memory {self.path.name} is no plain file")
            with open(descriptor, "rb", closefd=False) as opened:
                data = opened.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(data) > MOST_BYTES:
            raise ToolError(f"the memory {self.path.name} has more than {MOST_BYTES:,} bytes")
        return data.decode(errors="replace")

    def _prepared(self, key: str) -> Path:
        mark = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self.path.with_name(f".{self.path.name}.{mark}")

    @contextmanager
    def _locked(self) -> Generator[None]:
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, _FOLDER)
        try:
            # Others hold it for one change of a small file.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _write(path: Path, data: bytes) -> None:
    # A file that is there was prepared for the same call: another text replaces it whole.
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, _NEW, 0o600), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _tool_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        raise ToolError(f"the memory {path.name} cannot be used: {exc.strerror}") from exc
