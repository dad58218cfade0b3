"""The longest step of the event loop: the calls between two points where other tasks may run."""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

import attrs
import trio

from tests.performance.workloads import fan_out, opened

CHILDREN: Final = 2_000


@attrs.define(eq=False)
class LongestStep(trio.abc.Instrument):
    """Counts the calls of each step, and measures its CPU time."""

    calls: int = 0
    milliseconds: float = 0
    _counted: int = 0
    _began: float = attrs.field(factory=time.thread_time)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._counted = 0
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.calls = max(self.calls, self._counted)
        self.milliseconds = max(self.milliseconds, 1_000 * (time.thread_time() - self._began))

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self._counted += 1


async def _steps_of(journal: Path | str, *, count: bool) -> LongestStep:
    async with opened(journal) as orchestrator:
        await orchestrator.run(fan_out(2), "go")
        agent = fan_out(CHILDREN)
        steps = LongestStep()
        trio.lowlevel.add_instrument(steps)
        if count:
            sys.setprofile(steps.count)
        try:
            await orchestrator.run(agent, "go")
        finally:
            sys.setprofile(None)
            trio.lowlevel.remove_instrument(steps)
    return steps


async def count_longest_steps() -> dict[str, int]:
    """Return the calls of the longest step of a fan-out, in memory and in a file."""
    with TemporaryDirectory() as folder:
        in_memory = await _steps_of(":memory:", count=True)
        in_file = await _steps_of(Path(folder, "journal.db"), count=True)
    return {"in memory": in_memory.calls, "in a file": in_file.calls}


async def time_longest_steps() -> dict[str, float]:
    """Return the same in milliseconds of CPU, which no test compares."""
    with TemporaryDirectory() as folder:
        in_memory = await _steps_of(":memory:", count=False)
        in_file = await _steps_of(Path(folder, "journal.db"), count=False)
    return {"in memory": in_memory.milliseconds, "in a file": in_file.milliseconds}
