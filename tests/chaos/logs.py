"""Logs outside the journal: one JSON object a line, each written whole, and then synced."""

import json
import os
import time
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]


class AppendLog:
    """A file to which several processes append, and from which no kill takes a line away."""

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self.path = path
        self._synced = synced

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"at": time.time(), "kind": kind, **fields})
        # One write with O_APPEND: lines of two processes do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
            if self._synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, *kinds: str) -> list[Line]:
        """Return the lines of some kinds, or all, in the order in which they were written."""
        if not self.path.exists():
            return []
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line for line in lines if not kinds or line["kind"] in kinds]
