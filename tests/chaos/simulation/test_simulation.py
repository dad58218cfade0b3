"""Five histories of a simulated cluster, and the faults that the simulation is there to find.

`python -m tests.chaos.simulation` plays thousands.
"""

import pytest
import trio

from orchestrator.products.cluster.journal.lease_watch import LeaseWatch
from orchestrator.products.server.served_journal import ServedJournal
from tests.chaos.simulation.rounds import play_round

CAUGHT = range(100, 140)
"""Seeds; some of them meet a server that does not watch its lease."""


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_simulated_cluster_gives_no_wrong_answer(seed: int) -> None:
    played = play_round(seed)

    assert not played.problems, played.line
    assert played.answers[200]
    assert 500 not in played.answers


def test_a_seed_is_one_history() -> None:
    assert play_round(2) == play_round(2)


def test_a_server_that_does_not_watch_its_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer_anyway(_: ServedJournal, *, asks: bool) -> None:
        del asks
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(LeaseWatch, "is_current", True)
    monkeypatch.setattr(ServedJournal, "require_current", answer_anyway)

    assert any(play_round(seed).problems for seed in CAUGHT)
