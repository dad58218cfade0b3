"""The time until which a provider refuses calls, shared by several processes. It only grows.

In a folder it is the time of change of an empty file, so reading and writing are one system call
each, and a process that dies leaves nothing half written.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import Final, Protocol

LONGEST_HOLD: Final = 120.0
"""A file may have any time: no process waits longer for another one."""


class SharedHold(Protocol):
    """The hold of one model."""

    def seconds_left(self) -> float:
        """Return for how many seconds the provider refuses calls; 0 if no process says so."""
        ...

    def extend(self, seconds: float) -> None:
        """Tell the other processes that the provider refuses calls for these seconds."""
        ...


class FileHold:
    """The hold of one model, in a folder that several processes use (`SharedHold`)."""

    def __init__(self, folder: Path, model: str) -> None:
        name = hashlib.blake2b(model.encode(), digest_size=8).hexdigest()
        self._file = folder / name

    def seconds_left(self) -> float:
        try:
            left = os.stat(self._file).st_mtime - time.time()  # noqa: PTH116 (for every call)
        except OSError:
            return 0.0
        return min(max(left, 0.0), LONGEST_HOLD)

    def extend(self, seconds: float) -> None:
        if seconds <= self.seconds_left():
            return
        until = time.time() + seconds
        # A full disk or a read-only folder must not fail the call: each process asks for itself.
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._file.touch(mode=0o600)
            os.utime(self._file, (until, until))
        except OSError:
            return
