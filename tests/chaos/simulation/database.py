"""Postgres behind `psycopg.connect`, simulated: its tables are in SQLite, its clock is virtual.

A statement takes effect at one moment, some time after it was sent and before it is answered. The
link of its host may hold either way back, or break. Queries are the ones of the product, with
the words of Postgres replaced by those of SQLite; the fenced statements of writers, which SQLite
cannot execute, are taken apart here.
"""

import json
import random
import re
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, Self

import attrs
import psycopg
import trio

from orchestrator.products.cluster.database import schema, servers
from orchestrator.products.cluster.journal.fenced_connection import FENCED
from tests.chaos.simulation.threads import call_in_loop, wait_for

LONG_AGO: Final = 1_000_000.0
"""The time of the database at the start."""
SILENCE_SECONDS: Final = 15.0
"""How long TCP waits for a host that says nothing (`tcp_user_timeout`)."""
CONNECT_SECONDS: Final = 10.0
_DDL: Final = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"(?s)(CREATE SCHEMA|COMMENT ON|ALTER TABLE)[^;]*;", ""),
        (r"ALTER TABLE[^;]*$", ""),
        (r"(integer|bigint) GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "INTEGER PRIMARY KEY"),
        (r"timestamptz", "REAL"),
        (r"DEFAULT 'epoch'|DEFAULT clock_timestamp\(\)", "DEFAULT 0"),
        (r"repeat\('0', 64\)", f"'{'0' * 64}'"),
        (r"WITH \(fillfactor = \d+\)", ""),
        (r"CREATE INDEX (\w+) ON orchestrator\.(\w+)", r"CREATE INDEX orchestrator.\1 ON \2"),
    )
]
"""The words of the product's tables that SQLite lacks."""
_MORE: Final = """
INSERT INTO orchestrator.cluster (version, id, name) VALUES (1, 'simulated', '');
ALTER TABLE orchestrator.servers ADD COLUMN host text NOT NULL DEFAULT '';
ALTER TABLE orchestrator.servers ADD COLUMN network text NOT NULL DEFAULT '';
CREATE TEMP TABLE mine (journal integer);
"""
_REPLACED: Final = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"::(bigint|float8|integer|json|text)", ""),
        (r"%\((\w+)\)s", r":\1"),
        (r"= ANY\(([:\w?%]+)\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"%s", "?"),
        (r"convert_to\((\w+), 'UTF8'\)", r"CAST(\1 AS BLOB)"),
        (r"position\((.+?) IN body\)", r"instr(body, \1)"),
        (r"extract\(epoch FROM until - clock_timestamp\(\)\)", "(until - clock_timestamp())"),
        (r"make_interval\(secs => \?\)", "?"),
        (r"interval '1 second'", "1.0"),
        (r"'epoch'", "0"),
        (r"\bgreatest\(", "max("),
        (r"LIMIT (\?|:\w+)", r"LIMIT coalesce(\1, -1)"),
        (r"ORDER BY regexp_replace[^;]+", "ORDER BY name"),
    )
]
_INSERT: Final = re.compile(r"(?s), \w+ AS \(\n(.*?)\n\)")
"""One of the inserts of a fenced statement."""
_RECORDS: Final = re.compile(r"json_to_recordset\(\?\) AS it \(([^)]*)\)")


@cache
def translated(statement: str) -> str:
    """Return a statement of Postgres as SQLite understands it."""
    return _replaced(statement, _REPLACED)


def _replaced(text: str, replaced: Sequence[tuple[re.Pattern[str], str]]) -> str:
    for pattern, by in replaced:
        text = pattern.sub(by, text)
    return text


@attrs.define(eq=False)
class Link:
    """The way of one host to the database, by the application names of its connections."""

    held: frozenset[str] | None = frozenset()
    """The applications whose bytes are held back; None holds all."""
    is_dead: bool = False
    """The process is gone: its connections break at once."""
    changed: trio.Event = attrs.field(factory=trio.Event)

    def hold(self, held: frozenset[str] | None) -> None:
        self.held = held
        self.note_change()

    def kill(self) -> None:
        self.is_dead = True
        self.note_change()

    def note_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def holds(self, application: str) -> bool:
        return self.held is None or application in self.held


class SimulatedPostgres:
    """One database of all hosts."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._links: dict[str, Link] = {}
        self._receivers: list[tuple[Link, Callable[[str], None]]] = []
        self.is_up = True
        self._connections: set[SimulatedConnection] = set()
        self.tables = sqlite3.connect(":memory:", isolation_level=None)
        self.tables.execute("ATTACH ':memory:' AS orchestrator")
        for script in (schema._CREATE, servers._CREATE):
            self.tables.executescript(_replaced(script, _DDL))
        self.tables.executescript(_MORE)
        self.tables.create_function("clock_timestamp", 0, self.now)
        self.tables.create_function(
            "starts_with", 2, lambda text, start: text.startswith(start), deterministic=True
        )
        self.statements = 0

    def now(self) -> float:
        """Return the time of the database."""
        return LONG_AGO + trio.current_time()

    def link(self, host: str) -> Link:
        """Return the way of a host, or of one life of it."""
        return self._links.setdefault(host, Link())

    def listen(self, host: str, receive: Callable[[str], None]) -> None:
        """Call a function with each channel that is notified, if its host can hear it."""
        self._receivers.append((self.link(host), receive))

    def kill(self, host: str) -> None:
        """Break the connections of a process that was killed."""
        link = self.link(host)
        link.kill()
        for it in list(self._connections):
            if it.link is link:
                it.break_off()

    def crash(self) -> None:
        """Break all connections, and refuse new ones until `recover`."""
        self.is_up = False
        for it in list(self._connections):
            it.break_off()

    def recover(self) -> None:
        self.is_up = True

    def latency(self) -> float:
        # Most answers are quick; some are slow enough to meet the next fault.
        return self._chance.choice((0.0005, 0.001, 0.002, 0.02, 0.2))

    def connect(self, **settings: Any) -> "SimulatedConnection":
        """Open a connection as `psycopg.connect` does; blocking."""
        link = self.link(settings["host"])
        application = settings["application_name"]

        async def greet() -> None:
            with trio.move_on_after(CONNECT_SECONDS) as waited:
                await trio.sleep(self.latency())
                while link.holds(application) and not link.is_dead:
                    await link.changed.wait()
            if waited.cancelled_caught:
                raise psycopg.errors.ConnectionTimeout("timeout expired")
            if link.is_dead or not self.is_up:
                raise psycopg.OperationalError("connection refused")

        wait_for(greet)
        opened = SimulatedConnection(self, link, application)
        self._connections.add(opened)
        return opened

    def forget(self, connection: "SimulatedConnection") -> None:
        self._connections.discard(connection)

    def notify(self, channel: str) -> None:
        for link, receive in self._receivers:
            if not link.is_dead and link.held is not None:
                receive(channel)

    def execute(self, statement: str, values: Any) -> "Rows":
        """Execute a statement now."""
        self.statements += 1
        if statement.lstrip().startswith("WITH mine AS"):
            return Rows([(self._execute_fenced(statement, list(values)),)])
        if (given := self._special(statement, values)) is not None:
            return given
        if isinstance(values, Mapping):
            bound: Any = {name: _bound(it) for name, it in values.items()}
        else:
            bound = [_bound(it) for it in values]
        cursor = self.tables.execute(translated(statement), bound)
        return Rows(cursor.fetchall() if cursor.description else [])

    def _special(self, statement: str, values: Any) -> "Rows | None":
        """Return the answer to a statement about the database itself; None for any other."""
        if "obj_description" in statement:
            return Rows([(schema.MARK, len(values[0]))])
        if "pg_is_in_recovery" in statement:
            return Rows([(1, False, "UTF8", self.now())])
        if "pg_notify" in statement:
            self.notify(values[0])
            return Rows([])
        if "set_config" in statement or "advisory" in statement or "CREATE TABLE" in statement:
            return Rows([])
        if "pg_total_relation_size" in statement:
            return Rows([(1_000_000,)])
        return None

    def _execute_fenced(self, statement: str, values: list[Any]) -> int:
        """Execute a change of a writer if its epoch and number are right; return 1, or 0."""
        update, fenced, rest = statement.partition(FENCED)
        update = (update.partition("AS (")[2] + fenced).rpartition(")")[0]
        count = update.count("%s")
        mine = self.tables.execute(translated(update), values[:count]).fetchall()
        if not mine:
            return 0
        self.tables.execute("DELETE FROM mine")
        self.tables.execute("INSERT INTO mine VALUES (?)", mine[0])
        for part in _INSERT.findall(rest):
            insert = _RECORDS.sub(_records, translated(part))
            insert = insert.replace("json_each_text", "json_each")
            if "WHERE" not in insert:
                # SQLite takes the condition of a conflict for one of a join otherwise.
                insert = insert.replace("ON CONFLICT", "WHERE true ON CONFLICT")
            used = part.count("%s")
            self.tables.execute(insert, values[count : count + used])
            count += used
        assert count == len(values), "all values are used"
        return 1


def _records(found: re.Match[str]) -> str:
    """Return a query for the rows of a JSON array in place of `json_to_recordset`."""
    names = [column.split()[0] for column in found[1].split(",")]
    columns = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in names)
    return f"(SELECT {columns} FROM json_each(?)) AS it"


def _bound(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


class Rows:
    """The rows of an answer."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows

    def __iter__(self) -> Any:
        return iter(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)


class _Moment(Enum):
    """When the statements of a connection see the database."""

    EACH = auto()
    """Each at a moment of its own."""
    NEXT = auto()
    """All at the moment of the next one."""
    NOW = auto()


class SimulatedConnection:
    """A connection of one host. Its methods are the ones of psycopg that the product calls."""

    info = SimpleNamespace(backend_pid=1)

    def __init__(self, database: SimulatedPostgres, link: Link, application: str) -> None:
        self._database = database
        self.link = link
        self._application = application
        self._broken = trio.Event()
        self._moment = _Moment.EACH
        self.isolation_level: Any = None
        self.read_only = False

    @property
    def closed(self) -> bool:
        return self._broken.is_set()

    @property
    def broken(self) -> bool:
        return self._broken.is_set()

    def break_off(self) -> None:
        self._broken.set()
        self._database.forget(self)

    def close(self) -> None:
        call_in_loop(self.break_off)

    def fileno(self) -> int:
        """Break the connection off: only `shut` asks for this."""
        self.break_off()
        raise OSError("it is simulated")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def execute(self, statement: Any, values: Any = (), *, prepare: bool = False) -> Rows:
        text = statement if isinstance(statement, str) else str(statement)
        return wait_for(lambda: self._run(text, values))

    @contextmanager
    def cursor(self, *, binary: bool = False) -> Generator["SimulatedCursor"]:
        yield SimulatedCursor(self)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Make reads see one moment; the changes of the product are single statements."""
        self._moment = _Moment.NEXT if self.read_only else _Moment.EACH
        try:
            yield
        finally:
            self._moment = _Moment.EACH

    async def _run(self, statement: str, values: Any) -> Rows:
        match self._moment:
            case _Moment.EACH:
                await self._carry()
                answer = self._database.execute(statement, values)
                await self._carry()
                return answer
            case _Moment.NEXT:
                await self._carry()
                await self._carry()
                self._moment = _Moment.NOW
            case _Moment.NOW:
                pass
        # A transaction sees the moment of its first statement: no time passes in it.
        return self._database.execute(statement, values)

    async def _carry(self) -> None:
        """Wait until bytes have come through; raise if the connection breaks before."""
        with trio.move_on_after(SILENCE_SECONDS) as waited:
            with trio.move_on_after(self._database.latency()):
                await self._broken.wait()
            while self.link.holds(self._application) and not self._is_over:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_broken, nursery.cancel_scope)
                    await self.link.changed.wait()
                    nursery.cancel_scope.cancel()
        if waited.cancelled_caught or self._is_over:
            self.break_off()
            raise psycopg.OperationalError("the connection is lost")

    @property
    def _is_over(self) -> bool:
        return self._broken.is_set() or self.link.is_dead or not self._database.is_up

    async def _cancel_when_broken(self, scope: trio.CancelScope) -> None:
        await self._broken.wait()
        scope.cancel()


class SimulatedCursor:
    """A cursor, which the reader of journals uses."""

    def __init__(self, connection: SimulatedConnection) -> None:
        self._connection = connection
        self._rows = Rows([])

    def execute(self, statement: str, values: Any) -> None:
        self._rows = self._connection.execute(statement, values)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows.fetchall()
