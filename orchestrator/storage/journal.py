"""The port behind which the journal is kept."""

from collections.abc import Sequence
from typing import Protocol

from delegation.events import Entry


class Journal(Protocol):
    """Keeps entries, in order, for ever. One orchestrator writes it at a time."""

    def append(self, entry: Entry) -> None:
        """Take the next entry. It is safe once `wait_durable` says so."""
        ...

    async def wait_durable(self, seq: int) -> None:
        """Wait until the entry of this number, and all before it, survive a crash."""
        ...

    async def read(self) -> Sequence[Entry]:
        """Return all entries."""
        ...
