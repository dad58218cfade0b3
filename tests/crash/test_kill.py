"""A real process, killed with SIGKILL at random: nothing is lost, told twice or done twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.kill import Nest, kill_again_and_again, open_nest

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def nest() -> Iterator[Nest]:
    with open_nest() as nest:
        yield nest


@pytest.mark.parametrize("seed", range(1, 51))
def test_a_process_that_is_killed_again_and_again_comes_to_its_end(
    seed: int, nest: Nest, tmp_path: Path
) -> None:
    assert kill_again_and_again(seed, nest, tmp_path).entries
