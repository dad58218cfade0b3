"""Wide trees: thousands of children begin, wait for a commit and end, and the loop goes on."""

from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import Ending, Rules
from orchestrator.kernel.engine.reservations import Reservation
from orchestrator.kernel.pipelines.combinators.fan_out import map_each
from tests.kit import hand_on, worker

pytestmark = pytest.mark.realtime

CHILDREN = 600
GOALS = [f"goal {number}" for number in range(CHILDREN)]
RULES = Rules(children_per_call=CHILDREN, live_tasks=None, detached=None)


class StepsPerPass(trio.abc.Instrument):
    """The most steps of tasks between two looks of the event loop at the world outside.

    All that comes from outside waits for that long, however fast the machine is.
    """

    def __init__(self) -> None:
        self.most = 0
        self._steps = 0

    def after_io_wait(self, timeout: float) -> None:
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        self.most = max(self.most, self._steps)


def lead(*, background: bool) -> Agent:
    steps: list[Any] = [hand_on(*GOALS, background=background)]
    steps += ["done"] * CHILDREN
    return Agent("lead", model=ScriptedModel(steps), delegates=[worker()])


async def joined(path: Path) -> None:
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        run = await orchestrator.run(lead(background=False), "go")
        assert run.tree.counts() == {Ending.SUCCEEDED: CHILDREN + 1}


async def detached(path: Path) -> None:
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        async with orchestrator.open_session(lead(background=True)) as session:
            await session.ask("go")
            await session.wait_idle()
            assert session.tree.counts() == {Ending.SUCCEEDED: CHILDREN + 1}


async def mapped(path: Path) -> None:
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        run = await orchestrator.run(map_each(worker()), GOALS)
        assert run.output == ["done"] * CHILDREN


@pytest.mark.parametrize("run", [joined, detached, mapped])
async def test_thousands_of_children_do_not_block_the_event_loop(tmp_path: Path, run: Any) -> None:
    steps = StepsPerPass()
    trio.lowlevel.add_instrument(steps)
    try:
        await run(tmp_path / "journal.db")
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert steps.most < 0.7 * CHILDREN


async def test_children_that_wait_for_a_budget_are_not_all_tried_whenever_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0
    affordable = Reservation.affordable

    def counted(self: Reservation, *args: Any) -> Any:
        nonlocal tries
        tries += 1
        return affordable(self, *args)

    monkeypatch.setattr(Reservation, "affordable", counted)
    async with open_orchestrator(":memory:", rules=RULES) as orchestrator:
        # It pays for three long answers at a time.
        with budget(tokens=3 * 17_000):
            run = await orchestrator.run(lead(background=False), "go")
    assert run.tree.counts() == {Ending.SUCCEEDED: CHILDREN + 1}
    assert CHILDREN < tries < 30 * CHILDREN
