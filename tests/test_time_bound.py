"""A test that stands still fails, and its report shows all stacks."""

import subprocess

import pytest
import trio

from tests.time_bound import bounded


async def _stand_still() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever, name="the one that waits")


def test_bounded_trio_run_fails_with_the_stacks_of_its_tasks(
    request: pytest.FixtureRequest,
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Trio task the one that waits"):
        with bounded(request.node, 0.2):
            trio.run(_stand_still)


def test_bounded_wait_for_a_process_fails_with_its_command(request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"\n\d+ sleep 1000"):
        with bounded(request.node, 0.2):
            subprocess.run(["sleep", "1000"], check=True)
