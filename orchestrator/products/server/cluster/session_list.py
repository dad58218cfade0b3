"""A list of all sessions, newest first, including the journals that other processes write.

Such a journal is read beside its writer, so a list shows durable facts. Each session is shown from
its own facts.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from orchestrator.delegation import SessionId
from orchestrator.loggers import logger_of
from orchestrator.ports.errors import JournalAwayError, JournalError, JournalInUseError
from orchestrator.ports.journals import (
    Journals,
    JournalStore,
    Pruned,
    SessionSummary,
    fold_run,
    summarize,
)
from orchestrator.ports.reads import FoundSession
from orchestrator.products.server.cluster.store_readers import StoreReaders
from orchestrator.products.server.keys.key import DEFAULT, Key

if TYPE_CHECKING:
    from orchestrator.products.server.api.lookup import Bodies

T = TypeVar("T")
_LOG: Final = logger_of("server")


@attrs.frozen(order=True)
class Listed:
    """A session in a list."""

    began: float
    journal: str
    number: int
    """Its place in its journal: sessions may begin at the same time."""
    id: SessionId = attrs.field(order=False)


class SessionListing:
    """Lists the sessions of all journals."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._readers = StoreReaders()
        self._unreadable: set[str] = set()
        """The journals and sessions that could not be read, each reported once."""

    def _pass_over(self, what: str, error: JournalError) -> None:
        if what not in self._unreadable:
            self._unreadable.add(what)
            _LOG.warning("%s is left out of lists: %s", what, error)

    async def is_only(self, journal: str) -> bool:
        """Return whether this is the only journal."""
        return await self._readers.read(self._journals.names) == [journal]

    async def others(self, held: Collection[str]) -> list[JournalStore]:
        """Return the journals that this server does not hold."""
        names = await self._readers.read(self._journals.names)
        return [self._journals.store(name) for name in names if name not in held]

    async def preview_prune(self, store: JournalStore, before: float) -> Pruned:
        """Count the runs that pruning a journal deletes, unless another process writes it."""
        return await self._readers.read(partial(_preview_prune, store, before))

    async def newest(self, key: Key, most: int | None = None) -> Sequence[Listed]:
        """Return the sessions that a key sees, newest first; an admin gets only `most`."""
        if key.is_admin:
            return await self._readers.read(partial(self._newest_of_all, most))
        return await self._readers.read(partial(self._newest, key))

    def _newest_of_all(self, most: int | None) -> list[Listed]:
        all_ = self._journals.sessions(newest=most)
        for name, error in all_.unreadable.items():
            self._pass_over(name, error)
        listed = [
            Listed(it.began, it.journal, number, it.id) for number, it in enumerate(all_.sessions)
        ]
        return listed[::-1]

    def _newest(self, key: Key) -> list[Listed]:
        found: list[Listed] = []
        for name in self._journals.names():
            try:
                with self._journals.store(name).open_reader(verify=False) as reader:
                    owners = reader.owners()
                    found += [
                        Listed(it.began, name, number, it.id)
                        for number, it in enumerate(reader.dated_sessions())
                        if key.may_see(owners.get(it.id, DEFAULT))
                    ]
            except JournalAwayError:
                raise  # a list without these sessions would be wrong
            except JournalError as exc:
                self._pass_over(name, exc)
        return sorted(found, reverse=True)

    async def show(self, listed: Listed, bodies: "Bodies[T]") -> T | None:
        """Return the body of a session of another process; None if it cannot be read."""
        return await self._readers.read(partial(self._show, listed, bodies))

    def _show(self, listed: Listed, bodies: "Bodies[T]") -> T | None:
        try:
            writer = self._journals.store(listed.journal).writer()
            # A server answers for its own runs; other processes are named.
            process = 0 if writer is None or writer.address else writer.process
            summary = self._read_summary(listed, has_writer=writer is not None)
            if summary is not None:
                shown = bodies.show_summary(summary, process)
                if shown is not None:
                    return None if summary.deleted else shown.body
            found = self.read(listed.journal, listed.id)
            if found is not None and (
                shown := bodies.show_summary(summarize(found.session, found.records), process)
            ):
                return shown.body
        except JournalAwayError:
            raise
        except JournalError as exc:
            self._pass_over(listed.id, exc)
            return None
        return None if found is None else bodies.show(found)

    def _read_summary(self, listed: Listed, *, has_writer: bool) -> SessionSummary | None:
        with self._journals.store(listed.journal).open_reader(verify=False) as reader:
            return reader.summary(listed.id, has_writer=has_writer)

    async def find(self, session: SessionId, key: Key) -> FoundSession | None:
        """Return a session in any journal, if it exists and the key sees it."""
        return await self._readers.read(partial(self._find, session, key))

    def _find(self, session: SessionId, key: Key) -> FoundSession | None:
        journal = self._journals.find(session)
        found = None if journal is None else self.read(journal, session)
        if found is None or not key.may_see(found.session.owner):
            return None
        return found

    def read(self, journal: str, session: SessionId) -> FoundSession | None:
        """Return a session from its facts; blocking."""
        store = self._journals.store(journal)
        with store.open_reader(verify=False) as reader:
            entries = reader.entries(session)
        ledger = fold_run(entries, journal, has_writer=store.writer() is not None)
        record = ledger.sessions.get(session)
        if record is None or record.deleted:
            return None
        return FoundSession(record, ledger)


def _preview_prune(store: JournalStore, before: float) -> Pruned:
    if store.writer() is not None:
        raise JournalInUseError("a journal", "another process writes it")
    return store.preview_prune(before=before)
