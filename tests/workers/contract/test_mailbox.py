"""The mailboxes of workers and writers, in memory and in Postgres."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, LiteralString

import pytest
import trio
import trio.testing

from orchestrator.kernel.errors import JournalInUseError
from orchestrator.products.cluster.database.connection import connect
from orchestrator.products.cluster.work import (
    Beat,
    Exchange,
    ExecutionId,
    Request,
    Tenure,
    WorkerId,
    WriterMailbox,
)
from tests.postgres import PostgresServer
from tests.workers.kit import JOURNAL, WORKER, Leaf

pytestmark = pytest.mark.realtime

RUN = ExecutionId("run-1")
# Also of letters that are there already.
COUNT_WRITTEN: Final[LiteralString] = """
create table written (number integer);
create function note() returns trigger language plpgsql as $$
begin
    insert into written values (new.number);
    return new;
end $$;
create trigger written before insert on orchestrator.letters for each row execute function note();
"""


def request(
    number: int, body: bytes = b"?", *, run: ExecutionId = RUN, journal: str = JOURNAL
) -> Request:
    return Request(journal, WORKER, run, number, body)


def beat_of(worker: str) -> Beat:
    return Beat(worker=WorkerId(worker), host="alpha", place="gpu", slots=1, version="7f3a")


@asynccontextmanager
async def answering(
    exchange: Exchange,
    tenure: Tenure,
    answer: Callable[[Request], bytes],
    seen: list[Request] | None = None,
    *,
    only: str = "",
) -> AsyncGenerator[WriterMailbox]:
    """A writer that answers all it is asked, or only by one run."""

    async def answer_forever(mailbox: WriterMailbox) -> None:
        while True:
            for it in await mailbox.receive():
                if seen is not None:
                    seen.append(it)
                if only in {"", it.execution}:
                    mailbox.answer(it, answer(it))

    async with exchange.writer_mailbox(tenure) as mailbox:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_forever, mailbox)
            yield mailbox
            nursery.cancel_scope.cancel()


async def test_each_request_gets_its_exact_answer(mail_leaf: Leaf) -> None:
    """Also a large one, and one of bytes that are no text; two journals do not mix."""
    tenures = [mail_leaf.take_over(JOURNAL), mail_leaf.take_over("shard-2")]
    large = bytes(range(256)) * 4096
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with (
            answering(exchange, tenures[0], lambda it: b"1" + it.body),
            answering(exchange, tenures[1], lambda it: b"2" + it.body),
            trio.open_nursery() as nursery,
        ):

            async def ask(number: int, journal: str, body: bytes) -> None:
                run = ExecutionId(f"run at {journal}")
                answer = await worker.ask(request(number, body, run=run, journal=journal))
                assert answer == (b"1" if journal == JOURNAL else b"2") + body

            for number, body in enumerate([b"", large, b"\0\xff", b"plain"] * 5):
                nursery.start_soon(ask, number, JOURNAL, body)
                nursery.start_soon(ask, number, "shard-2", body)


async def test_a_repeated_request_gets_the_same_answer_and_is_decided_once(mail_leaf: Leaf) -> None:
    tenure = mail_leaf.take_over()
    seen: list[Request] = []
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with answering(exchange, tenure, lambda _: b"%d" % len(seen), seen) as it:
            assert await worker.ask(request(0)) == b"1"
            assert await worker.ask(request(0)) == b"1"
            assert len(seen) == 1

            it.forget(RUN)
            assert await worker.ask(request(0)) == b"2"


async def test_an_answer_that_is_dropped_is_not_given_again_nor_decided_again(
    mail_leaf: Leaf,
) -> None:
    tenure = mail_leaf.take_over()
    seen: list[Request] = []
    answers: list[bytes] = []
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with answering(exchange, tenure, lambda _: b"%d" % len(seen), seen) as it:
            await worker.ask(request(0))
            it.drop_answer(seen[0])
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def ask_again() -> None:
                    answers.append(await worker.ask(request(0)))

                await trio.testing.wait_all_tasks_blocked()
                assert await worker.ask(request(1)) == b"2"
                nursery.cancel_scope.cancel()

    assert not answers


async def test_the_last_answer_arrives_also_if_the_writer_forgets_the_run_at_once(
    mail_leaf: Leaf,
) -> None:
    tenure = mail_leaf.take_over()
    async with (
        mail_leaf.open() as exchange,
        exchange.worker_mailbox(WORKER) as worker,
        exchange.writer_mailbox(tenure) as writer,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def answer() -> None:
            (asked,) = await writer.receive()
            writer.answer(asked, b"done")
            writer.forget(RUN)

        assert await worker.ask(request(0)) == b"done"


async def test_the_last_answer_arrives_also_if_the_writer_is_cancelled_then(
    mail_leaf: Leaf,
) -> None:
    tenure = mail_leaf.take_over()
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def answer() -> None:
                with trio.CancelScope() as scope:
                    async with exchange.writer_mailbox(tenure) as writer:
                        (asked,) = await writer.receive()
                        scope.cancel()
                        writer.answer(asked, b"done")
                        await writer.receive()

            assert await worker.ask(request(0)) == b"done"


async def test_a_new_writer_answers_the_open_requests_of_the_old_one(mail_leaf: Leaf) -> None:
    """The worker notices nothing but the time it takes."""
    old = mail_leaf.take_over()
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with exchange.writer_mailbox(old) as fenced, trio.open_nursery() as nursery:
            answers: list[bytes] = []

            @nursery.start_soon
            async def ask() -> None:
                answers.append(await worker.ask(request(0)))
                nursery.cancel_scope.cancel()

            (asked,) = await fenced.receive()
            new = mail_leaf.take_over()
            fenced.answer(asked, b"old")
            fenced.stop(WORKER, RUN)
            with pytest.raises(JournalInUseError):
                await fenced.receive()

            async with answering(exchange, new, lambda _: b"new"):
                await trio.sleep_forever()
        assert answers == [b"new"]

        # It was not told to stop, either: a stop of the new writer arrives after all others.
        async with exchange.writer_mailbox(new) as mailbox:
            mailbox.stop(WORKER, ExecutionId("run-2"))
            await worker.wait_stopped(ExecutionId("run-2"))
        with trio.move_on_after(0) as stopped:
            await worker.wait_stopped(RUN)
        assert stopped.cancelled_caught


async def test_a_staying_request_is_received_after_its_worker_has_left(mail_leaf: Leaf) -> None:
    """A question is withdrawn when none waits for its answer; how a run has ended is not."""
    last_word = Request(JOURNAL, WORKER, ExecutionId("ended"), 1, b"!", stays=True)
    marker = request(0, run=ExecutionId("marker"))
    first = mail_leaf.take_over()
    async with mail_leaf.open() as exchange:
        await exchange.presence.beat(beat_of(WORKER), seconds=60)
        async with exchange.worker_mailbox(WORKER) as worker:
            async with (
                answering(exchange, first, lambda _: b"", only="marker"),
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(worker.ask, request(0))
                nursery.start_soon(worker.ask, last_word)
                await worker.ask(marker)
                nursery.cancel_scope.cancel()
            async with answering(exchange, first, lambda _: b"", only="marker"):
                for run in ("run-1", "ended", "marker"):
                    worker.forget(ExecutionId(run))
                await worker.ask(request(1, run=ExecutionId("marker")))
        await exchange.presence.leave(WORKER)
        # Now and then a beat sweeps what no writer can want any more.
        await exchange.presence.beat(beat_of("other"), seconds=60)

        async with exchange.writer_mailbox(mail_leaf.take_over()) as writer:
            (heard,) = await writer.receive()
    assert (heard.execution, heard.body) == ("ended", b"!")


async def test_a_writer_that_has_caught_up_has_received_all_earlier_requests(
    mail_leaf: Leaf,
) -> None:
    tenure = mail_leaf.take_over()
    seen: list[Request] = []
    async with mail_leaf.open() as exchange, exchange.worker_mailbox(WORKER) as worker:
        async with (
            answering(exchange, tenure, lambda _: b"", seen) as writer,
            trio.open_nursery() as nursery,
        ):
            for number in range(20):
                nursery.start_soon(worker.ask, request(number))
            await worker.ask(request(99))
            await writer.catch_up()
            assert {it.number for it in seen} == {*range(20), 99}


async def test_a_letter_is_written_once_for_each_connection(installed: str) -> None:
    """However long its answer takes: a letter may be large."""
    leaf = Leaf("absurd", installed)
    tenure = leaf.take_over()
    with connect(installed, application="test") as witness, trio.fail_after(60):
        witness.execute(COUNT_WRITTEN)

        def written() -> list[tuple[object, ...]]:
            return witness.execute(
                "select number, count(*)::integer from written group by 1 order by 1"
            ).fetchall()

        async with (
            leaf.open() as exchange,
            exchange.worker_mailbox(WORKER) as worker,
            exchange.writer_mailbox(tenure) as writer,
            trio.open_nursery() as nursery,
        ):
            for number in range(3):
                nursery.start_soon(worker.ask, request(number))
                assert await writer.receive() == [request(number)]
            assert written() == [(0, 1), (1, 1), (2, 1)]

            witness.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            nursery.start_soon(worker.ask, request(3))
            assert await writer.receive() == [request(3)]
            nursery.cancel_scope.cancel()
        assert written() == [(0, 2), (1, 2), (2, 2), (3, 1)]


async def test_a_silent_run_can_be_stopped(mail_leaf: Leaf) -> None:
    tenure = mail_leaf.take_over()
    async with mail_leaf.open() as exchange:
        async with (
            exchange.worker_mailbox(WORKER) as worker,
            answering(exchange, tenure, lambda _: b"") as writer,
            trio.open_nursery() as nursery,
        ):
            await worker.ask(request(0))
            nursery.start_soon(worker.wait_stopped, RUN)
            writer.stop(WORKER, RUN)


async def test_a_crash_of_the_database_loses_no_request_and_no_stop(
    own_server: PostgresServer,
) -> None:
    """The table of letters is empty afterwards, so both are said again."""
    with own_server.new_database() as url, trio.fail_after(60):
        leaf = Leaf("absurd", url)
        tenure = leaf.take_over()
        async with (
            leaf.open() as exchange,
            exchange.worker_mailbox(WORKER) as worker,
            exchange.writer_mailbox(tenure) as writer,
            trio.open_nursery() as nursery,
        ):

            @nursery.start_soon
            async def ask() -> None:
                assert await worker.ask(request(0)) == b"late"
                assert await worker.ask(request(1)) == b"next"
                await worker.wait_stopped(RUN)
                nursery.cancel_scope.cancel()

            (first,) = await writer.receive()
            await trio.to_thread.run_sync(own_server.stop, "immediate")
            writer.answer(first, b"late")
            await trio.testing.wait_all_tasks_blocked(0.05)
            await trio.to_thread.run_sync(own_server.start)

            (second,) = await writer.receive()
            assert second == request(1)
            writer.answer(second, b"next")
            writer.stop(WORKER, RUN)
            await writer.receive()
