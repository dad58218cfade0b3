"""Five rounds of faults in a cluster: the short form of `python -m tests.chaos.cluster`."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.chaos.cluster.changes import Change
from tests.chaos.cluster.oracle import Evidence, fenced_writers_change_nothing
from tests.chaos.cluster.processes import Process, open_spawner
from tests.chaos.cluster.rounds import FAULTS, TWICE, plan_of, play_round, prepare
from tests.postgres import PostgresServer, open_postgres, require_postgres

pytestmark = pytest.mark.realtime

SEEDS: Final = (7, 24, 25, 42, 50)
"""42: a writer stands still past its lease, and comes back."""


@pytest.fixture
def server() -> Generator[PostgresServer]:
    """A server of its own, which a fault crashes."""
    require_postgres()
    with open_postgres(tcp=True) as opened:
        yield opened


async def test_outside_effects_agree_with_the_journal(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Every kind of fault strikes at least once."""
    await prepare(server)
    async with open_spawner() as spawner:
        for seed in SEEDS:
            home = tmp_path / str(seed)
            await trio.Path(home).mkdir()
            played = await play_round(seed, spawner, server, home)

            assert not played.problems, played.line
    kinds = {kind for seed in SEEDS for kind in plan_of(seed).kinds}
    assert kinds == {*FAULTS, TWICE}


def test_a_writer_that_takes_a_journal_over_again_is_not_fenced() -> None:
    def changed(process: str, at: float, epoch: int | None = None) -> Change:
        return Change(process, "journals", at, at, epoch)

    changes = [
        *(changed("a", 1, 1), changed("a", 2), changed("b", 3, 2), changed("b", 4)),
        *(changed("a", 5, 3), changed("a", 6), changed("b", 7)),
    ]
    evidence = Evidence(
        effects=(), requests=(), receipts=(), entries=(), findings=(), changes=changes, workers={}
    )

    assert [*fenced_writers_change_nothing(evidence)] == [
        "b changed journals 2.000 s after it was fenced"
    ]


async def test_a_process_that_is_not_born_or_has_ended_gets_no_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number would mean our own group, or a process that is not ours."""
    await trio.lowlevel.checkpoint()
    sent: list[tuple[int, int]] = []

    def note(pid: int, number: int) -> None:
        sent.append((pid, number))

    process = Process("victim")
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", note)
        process.signal(signal.SIGKILL)
        assert process.pid is None
        process.pid = 4711
        process.signal(signal.SIGSTOP)
        process.code = 0
        process.signal(signal.SIGCONT)

    assert sent == [(4711, signal.SIGSTOP)]
