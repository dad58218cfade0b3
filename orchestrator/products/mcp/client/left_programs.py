"""Ends the servers that a killed process left behind.

Each process that starts servers holds the lock of a file in the state folder. The name of the file
is a tag that its servers carry. The lock ends with its process, however that ends. So an unlocked
file names leftover servers, and the first process that finds it ends them.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from orchestrator.agents.tools.terminal.process_tags import kill_tagged, new_tag
from orchestrator.ports.files import PRIVATE_FILE, SERVERS, make_private_folder

START_FOLDERS: Final = "server-folders"
"""Has the folders that servers start in: for each tag one, with one for each server."""
LEAVING_SECONDS: Final = 0.5
"""How long killed processes may still start others, when this process is about to exit."""


class ProgramLock:
    """The lock of this process, taken when it starts its first server."""

    def __init__(self, state: Path) -> None:
        self._folder = state / SERVERS
        self._file: int | None = None
        self.tag = new_tag()
        self._start_folders = state / START_FOLDERS / self.tag

    def take(self) -> None:
        """Take the lock. Idempotent. Raise `OSError` if the file cannot be written."""
        if self._file is not None:
            return
        make_private_folder(self._folder)
        path = self._folder / self.tag
        while True:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Between the two calls another process may have locked and removed it.
            if path.exists() and path.stat().st_ino == os.fstat(file).st_ino:
                self._file = file
                return
            os.close(file)

    def make_start_folder(self) -> Path:
        """Make the empty folder that a server starts in, which no command of an agent sees."""
        make_private_folder(self._start_folders)
        return Path(os.path.realpath(mkdtemp(dir=self._start_folders)))

    def kill_programs(self) -> None:
        """Kill all that was started under the lock, at once. It blocks for a moment."""
        if self._file is not None:
            kill_tagged(self.tag, seconds=LEAVING_SECONDS)

    def release(self) -> None:
        """Remove the file, when all servers have ended. Idempotent."""
        if self._file is not None:
            with suppress(OSError):
                (self._folder / self.tag).unlink()
            _remove_folders(self._start_folders)
            os.close(self._file)
            self._file = None


def end_left_programs(state: Path) -> None:
    """End what processes that are gone have left. It blocks if there is anything: use a thread."""
    for path, file in _unlocked(state / SERVERS):
        try:
            kill_tagged(path.name)
            _remove_folders(state / START_FOLDERS / path.name)
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(file)


def _remove_folders(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def has_left_programs(state: Path) -> bool:
    """Return whether a process that is gone has left any: a look into a folder."""
    for _, file in _unlocked(state / SERVERS):
        os.close(file)
        return True
    return False


def _unlocked(folder: Path) -> Iterator[tuple[Path, int]]:
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            continue
        yield path, file
