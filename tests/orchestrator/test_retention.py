"""The retention of a server: its default, and the time before it deletes the first runs."""

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.cli.retention import AGE_SECONDS, Retention
from orchestrator.cli.server.options import FOREVER, RetentionOptions


def test_a_server_keeps_ended_runs_for_90_days_unless_told_otherwise() -> None:
    default = RetentionOptions().retention()
    assert (default.seconds, default.is_default) == (90 * 86_400, True)
    assert RetentionOptions(keep="90d").retention() == Retention(seconds=90 * 86_400)
    assert RetentionOptions(keep=FOREVER).retention() == Retention()


async def test_the_default_retention_waits_an_hour_before_it_deletes_runs() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        times: list[float] = []
        pruned = trio.Event()

        def note_pruning() -> None:
            times.append(trio.current_time())
            pruned.set()

        with orchestrator.read.watch_pruning(note_pruning):
            for is_default in (False, True):
                begun = trio.current_time()
                async with trio.open_nursery() as nursery:
                    retention = Retention(seconds=0, is_default=is_default)
                    nursery.start_soon(retention.prune_forever, orchestrator, None)
                    await pruned.wait()
                    nursery.cancel_scope.cancel()
                assert times.pop() - begun == pytest.approx(AGE_SECONDS * is_default, abs=1)
                pruned = trio.Event()
