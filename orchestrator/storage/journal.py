"""The port behind which the journal is kept."""

from collections.abc import Sequence
from typing import Protocol

from delegation import Encoded, ImpossibleEventError, Ledger, Rules
from delegation.events import Entry
from orchestrator.errors import JournalError


class Journal(Protocol):
    """Keeps entries, in order, for ever. One orchestrator writes it at a time."""

    def append(self, entry: Entry, encoded: Encoded) -> None:
        """Take the next entry, and its fact as it is written down.

        It is safe once `wait_durable` says so.
        """
        ...

    async def wait_durable(self, seq: int) -> None:
        """Wait until the entry of this number, and all before it, survive a crash."""
        ...

    async def read(self) -> Sequence[Entry]:
        """Return all entries."""
        ...


def folded(
    entries: Sequence[Entry], name: object, rules: Rules | None = None
) -> Ledger:
    """Return what is true after these entries of the journal of this name.

    Args:
        entries: all of them.
        name: how the journal is called in an error.
        rules: under which it will be written.
    """
    ledger = Ledger(rules)
    for entry in entries:
        try:
            ledger.post(entry)
        except ImpossibleEventError as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc.because}"
            raise JournalError(name, problem) from exc
    return ledger
