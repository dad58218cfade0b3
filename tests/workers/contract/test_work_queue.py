"""Every work queue carries work, without faults."""

import os

import attrs
import pytest
import trio

from orchestrator.kernel.errors import JournalInUseError
from orchestrator.products.cluster.work import Delivery
from tests.workers.kit import WORKER, Leaf, dispatches, received

pytestmark = pytest.mark.realtime

MANY = 10_000 if os.environ.get("LONG_PROOFS") else 300


async def test_a_dispatch_is_delivered_once_without_faults(leaf: Leaf) -> None:
    tenure = leaf.take_over()
    sent = dispatches(tenure, *(f"d{number}" for number in range(MANY)))

    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, sent)
        found = await received(exchange, sent)

    assert sorted(found, key=str) == sorted(sent, key=str)


async def test_a_dispatch_that_is_sent_twice_is_delivered_once(leaf: Leaf) -> None:
    """A writer that does not know whether it has sent something sends it again."""
    tenure = leaf.take_over()
    (first,) = dispatches(tenure, "d1")
    (second,) = dispatches(tenure, "d1", attempt=first.attempt + 1)
    (last,) = dispatches(tenure, "last")

    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, [first, first])
        await exchange.queue.send(tenure, [first, second])
        await exchange.queue.send(tenure, [last])
        found = await received(exchange, [first, second, last])

    assert found.count(first) == found.count(second) == 1
    assert len(found) == 3


async def test_a_dispatch_that_is_withdrawn_in_time_is_not_delivered(leaf: Leaf) -> None:
    tenure = leaf.take_over()
    kept, withdrawn, last = dispatches(tenure, "kept", "withdrawn", "last")

    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, [withdrawn, kept])
        await exchange.queue.withdraw(tenure, [withdrawn])
        await exchange.queue.send(tenure, [last])
        found = await received(exchange, [kept, last])

        # What was never sent, or is over, can be withdrawn too.
        await exchange.queue.withdraw(tenure, dispatches(tenure, "kept", "unknown"))

    assert set(found) == {kept, last}


async def test_a_dispatch_that_no_worker_will_receive_is_stranded(leaf: Leaf) -> None:
    tenure = leaf.take_over()
    over, held, waiting, withdrawn, unknown = everything = dispatches(
        tenure, "over", "held", "waiting", "withdrawn", "unknown"
    )

    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, [over])
        assert await received(exchange, [over]) == [over]
        await exchange.queue.send(tenure, [held])
        async with exchange.queue.receive(WORKER, "gpu", 1) as deliveries:
            assert (await anext(deliveries)).dispatch == held
            await exchange.queue.send(tenure, [waiting, withdrawn])
            await exchange.queue.withdraw(tenure, [withdrawn])
            stranded = await exchange.queue.stranded(everything, {WORKER})

    assert list(stranded) == [over, withdrawn, unknown]


async def test_a_fenced_writer_neither_sends_nor_withdraws(leaf: Leaf) -> None:
    old = leaf.take_over()
    (early,) = dispatches(old, "early")
    async with leaf.open() as exchange:
        await exchange.queue.send(old, [early])
        new = leaf.take_over()

        with pytest.raises(JournalInUseError):
            await exchange.queue.send(old, dispatches(old, "late"))
        with pytest.raises(JournalInUseError):
            await exchange.queue.withdraw(old, [early])

        (last,) = dispatches(new, "last")
        await exchange.queue.send(new, [last])
        assert set(await received(exchange, [early, last])) == {early, last}


async def test_two_places_do_not_mix(leaf: Leaf) -> None:
    tenure = leaf.take_over()
    odd = 'a place "with" words, and äöü ' * 4
    async with leaf.open() as exchange:
        for place in ("gpu", odd, "cpu"):
            await exchange.queue.send(tenure, dispatches(tenure, f"at {place}", place=place))
        for place in (odd, "cpu", "gpu"):
            async with exchange.queue.receive(WORKER, place, 5) as deliveries:
                delivery = await anext(deliveries)
                assert delivery.dispatch.id == f"at {place}"
                assert delivery.dispatch.place == place
                await delivery.finish()


async def test_deliveries_never_exceed_the_slots(leaf: Leaf) -> None:
    tenure = leaf.take_over()
    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, dispatches(tenure, "d1", "d2", "d3"))
        async with exchange.queue.receive(WORKER, "gpu", 2) as deliveries:
            held: list[Delivery] = [await anext(deliveries), await anext(deliveries)]
            with trio.move_on_after(0.2) as waited:
                await anext(deliveries)
            assert waited.cancelled_caught

            await held[0].finish()
            assert (await anext(deliveries)).dispatch.id == "d3"


async def test_an_unfinished_dispatch_is_not_lost(leaf: Leaf) -> None:
    """A worker that stops with work in its hands gives it back."""
    tenure = leaf.take_over()
    sent = dispatches(tenure, "d1", "d2")
    async with leaf.open() as exchange:
        await exchange.queue.send(tenure, sent)
        async with exchange.queue.receive(WORKER, "gpu", 2) as deliveries:
            await anext(deliveries)

        stranded = await exchange.queue.stranded(sent, set())
        again = [attrs.evolve(it, attempt=it.attempt + 1) for it in stranded]
        await exchange.queue.send(tenure, again)
        found = await received(exchange, [it.id for it in sent])
    assert {it.id for it in found} == {"d1", "d2"}
