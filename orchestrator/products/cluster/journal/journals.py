"""All journals of a database: the shards of its servers, and the journals of other processes.

Each has a lease of its one writer. A process without a session in mind takes the first free `run-N`
in which no session waits, or creates the next one.
"""

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar, cast

import attrs
import trio

from orchestrator.delegation import SessionId
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.journals import HeldJournal, ListedSession, SessionList
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.connection import connected, shown_address
from orchestrator.products.cluster.database.schema import require_schema
from orchestrator.products.cluster.journal.reader import one_moment
from orchestrator.products.cluster.journal.store import PostgresStore

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")

OWN_NAME: Final = re.compile(r"run-([1-9][0-9]{0,8})")
"""The names of journals that are no shards of servers."""
_NAMES: Final[LiteralString] = """
SELECT name FROM orchestrator.journals WHERE epoch > 0
ORDER BY regexp_replace(name, '[0-9]+$', ''),
    (regexp_match(name, '([0-9]{1,9})$'))[1]::bigint, name
"""
_FIND: Final[LiteralString] = """
SELECT name FROM orchestrator.sessions JOIN orchestrator.journals USING (journal)
WHERE session = %s
"""
_SESSIONS: Final[LiteralString] = """
SELECT name, sessions.session, coalesce(at, 0)
FROM orchestrator.sessions JOIN orchestrator.journals USING (journal)
    LEFT JOIN orchestrator.entries ON entries.journal = sessions.journal AND seq = first
WHERE starts_with(sessions.session, %s)
ORDER BY coalesce(at, 0) DESC, sessions.journal DESC, first DESC LIMIT %s
"""
_WITH_TASK: Final[LiteralString] = """
SELECT name, sessions.session, coalesce(begun.at, 0)
FROM orchestrator.sessions JOIN orchestrator.journals USING (journal)
    LEFT JOIN orchestrator.entries AS begun
        ON begun.journal = sessions.journal AND begun.seq = first
WHERE EXISTS (SELECT FROM orchestrator.entries AS it
    WHERE it.journal = sessions.journal AND it.session = sessions.session
        AND kind = 'TaskRequested' AND position(%s IN body) > 0)
ORDER BY coalesce(begun.at, 0), sessions.journal, first
"""
_COUNT: Final[LiteralString] = "SELECT count(*) FROM orchestrator.sessions"
_WAITING: Final[LiteralString] = """
SELECT name, session FROM orchestrator.sessions JOIN orchestrator.journals USING (journal)
WHERE used IS NULL AND until < clock_timestamp() ORDER BY name, first
"""
_FREE: Final[LiteralString] = """
SELECT name FROM orchestrator.journals WHERE until < clock_timestamp() AND NOT EXISTS (
    SELECT FROM orchestrator.sessions
    WHERE sessions.journal = journals.journal AND used IS NULL)
"""


class PostgresJournals:
    """The journals of a database."""

    folder = None

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address

    @property
    def address(self) -> str:
        return shown_address(self._address.url)

    def names(self) -> Sequence[str]:
        return self._look(lambda it: _texts(it, _NAMES), list[str]())

    def store(self, name: str) -> PostgresStore:
        return PostgresStore(attrs.evolve(self._address, journal=name))

    def find(self, session: SessionId) -> str | None:
        found = self._look(lambda it: _texts(it, _FIND, session), list[str]())
        return found[0] if found else None

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> SessionList:
        def read(connection: "Connection") -> SessionList:
            rows = connection.execute(_SESSIONS, (prefix, newest)).fetchall()
            return _list(connection, rows[::-1])

        return self._look(read, NO_SESSIONS)

    def sessions_with_task(self, prefix: str) -> SessionList:
        def read(connection: "Connection") -> SessionList:
            rows = connection.execute(_WITH_TASK, (f'"id":"{prefix}',)).fetchall()
            return _list(connection, rows)

        return self._look(read, NO_SESSIONS)

    def waiting(self) -> Mapping[str, Sequence[SessionId]]:
        def read(connection: "Connection") -> Mapping[str, Sequence[SessionId]]:
            found: dict[str, list[SessionId]] = {}
            for name, session in connection.execute(_WAITING):
                found.setdefault(str(name), []).append(SessionId(str(session)))
            return found

        return self._look(read, {})

    @asynccontextmanager
    async def open_free(self, *, address: str = "") -> AsyncGenerator[HeldJournal]:
        async with AsyncExitStack() as stack:
            yield await self._enter_free(stack, address)

    async def _enter_free(self, stack: AsyncExitStack, address: str) -> HeldJournal:
        def look() -> tuple[list[str], list[str]]:
            none = (list[str](), list[str]())
            return self._look(lambda it: (_texts(it, _NAMES), _texts(it, _FREE)), none)

        names, free = await trio.to_thread.run_sync(look)
        known = [it for it in names if it in free and OWN_NAME.fullmatch(it)]
        new = (it for it in map("run-{}".format, count(1)) if it not in names)
        for name in chain(known, new):
            # Another process may come first: then the next one is tried.
            with suppress(JournalInUseError):
                store = self.store(name)
                return HeldJournal(
                    name, await stack.enter_async_context(store.open_writer(address=address))
                )
        raise AssertionError("there is always another name")

    def _look(self, read: "Callable[[Connection], ResultT]", default: ResultT) -> ResultT:
        with connected(self._address.url, self.address) as connection, one_moment(connection):
            if not require_schema(connection, self.address, self._address.cluster):
                return default
            return read(connection)


NO_SESSIONS: Final = SessionList(sessions=(), count=0)


def _texts(connection: "Connection", query: LiteralString, *values: object) -> list[str]:
    return [str(text) for (text,) in connection.execute(query, values)]


def _list(connection: "Connection", rows: Sequence[tuple[object, ...]]) -> SessionList:
    row = connection.execute(_COUNT).fetchone()
    listed = cast(Sequence[tuple[Any, ...]], rows)
    return SessionList(
        sessions=[
            ListedSession(name, SessionId(session), began) for name, session, began in listed
        ],
        count=0 if row is None else int(str(row[0])),
    )
