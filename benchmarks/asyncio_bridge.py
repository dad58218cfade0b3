"""Compares a run on asyncio with the same run on trio: `python -m benchmarks.asyncio_bridge`.

The bridge is a thread in which trio runs. Its CPU time is the difference of both, a run.
"""

import asyncio  # noqa: TID251 (the loop that is measured)
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.measure import Cost, Report, cost_of
from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.products.asyncio import open_orchestrator as open_on_asyncio

RUNS: Final = 300
ROUNDS: Final = 7
MOST: Final = 300
"""Microseconds of CPU that the bridge may take of a run."""

AGENT: Final = Agent("a", model=ScriptedModel.always("ok"))


async def run_all(
    opened: AbstractAsyncContextManager[Any],
    at_once: int,
    all_of: Callable[[Callable[[], Awaitable[object]], int], Awaitable[object]],
) -> Cost:
    """Run the agent so many times, this many at once."""
    async with opened as orchestrator:

        async def some() -> None:
            for _ in range(RUNS // at_once):
                await orchestrator.run(AGENT, "go")

        return await cost_of(partial(all_of, some, at_once))


async def all_on_trio(work: Callable[[], Awaitable[object]], times: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(work)


async def all_on_asyncio(work: Callable[[], Awaitable[object]], times: int) -> None:
    await asyncio.gather(*(work() for _ in range(times)))


def measure_asyncio(report: Report) -> None:
    for at_once, words in ((1, "one at a time"), (100, "100 at once")):
        for in_file in (False, True):
            trios, asyncios = zip(
                *(_both(at_once, in_file=in_file) for _ in range(ROUNDS)), strict=True
            )
            floor, ours = min(it.cpu for it in trios), min(it.cpu for it in asyncios)
            scale = 1_000_000 / RUNS
            where = "in a file" if in_file else "in memory"
            name = f"a run on asyncio, {words}, {where}, against trio"
            report.add(name, floor * scale, ours * scale)
            bridge = max(ours - floor, 0) * scale
            report.add("  the bridge, against 300 us", MOST, bridge, target=1)


def _both(at_once: int, *, in_file: bool) -> tuple[Cost, Cost]:
    with tempfile.TemporaryDirectory() as folder:
        first, second = (
            (Path(folder) / "1.db", Path(folder) / "2.db") if in_file else (":memory:", ":memory:")
        )
        return (
            trio.run(run_all, open_orchestrator(first), at_once, all_on_trio),
            asyncio.run(_on_asyncio(second, at_once)),
        )


async def _on_asyncio(journal: str | Path, at_once: int) -> Cost:
    # Opened here: it belongs to the loop that runs.
    return await run_all(open_on_asyncio(journal), at_once, all_on_asyncio)


if __name__ == "__main__":
    measure_asyncio(Report())
