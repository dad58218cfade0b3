"""The two tables in which writers and workers meet, and their installation.

`letters` is not logged: it costs no flush, and Postgres empties it after a crash. `workers` is
logged, or else a crash would make every worker look dead.
"""

from typing import TYPE_CHECKING, Final, LiteralString

from orchestrator.ports.errors import JournalError

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

VERSION: Final = "1"
_LOCK: Final = 7_340_811_906_254_115
# The catalog itself: what `to_regclass` has not found once it does not find while it waits.
_VERSION_SQL: Final[LiteralString] = """
select (select obj_description(pg_class.oid, 'pg_class')
        from pg_class join pg_namespace on relnamespace = pg_namespace.oid
        where nspname = 'orchestrator' and relname = 'letters')
"""
# The fill factors leave room on each page for the next version of a row.
_TABLES: Final[LiteralString] = """
create schema if not exists orchestrator;
create unlogged table orchestrator.letters (
    execution text not null,
    number integer not null,  -- -1 if the writer says that the execution must stop
    journal text not null,
    worker text not null,
    received bigint not null default 0,  -- by which epoch of the journal
    body bytea not null,
    answer bytea,
    primary key (execution, number)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
create index letters_journal on orchestrator.letters (journal, received);
create index letters_worker on orchestrator.letters (worker);
create table orchestrator.workers (
    id text primary key,
    host text not null,
    place text not null,
    slots integer not null,
    version text not null,
    executions text[] not null,
    beats bigint not null,
    since timestamptz not null,
    heard timestamptz not null,
    promised double precision not null
) with (fillfactor = 50);
comment on table orchestrator.letters is '1'
"""


def install(connection: "Connection", address: str) -> None:
    """Create the tables if there are none; raise `JournalError` for another version; blocking."""
    found = connection.execute(_VERSION_SQL).fetchone()
    if found == (None,):
        with connection.transaction():
            # One process at a time, and the others find what it made.
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            found = connection.execute(_VERSION_SQL).fetchone()
            if found == (None,):
                connection.execute(_TABLES)
                found = (VERSION,)
    if found != (VERSION,):
        version = None if found is None else found[0]
        raise JournalError(
            address,
            f"its tables for workers are of version {version}, and this program knows"
            f" version {VERSION}: update the older of the two",
        )
