"""The two connections of a process: what is lost with them is made up for, and no more are used."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import trio
import trio.testing

from orchestrator.kernel.errors import JournalError, OrchestratorError
from orchestrator.products.cluster.database.connection import connect
from orchestrator.products.cluster.database.database import Database, open_database
from orchestrator.products.cluster.database.wakeups import channel, open_wakeups
from orchestrator.products.cluster.work import ExecutionId, Request
from orchestrator.products.cluster.work.postgres.exchange import open_exchange
from orchestrator.products.cluster.work.postgres.writer_mailbox import open_writer_mailbox
from tests.workers.kit import JOURNAL, WORKER, Leaf

pytestmark = pytest.mark.realtime


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with connect(url, application="test") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class LossyDatabase(Database):
    """Loses the reply to a statement, with its connection, when told to."""

    loses = False

    async def _in_thread(self, connection: Any, work: Callable[[Any], Any]) -> Any:
        result = await super()._in_thread(connection, work)
        if self.loses:
            self.loses = False
            connection.close()
            raise psycopg.OperationalError("the reply is lost")
        return result


async def test_a_request_with_a_lost_reply_is_received(postgres: str) -> None:
    """The database has received it, although the writer got no answer."""
    leaf = Leaf("absurd", postgres)
    tenure = leaf.take_over()
    async with leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        database = LossyDatabase(postgres, "test")
        async with (
            open_wakeups(postgres, application="test") as wakeups,
            open_writer_mailbox(database, wakeups, tenure) as writer,
            trio.open_nursery() as nursery,
        ):
            # The first look has ended, so the next one finds the request.
            await trio.testing.wait_all_tasks_blocked(0.1)
            database.loses = True
            with trio.fail_after(10):
                nursery.start_soon(worker.ask, Request(JOURNAL, WORKER, ExecutionId("r"), 0, b"?"))
                (received,) = await writer.receive()
            assert not database.loses
            writer.answer(received, b"")
        await database.aclose()


async def test_a_statement_ends_soon_after_its_caller(postgres: str) -> None:
    """However long it would take; the next one gets a new connection."""
    async with open_database(postgres, application="test") as database:
        start = trio.current_time()
        with trio.move_on_after(0.1):
            await database.run(lambda it: it.execute("select pg_sleep(600)"))
        assert trio.current_time() - start < 10

        rows = await database.run(lambda it: it.execute("select 1").fetchall())
        assert rows == [(1,)]


async def test_a_bell_rings_also_after_its_connection_was_lost(postgres: str) -> None:
    name = channel("place", "gpu")
    async with open_wakeups(postgres, application="listens") as wakeups:
        with wakeups.bell(name) as bell, trio.fail_after(20):
            assert await bell.wait(20)  # it is listened to
            execute(postgres, f"notify {name}")
            assert await bell.wait(20)

            execute(
                postgres,
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'listens'",
            )
            assert await bell.wait(20)  # what came meanwhile may be lost
            execute(postgres, f"notify {name}")
            assert await bell.wait(20)


async def test_a_process_has_two_connections_however_much_it_does(postgres: str) -> None:
    leaf = Leaf("absurd", postgres)
    tenures = [leaf.take_over(f"shard-{number}") for number in range(5)]
    async with open_exchange(postgres, application="counted") as exchange:
        async with (
            exchange.writer_mailbox(tenures[0]),
            exchange.writer_mailbox(tenures[1]),
            exchange.worker_mailbox(WORKER),
            exchange.queue.receive(WORKER, "gpu", 10),
        ):
            assert execute(
                postgres,
                "select count(*) from pg_stat_activity where application_name like 'counted%'",
            ) == [(2,)]


async def test_another_version_of_absurd_is_refused_in_one_sentence(postgres: str) -> None:
    execute(
        postgres,
        "create schema absurd; create function absurd.get_schema_version()"
        " returns text language sql as $$ select '9.9.9'::text $$",
    )
    with pytest.raises(JournalError, match=r"Absurd 9\.9\.9 is installed there"):
        async with open_exchange(postgres):
            pass


async def test_an_unknown_queue_is_refused_in_one_sentence() -> None:
    for name, words in (
        ("rabbit", "there is no work queue 'rabbit'"),
        ("no.such.module:open", "cannot be imported"),
        ("json:no_such_function", "cannot be imported"),
    ):
        with pytest.raises(OrchestratorError, match=words):
            async with open_exchange("postgresql:///none", queue=name):
                pass
