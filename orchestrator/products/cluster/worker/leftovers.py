"""Finds processes that dead workers left running on this machine, by their tags.

A worker holds a lock on a file with its tag as long as it lives. The next one that starts finds
the files that are not locked, and ends what carries their tags.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from orchestrator.agents.tools.terminal.process_tags import kill_tagged

_PREFIX = "worker-"
_SUFFIX = ".lock"


@contextmanager
def hold_worker_tag(folder: Path, host: str) -> Generator[str]:
    """Return the tag of a new worker, and hold it for the block; then end what carries it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        tag = token_hex(16)
        file = folder / f"{_PREFIX}{host}-{tag}{_SUFFIX}"
        with file.open("x") as lock:
            # Another worker that starts now may have taken it for one that a dead one has left.
            if not _is_locked_by_us(lock.fileno(), file):
                continue
            try:
                yield tag
            finally:
                kill_tagged(tag)
                file.unlink(missing_ok=True)
            return


def end_leftovers(folder: Path, host: str) -> int:
    """End what dead workers have left here, and return how many those were; blocking."""
    ended = 0
    for file in folder.glob(f"{_PREFIX}{host}-*{_SUFFIX}"):
        with suppress(FileNotFoundError), file.open("r+") as lock:
            if _is_locked_by_us(lock.fileno(), file):
                tag = file.name.removesuffix(_SUFFIX).rpartition("-")[2]
                kill_tagged(tag)
                file.unlink(missing_ok=True)
                ended += 1
    return ended


def _is_locked_by_us(descriptor: int, file: Path) -> bool:
    """Lock a file, and return whether that has succeeded and the file is still there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
