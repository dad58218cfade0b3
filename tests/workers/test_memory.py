"""The memory's work queue, mailboxes and presence behave as those of a database do."""

import pytest
import trio

from orchestrator.kernel.errors import JournalInUseError
from orchestrator.products.cluster.work import Dispatch, DispatchId, ExecutionId, Request, WorkerId
from tests.workers.memory import MemoryExchange

WORKER = WorkerId("w1")


def request(number: int = 0) -> Request:
    return Request("shard-1", WORKER, ExecutionId("r1"), number, b"begin")


async def test_a_worker_gets_the_same_answer_when_it_asks_again() -> None:
    exchange = MemoryExchange()
    tenure = exchange.take_over("shard-1")

    async with (
        exchange.writer_mailbox(tenure) as writer,
        exchange.worker_mailbox(WORKER) as worker,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def ask_twice() -> None:
            assert await worker.ask(request()) == b"go"
            exchange.lose_letters()
            assert await worker.ask(request()) == b"go"
            nursery.cancel_scope.cancel()

        (received,) = await writer.receive()
        writer.answer(received, b"go")
        await writer.receive()


async def test_a_fenced_writer_neither_sends_nor_stops() -> None:
    exchange = MemoryExchange()
    old = exchange.take_over("shard-1")
    new = exchange.take_over("shard-1")
    dispatch = Dispatch(DispatchId("d1"), 1000, "shard-1", "gpu")

    with pytest.raises(JournalInUseError):
        await exchange.queue.send(old, [dispatch])
    async with exchange.writer_mailbox(old) as mailbox:
        mailbox.stop(WORKER, ExecutionId("r1"))
    await exchange.queue.send(new, [dispatch])

    async with exchange.worker_mailbox(WORKER) as worker:
        with trio.move_on_after(60) as waited:
            await worker.wait_stopped(ExecutionId("r1"))
    assert waited.cancelled_caught
    async with exchange.queue.receive(WORKER, "gpu", 1) as deliveries:
        assert (await anext(deliveries)).dispatch == dispatch
