"""Presence lists live workers and their work, in memory and in Postgres."""

import pytest
import trio

from orchestrator.products.cluster.work import Beat, ExecutionId, WorkerId
from tests.workers.kit import Leaf

pytestmark = pytest.mark.realtime

FIRST = Beat(worker=WorkerId("w-1"), host="alpha", place="gpu", slots=4, version="7f3a")
SECOND = Beat(worker=WorkerId("w-2"), host="beta", place="cpu", slots=1, version="7f3a")


async def test_a_beat_names_the_worker_and_its_executions(mail_leaf: Leaf) -> None:
    runs = frozenset({ExecutionId("r-1"), ExecutionId("r-2")})
    holding = Beat(
        worker=FIRST.worker, host="alpha", place="gpu", slots=4, version="7f3a", executions=runs
    )
    async with mail_leaf.open() as exchange:
        presence = exchange.presence
        await presence.beat(FIRST, seconds=60)
        await presence.beat(SECOND, seconds=60)
        await presence.beat(holding, seconds=60)

        first, second = await presence.workers()
        assert (first.beat, first.beats, first.alive) == (holding, 2, True)
        assert (second.beat, second.beats, second.alive) == (SECOND, 1, True)
        assert first.since >= first.silent >= 0
        assert first.promised == 60

        await presence.leave(FIRST.worker)
        assert [it.beat for it in await presence.workers()] == [SECOND]


async def test_a_worker_that_is_silent_for_too_long_is_dead(mail_leaf: Leaf) -> None:
    """But not before it could have been heard: who looks may just have come back."""
    async with mail_leaf.open() as exchange:
        await exchange.presence.beat(FIRST, seconds=0.2)
        await exchange.presence.beat(SECOND, seconds=60)
        await trio.sleep(0.3)
        first, second = await exchange.presence.workers()
        assert (first.alive, second.alive) == (False, True)
        assert first.silent > first.promised

        if mail_leaf.url:
            async with mail_leaf.open() as other:
                just_connected, _ = await other.presence.workers()
                assert just_connected.alive
