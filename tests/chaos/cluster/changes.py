"""The witness in the database: triggers that write down which process has changed which row when.

A process is known by the application name in its address. What is rolled back is not written.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, LiteralString

import attrs

from orchestrator.products.cluster.database.connection import connect, shown_address
from orchestrator.products.cluster.database.schema import install_schema
from orchestrator.products.cluster.work import WorkerId
from orchestrator.products.cluster.work.postgres.exchange import open_exchange
from tests.chaos.cluster.work import JOURNAL

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

_WITNESS: Final[LiteralString] = """
create schema chaos;
create table chaos.changes (
    number bigserial primary key,
    process text not null,
    changed text not null,
    began double precision not null,
    at double precision not null,
    epoch bigint
);
create function chaos.note() returns trigger language plpgsql as $$
begin
    insert into chaos.changes (process, changed, began, at, epoch) values (
        current_setting('application_name'), tg_table_name,
        extract(epoch from statement_timestamp()), extract(epoch from clock_timestamp()),
        case when tg_table_name = 'journals' and tg_op = 'UPDATE'
            then (to_jsonb(new) ->> 'epoch')::bigint end);
    return null;
end $$;
do $$
declare found record;
begin
    for found in select schemaname, tablename from pg_tables
        where schemaname in ('orchestrator', 'absurd')
    loop
        execute format('create trigger witness after insert or update or delete on %I.%I'
            ' for each row execute function chaos.note()', found.schemaname, found.tablename);
    end loop;
end $$;
"""


@attrs.frozen
class Change:
    """One row that was changed."""

    process: str
    table: str
    began: float
    """When its statement began."""
    at: float
    """When its statement had ended, and held its locks."""
    epoch: int | None
    """Of a journal, after the change."""


async def install_witness(url: str) -> None:
    """Create all tables of a cluster in an empty database, and the triggers on them."""
    with connect(url, application="chaos") as connection:
        install_schema(connection, shown_address(url))
        connection.execute("insert into orchestrator.journals (name) values (%s)", (JOURNAL,))
        async with open_exchange(url) as exchange:
            # The queue of a place is made when it is first used.
            async with exchange.queue.receive(WorkerId("chaos"), "gpu", 1):
                pass
        connection.execute(_WITNESS)


def read_changes(connection: "Connection") -> Sequence[Change]:
    rows = connection.execute(
        "select process, changed, began, at, epoch from chaos.changes order by number"
    ).fetchall()
    return [Change(*row) for row in rows]  # type: ignore[arg-type]
