"""Every work queue survives killed processes and a crashed database."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack

import attrs
import pytest
import trio

from orchestrator.products.cluster.work import Dispatch, Exchange, Tenure, WorkerId
from tests.postgres import PostgresServer
from tests.workers.kit import WORKER, Leaf, Receiver, dispatches, open_receiver, received

pytestmark = pytest.mark.realtime


async def send_stranded(
    exchange: Exchange, tenure: Tenure, sent: Sequence[Dispatch], *live: WorkerId
) -> None:
    """Send the next attempt of what the dead have claimed, as a writer does."""
    stranded = await exchange.queue.stranded(sent, {WORKER, *live})
    again = [attrs.evolve(it, attempt=it.attempt + 1) for it in stranded]
    await exchange.queue.send(tenure, again)


async def test_others_receive_the_dispatches_of_the_dead_and_not_of_the_living(
    stored_leaf: Leaf,
) -> None:
    """One receiver is killed, one is stopped, and one is slow.

    Of the first, one dispatch was finished, two were delivered, and one was claimed only.
    """
    tenure = stored_leaf.take_over()
    of_slow, of_stopped, of_killed = (
        dispatches(tenure, *(f"{name}-{number}" for number in range(3)))
        for name in ("slow", "stopped", "killed")
    )
    (finished,) = dispatches(tenure, "finished")
    receivers: list[Receiver] = []
    with ExitStack() as stack, trio.fail_after(60):
        async with stored_leaf.open() as exchange:
            for sent in (of_slow, of_stopped, of_killed):
                # The others are full, so it is this one that gets it all.
                receiver = stack.enter_context(
                    open_receiver(stored_leaf, f"w-{len(receivers)}", slots=3)
                )
                receivers.append(receiver)
                assert await receiver.heard() == "ready"
                if sent is of_killed:
                    await exchange.queue.send(tenure, [finished])
                    assert await receiver.ask("next") == "got finished"
                    assert await receiver.ask("finish finished") == "finished finished"
                await exchange.queue.send(tenure, sent)
                # Of the one that is killed, the third is claimed at most.
                for _ in sent[: 2 if sent is of_killed else 3]:
                    await receiver.ask("next")
            slow, stopped, killed = receivers

            killed.signal(signal.SIGKILL)
            stopped.signal(signal.SIGSTOP)
            waiting = [*of_slow, *of_stopped, *of_killed]
            await send_stranded(exchange, tenure, waiting, slow.worker)
            lost = {it.id for it in (*of_killed, *of_stopped)}
            found = await received(exchange, lost - {of_killed[2].id})
            if of_killed[2].id not in {it.id for it in found}:
                # The database may have claimed it for the dead after we looked.
                await send_stranded(exchange, tenure, of_killed[2:], slow.worker)
                found += await received(exchange, {of_killed[2].id})
            assert sorted(it.id for it in found) == sorted(lost)

            # The one that was stopped ends what it has, too late. There is nothing left.
            stopped.signal(signal.SIGCONT)
            assert await stopped.ask("finish stopped-0") == "finished stopped-0"
            assert await slow.ask("finish slow-0") == "finished slow-0"
            stopped.signal(signal.SIGSTOP)
            (last,) = dispatches(tenure, "last", place="cpu")
            await exchange.queue.send(tenure, [last])
            async with exchange.queue.receive(WORKER, "cpu", 1) as deliveries:
                assert (await anext(deliveries)).dispatch == last


async def test_a_crash_of_the_database_loses_no_dispatch(
    leaf_of_own_server: Leaf, own_server: PostgresServer
) -> None:
    """Dispatches of the outage take effect when the database is back."""
    leaf = leaf_of_own_server
    tenure = leaf.take_over()
    before, during, held = dispatches(tenure, "before", "during", "held")
    with trio.fail_after(60):
        async with leaf.open() as exchange:
            await exchange.queue.send(tenure, [held])
            async with exchange.queue.receive(WORKER, "gpu", 1) as deliveries:
                delivery = await anext(deliveries)
                await exchange.queue.send(tenure, [before])
                await trio.to_thread.run_sync(own_server.stop, "immediate")

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(exchange.queue.send, tenure, [during])
                    nursery.start_soon(delivery.finish)
                    await trio.testing.wait_all_tasks_blocked(0.05)
                    await trio.to_thread.run_sync(own_server.start)
                found: list[Dispatch] = []
                while len(found) < 2:
                    delivery = await anext(deliveries)
                    found.append(delivery.dispatch)
                    await delivery.finish()
    assert sorted(found, key=str) == sorted([before, during], key=str)
