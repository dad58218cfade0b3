"""The journals at an address: the one module that knows every backend."""

import os
from pathlib import Path
from typing import Final

from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.journals import Journals
from orchestrator.kernel.journal.separate_journals import OneJournal
from orchestrator.kernel.journal.store import JournalStore

IN_MEMORY: Final = ":memory:"
DATABASES: Final = ("postgresql://", "postgres://")


def is_database(address: str) -> bool:
    """Return whether an address is the URL of a database."""
    return address.startswith(DATABASES)


def store_at(address: str | os.PathLike[str]) -> JournalStore:
    """Return the store at an address.

    It is `":memory:"`, the path of a SQLite file, or a database with the name of a journal in it:
    `postgresql://host/database?journal=NAME`.

    Raises:
        JournalError: an address of a database names no journal.
    """
    text = os.fspath(address)
    if text == IN_MEMORY:
        from orchestrator.kernel.journal.memory import MemoryStore

        return MemoryStore()
    if is_database(text):
        from orchestrator.products.cluster.database.address import parse_address
        from orchestrator.products.cluster.journal.store import PostgresStore

        parsed = parse_address(text)
        if not parsed.journal:
            raise JournalError("in Postgres", "its address names no journal: add ?journal=NAME")
        return PostgresStore(parsed)
    # Imported late, as each backend is: a program that keeps nothing needs no database.
    from orchestrator.kernel.journal.sqlite.store import SQLiteStore

    return SQLiteStore(Path(address))


def journals_at(address: str | os.PathLike[str], *, host: str = "") -> Journals:
    """Return the journals at an address.

    Args:
        address: `":memory:"`, the path of a SQLite file, or the path of a folder of SQLite files,
            which exists or ends with a slash. Or it is a database: `postgresql://host/database`.
        host: the name of this machine in its rows of a database; by default its network name.
    """
    text = os.fspath(address)
    if text == IN_MEMORY:
        return OneJournal(text, text, store_at(text))
    if is_database(text):
        from orchestrator.products.cluster.database.address import parse_address
        from orchestrator.products.cluster.journal.journals import PostgresJournals
        from orchestrator.products.cluster.journal.store import PostgresStore

        parsed = parse_address(text, host=host)
        if not parsed.journal:
            return PostgresJournals(parsed)
        store = PostgresStore(parsed)
        return OneJournal(store.where, parsed.journal, store)
    path = Path(text)
    if text.endswith(os.sep) or path.is_dir():
        from orchestrator.kernel.journal.sqlite.folder import SQLiteFolder

        return SQLiteFolder(path)
    return OneJournal(text, path.name, store_at(path))
