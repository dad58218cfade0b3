"""Journals that are read one after the other, each from its own store.

An unreadable journal does not stop the others, and each result names its journal.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from orchestrator.delegation import SessionId
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.journals import HeldJournal, ListedSession, SessionList
from orchestrator.kernel.journal.reader import DatedSession, JournalReader
from orchestrator.kernel.journal.store import JournalStore

ReadT = TypeVar("ReadT")


class SeparateJournals(ABC):
    """The part of `Journals` that is the same wherever each journal is a store of its own."""

    @abstractmethod
    def names(self) -> Sequence[str]: ...

    @abstractmethod
    def store(self, name: str) -> JournalStore: ...

    @abstractmethod
    def open_free(self, *, address: str = "") -> AbstractAsyncContextManager[HeldJournal]: ...

    def find(self, session: SessionId) -> str | None:
        found, unreadable = self._read_each(lambda it: it.has_session(session))
        for name, has_it in found.items():
            if has_it:
                return name
        for error in unreadable.values():
            raise error
        return None

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> SessionList:
        def read(reader: JournalReader) -> tuple[Sequence[DatedSession], int]:
            return reader.dated_sessions(prefix=prefix, newest=newest), reader.count()

        found, unreadable = self._read_each(read)
        listed = _merge({name: sessions for name, (sessions, _) in found.items()})
        return SessionList(
            sessions=listed if newest is None else listed[max(0, len(listed) - newest) :],
            count=sum(count for _, count in found.values()),
            unreadable=unreadable,
        )

    def sessions_with_task(self, prefix: str) -> SessionList:
        def read(reader: JournalReader) -> tuple[Sequence[DatedSession], int]:
            ids = {*reader.sessions_with_task(prefix)}
            dated = [it for it in reader.dated_sessions() if it.id in ids] if ids else []
            return dated, reader.count()

        found, unreadable = self._read_each(read)
        return SessionList(
            sessions=_merge({name: sessions for name, (sessions, _) in found.items()}),
            count=sum(count for _, count in found.values()),
            unreadable=unreadable,
        )

    def waiting(self) -> Mapping[str, Sequence[SessionId]]:
        free = [name for name in self.names() if self.store(name).writer() is None]
        found, _ = self._read_each(lambda it: it.active_sessions(), free)
        return {name: active for name, active in found.items() if active}

    def _read_each(
        self, read: Callable[[JournalReader], ReadT], names: Sequence[str] | None = None
    ) -> tuple[dict[str, ReadT], dict[str, JournalError]]:
        """Read the same of each journal; return it by name, and what cannot be read."""
        found: dict[str, ReadT] = {}
        unreadable: dict[str, JournalError] = {}
        for name in self.names() if names is None else names:
            try:
                with self.store(name).open_reader(verify=False) as reader:
                    found[name] = read(reader)
            except JournalError as exc:
                unreadable[name] = exc
        return found, unreadable


class OneJournal(SeparateJournals):
    """The one journal of a file, or in memory. It is used, whatever waits in it."""

    def __init__(self, address: str, name: str, store: JournalStore) -> None:
        self.address = address
        self._name = name
        self._store = store

    @property
    def folder(self) -> Path | None:
        return None if self._store.file is None else Path(self.address).parent

    def names(self) -> Sequence[str]:
        return [self._name] if self._store.exists() else []

    def store(self, name: str) -> JournalStore:
        return self._store

    @asynccontextmanager
    async def open_free(self, *, address: str = "") -> AsyncGenerator[HeldJournal]:
        async with self._store.open_writer(address=address) as journal:
            yield HeldJournal(self._name, journal)


def _merge(found: Mapping[str, Sequence[DatedSession]]) -> list[ListedSession]:
    """Return the sessions of all journals by time; those of one journal stay in their order."""
    dated: list[tuple[float, ListedSession]] = []
    for name, sessions in found.items():
        # The clock of a machine may have been set back between two of them.
        latest = -math.inf
        for it in sessions:
            latest = max(latest, it.began)
            dated.append((latest, ListedSession(name, it.id, it.began)))
    # Sorting is stable: what began at once stays as it is.
    return [it for _, it in sorted(dated, key=lambda pair: pair[0])]
