"""Four processes keep one budget, also if some are killed."""

import pytest

from tests.orchestrator.budget_processes import play

pytestmark = [pytest.mark.realtime, pytest.mark.memory_only]


@pytest.mark.parametrize(("seed", "kills"), [(8, 0), (1, 4)])
def test_four_processes_of_a_folder_keep_one_budget(
    seed: int, kills: int, python: list[str]
) -> None:
    """`python -m tests.orchestrator.budget_processes` plays many more."""
    world, problems = play(seed, python=python, kills=kills)

    assert problems == []
    assert world.requests
    assert bool(world.deaths) is bool(kills)


def test_four_processes_of_a_database_keep_one_budget(postgres: str, python: list[str]) -> None:
    world, problems = play(1, f"{postgres}&lease=1", python=python, kills=4)

    assert problems == []
    assert world.deaths
