"""What the journal says of runs: of this process, of others, of yesterday."""

from pathlib import Path

import trio

from delegation import Ledger, SessionId, SessionRecord
from delegation.events import Entry, JournalOpened
from orchestrator.cli.errors import CommandError
from orchestrator.storage.journal import folded
from orchestrator.storage.sqlite import read_sqlite_journal, writer_of


def read_ledger(journal: Path) -> Ledger:
    """Fold a journal that another process may be writing."""
    if not journal.exists():
        raise CommandError(f"there are no runs yet: there is no journal {journal}")
    entries = trio.run(read_sqlite_journal, journal)
    ledger = folded(entries, journal)
    if entries and writer_of(journal) is None:
        # Whoever wrote it is gone, so nothing that the journal leaves running runs.
        taken_over = JournalOpened("read only")
        ledger.post(
            Entry(ledger.last_seq + 1, entries[-1].at, SessionId(""), taken_over)
        )
    return ledger


def find_run(ledger: Ledger, prefix: str | None, journal: Path) -> SessionRecord:
    """Return the run whose id begins like this, or the newest one."""
    runs = list(ledger.sessions.values())
    if not runs:
        raise CommandError(f"there are no runs in {journal}")
    if prefix is None:
        return runs[-1]
    found = [run for run in runs if run.id.startswith(prefix)]
    if not found:
        raise CommandError(f"there is no run {prefix!r}; see: orchestrator runs")
    if len(found) > 1 and prefix not in ledger.sessions:
        raise CommandError(f"{len(found)} runs begin with {prefix!r}; say more of it")
    return found[0]
