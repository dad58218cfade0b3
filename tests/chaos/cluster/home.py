"""The folder of a round: its logs, and the pipe by which its parent learns that one has grown."""

import os
from pathlib import Path
from typing import Any, Final

import attrs

from tests.chaos.logs import AppendLog

HOME_VARIABLE: Final = "CHAOS_CLUSTER_HOME"


@attrs.frozen
class Home:
    """The folder of a round."""

    folder: Path

    @classmethod
    def of_process(cls) -> "Home":
        """Return the folder of the round that this process belongs to."""
        return cls(Path(os.environ[HOME_VARIABLE]))

    @property
    def progress(self) -> Path:
        """A pipe: one byte for each line of a log."""
        return self.folder / "progress"

    @property
    def effects(self) -> AppendLog:
        """The log of the tools."""
        return AppendLog(self.folder / "effects.log")

    @property
    def requests(self) -> AppendLog:
        """The log of the models."""
        return AppendLog(self.folder / "requests.log")

    @property
    def receipts(self) -> AppendLog:
        """The log of acknowledgements to the client, and of writers."""
        return AppendLog(self.folder / "receipts.log")

    def write(self, log: AppendLog, kind: str, **fields: Any) -> None:
        """Write a line, sync it, and tell the parent."""
        log.write(kind, **fields)
        pipe = os.open(self.progress, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b".")
        finally:
            os.close(pipe)
