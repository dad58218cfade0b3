"""Which store an address of a journal means: the one place that knows the backends."""

import os
from pathlib import Path
from typing import Final

from orchestrator.journal.memory import MemoryStore
from orchestrator.journal.sqlite.store import SQLiteStore
from orchestrator.journal.store import JournalStore

IN_MEMORY: Final = ":memory:"


def store_at(address: str | os.PathLike[str]) -> JournalStore:
    """Return the store at an address: `":memory:"`, or the path of a SQLite file."""
    if os.fspath(address) == IN_MEMORY:
        return MemoryStore()
    return SQLiteStore(Path(address))
