"""The short form of the soak, and leaks that it finds."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.probe import Measurement
from tests.soak.slopes import Bounds, Sample, problems


def test_a_server_lives_for_a_moment_without_a_leak() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.short"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


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
def test_a_slope_beyond_its_bound_is_a_problem(leaking: list[Sample], problem: str) -> None:
    found = problems(leaking, Bounds())
    assert any(problem in it for it in found), found


def test_objects_made_during_the_warm_up_are_no_leak() -> None:
    filled = samples(
        rss=lambda it: 5e7 + 5_000 * min(it, 10_000), objects=lambda it: min(it, 9_000)
    )
    assert problems(filled, Bounds()) == []
