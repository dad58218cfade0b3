"""The short form of the soak, and leaks that it finds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.journal import session_cache
from tests.server.kit import serving
from tests.soak import team
from tests.soak.library import SoakedLibrary
from tests.soak.probe import Measurement
from tests.soak.server import SoakedServer
from tests.soak.slopes import Bounds, Sample, problems

SHORT = Bounds(
    rss_per_session=40_000, objects_per_session=0.25, journal_per_fact=20_000
)
"""Some memory and the log of SQLite are still being filled."""
AGENTS = (team.beating, team.helper, team.lead, team.measuring)


@pytest.mark.realtime
async def test_a_server_lives_for_a_moment_without_a_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number of sessions and not by seconds, so that a slow machine soaks as much."""
    monkeypatch.setattr(session_cache, "MAX_RESTING_TASKS", 20)
    journal = tmp_path / "journal.db"
    taken: list[Sample] = []
    async with serving(*AGENTS, journal=journal) as served:
        server = SoakedServer(served.http, journal)
        library = SoakedLibrary(served.orchestrator)
        for _ in range(9):
            await server.use()
            await library.use()
            taken.append(await server.sample())
    assert problems(taken, SHORT) == []


def samples(
    *,
    rss: Callable[[int], float] = lambda _: 5e7,
    objects: Callable[[int], float] = lambda _: 1_000,
    files: Callable[[int], float] = lambda _: 20,
    stall: Callable[[int], float] = lambda _: 0.03,
    journal: Callable[[int], float] = lambda sessions: 8 * 300 * sessions,
) -> list[Sample]:
    """Return samples of a process, each 1,000 sessions after the one before."""
    return [
        Sample(
            sessions=sessions,
            facts=8 * sessions,
            journal_bytes=int(journal(sessions)),
            measured=Measurement(
                rss=int(rss(sessions)),
                files=int(files(sessions)),
                stall_p99=0.005,
                stall_max=stall(sessions),
                objects={"dict": int(objects(sessions))},
            ),
        )
        for sessions in range(1_000, 31_000, 1_000)
    ]


def test_a_process_that_uses_the_same_all_the_time_has_no_problem() -> None:
    assert problems(samples(), Bounds()) == []


@pytest.mark.parametrize(
    ("leaking", "problem"),
    [
        (samples(rss=lambda it: 5e7 + 500 * it), "bytes of memory per session"),
        (samples(objects=lambda it: 1_000 + it), "objects 'dict' per session"),
        (samples(files=lambda it: it / 100), "more open files"),
        (samples(stall=lambda it: it / 1e5), "seconds more stall"),
        (samples(stall=lambda it: it == 25_000), "seconds of stall"),
        (samples(journal=lambda it: it * it), "bytes of the journal per fact"),
    ],
)
def test_a_slope_beyond_its_bound_is_a_problem(
    leaking: list[Sample], problem: str
) -> None:
    found = problems(leaking, Bounds())
    assert any(problem in it for it in found), found


def test_what_is_filled_during_the_warm_up_is_no_leak() -> None:
    filled = samples(
        rss=lambda it: 5e7 + 5_000 * min(it, 10_000), objects=lambda it: min(it, 9_000)
    )
    assert problems(filled, Bounds()) == []
