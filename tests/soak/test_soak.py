"""The short form of the soak, and leaks that it finds."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.probe import Measurement
from tests.soak.slopes import Bounds, Sample, Slope, problems


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


def noisy_line(seed: int, *, slope: float, noise: float) -> Callable[[int], float]:
    """Return a line with noise in which each sample is like the one before, as memory is."""
    chance = random.Random(seed)
    level = 0.0

    def next_one(x: int) -> float:
        nonlocal level
        level = 0.6 * level + chance.gauss(0, noise)
        return 5e7 + slope * x + level

    return next_one


def test_noise_breaks_a_bound_in_few_soaks_and_hides_no_leak() -> None:
    """The true slopes are the bound itself, and the bound and a half."""
    rounds = range(400)
    alarms, found = (
        sum(
            bool(problems(samples(rss=noisy_line(seed, slope=slope, noise=3e5)), Bounds()))
            for seed in rounds
        )
        for slope in (400, 600)
    )

    assert alarms <= 0.1 * len(rounds)
    assert found >= 0.99 * len(rounds)


def test_the_standard_error_of_a_slope_covers_the_spread_of_its_estimates() -> None:
    x = [*range(40)]
    lines = [noisy_line(seed, slope=3, noise=1) for seed in range(500)]
    slopes = [Slope.of(x, [line(it) for it in x]) for line in lines]
    covered = sum(abs(it.value - 3) <= 2 * it.error for it in slopes)

    assert 0.85 * len(slopes) <= covered <= 0.99 * len(slopes)


def test_a_line_without_noise_has_no_error() -> None:
    assert Slope.of([0, 1, 2, 3], [1, 3, 5, 7]) == Slope(2, 0)


def test_caches_of_the_first_sessions_are_no_leak() -> None:
    filling = samples(rss=lambda it: 5e7 + 600 * min(it, 5_000))
    slow_machine = [it for it in filling if it.sessions <= 7_000]

    assert problems(filling, Bounds()) == []
    (problem,) = problems(slow_machine, Bounds())
    assert "7,000 sessions are too few" in problem


def test_a_soak_with_too_much_noise_says_so() -> None:
    chance = random.Random(1)
    noisy = samples(rss=lambda _: 5e7 + chance.gauss(0, 5e7))

    assert any("bytes of error of that slope" in it for it in problems(noisy, Bounds()))
