"""The growth of costs with size: calls of the event loop's thread, never seconds."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
import trio.testing

from orchestrator.agents import Agent
from tests.performance.counting import Calls, counting, fewest
from tests.performance.workloads import Waiter, alone, detaching, fan_out, opened


async def _child_of(children: int, journal: Path | str = ":memory:") -> float:
    """Return the calls of a child of a fan-out, without the calls of its parent."""
    measured: list[Calls] = []
    async with opened(journal) as orchestrator:
        for number in (1, 1, children):
            agent = fan_out(number)
            with counting(measured):
                await orchestrator.run(agent, "go")
    _, one, many = measured
    return _total(many.each_of(children - 1, beyond=one))


async def child_in_memory() -> tuple[float, float]:
    return await _child_of(100), await _child_of(10_000)


async def child_in_file() -> tuple[float, float]:
    """Compare children with a file as journal; the number of commits varies by a few calls."""
    with TemporaryDirectory() as folder:
        small = await _child_of(100, Path(folder, "small.db"))
        return small, await _child_of(4_000, Path(folder, "large.db"))


async def turn_of_conversation() -> tuple[float, float]:
    async with opened() as orchestrator, orchestrator.open_session(alone()) as session:
        found: list[float] = []
        asked = 0
        for turn in (100, 2_000):
            while asked < turn:
                await session.ask("go")
                asked += 1
            measured: list[Calls] = []
            for _ in range(5):
                with counting(measured):
                    await session.ask("go")
                asked += 1
            found.append(_total(fewest(measured)))
    return found[0], found[1]


async def delegation_beside_live_tasks() -> tuple[float, float]:
    return await _beside(0), await _beside(2_000)


async def _beside(live: int) -> float:
    measured: list[Calls] = []
    async with opened() as orchestrator:
        answered = trio.Event()
        sleeper = Agent("sleeper", model=Waiter(answered))
        agent = detaching(live, sleeper) if live else alone()
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.testing.wait_all_tasks_blocked(0.05)
            other = fan_out(1)
            await orchestrator.run(other, "go")
            for _ in range(5):
                with counting(measured):
                    await orchestrator.run(other, "go")
            answered.set()
            await session.wait_idle()
    return _total(fewest(measured))


def _total(calls: Calls) -> float:
    return sum(calls.sums.values())


GROWTH: Final[dict[str, Callable[[], Awaitable[tuple[float, float]]]]] = {
    "a child of a fan-out of 100 and 10,000": child_in_memory,
    "the same in a file, of 100 and 4,000": child_in_file,
    "turn 100 and 2,000 of a conversation": turn_of_conversation,
    "a delegation beside 0 and 2,000 live tasks": delegation_beside_live_tasks,
}
