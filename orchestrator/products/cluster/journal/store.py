"""One journal of a database as a store."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec.structs import replace

from orchestrator.delegation import Rules, SessionId
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import AuditedEvent, AuditEvent, Finding, Pruned, Writer
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.connection import connected, shown_address
from orchestrator.products.cluster.database.schema import NEWER, require_schema
from orchestrator.products.cluster.journal import prune
from orchestrator.products.cluster.journal.acquisition import FACTS_VERSION
from orchestrator.products.cluster.journal.journal import PostgresJournal, open_postgres_journal
from orchestrator.products.cluster.journal.lease import read_writer
from orchestrator.products.cluster.journal.reader import PostgresReader, one_moment, read_row

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")


class PostgresStore:
    """A journal with a name in a database."""

    file = None

    def __init__(self, address: DatabaseAddress) -> None:
        """Name a journal.

        Args:
            address: of the database, with the name of the journal.
        """
        self._address = address

    @property
    def where(self) -> str:
        """The journal as people may read it."""
        return f"{self._address.journal} in {shown_address(self._address.url)}"

    def exists(self) -> bool:
        return self._look(lambda it: read_row(it, self._address.journal)) is not None

    def open_writer(self, *, address: str = "") -> AbstractAsyncContextManager[PostgresJournal]:
        return open_postgres_journal(self._address, self.where, served_at=address)

    def writer(self) -> Writer | None:
        return self._look(lambda it: read_writer(it, self._address.journal))

    def _look(self, read: "Callable[[Connection], ResultT]") -> ResultT | None:
        """Read something; return None if the database has no journals."""
        with connected(self._address.url, self.where) as connection:
            if not require_schema(connection, self.where, self._address.cluster):
                return None
            return read(connection)

    @contextmanager
    def open_reader(self, *, verify: bool = True) -> Generator[PostgresReader]:
        with connected(self._address.url, self.where) as connection, one_moment(connection):
            has_tables = require_schema(connection, self.where, self._address.cluster)
            row = read_row(connection, self._address.journal) if has_tables else None
            if row is None:
                raise JournalError(self.where, "there is no such journal")
            reader = PostgresReader(self.where, connection, row)
            if row.facts > FACTS_VERSION:
                raise JournalError(self.where, f"it has facts of version {row.facts}: {NEWER}")
            if verify:
                reader.require_complete()
            yield reader

    def check(self) -> Iterator[Finding]:
        from orchestrator.products.cluster.journal.check import check_journal

        with self.open_reader(verify=False) as reader:
            yield from check_journal(reader, self.writer())

    def preview_prune(self, *, before: float) -> Pruned:
        with self.open_reader(verify=False) as reader:
            return prune.preview(reader.connection, reader.row.journal, before)

    async def append_audit(self, at: float, event: AuditEvent) -> None:
        async with self.open_writer() as journal:
            journal.append_audit(at, event)
            await journal.wait_audited()

    async def prune_audit(self, *, before: float, at: float, event: AuditEvent) -> int:
        async with self.open_writer() as journal:
            return await journal.prune_audit(before=before, at=at, event=event)

    async def prune(
        self, *, before: float, only: SessionId | None = None, audit: AuditedEvent | None = None
    ) -> Pruned:
        async with self.open_writer() as journal:
            await journal.read(Rules())  # refuses a journal that is not complete
            size = await trio.to_thread.run_sync(self._size)
            pruned = await journal.prune(
                before=before, release=lambda _: True, only=only, audit=audit
            )
            if pruned.runs:
                await trio.to_thread.run_sync(self._vacuum)
            freed = size - await trio.to_thread.run_sync(self._size)
        return replace(pruned, freed=max(0, freed))

    def _size(self) -> int:
        with connected(self._address.url, self.where) as connection:
            return prune.size_of(connection)

    def _vacuum(self) -> None:
        with connected(self._address.url, self.where) as connection:
            prune.vacuum(connection)
