"""The memory of a child that waits for its model: bytes, and objects that the collector visits."""

import gc
import tracemalloc
from typing import Final

import trio
import trio.testing

from orchestrator.agents import Agent
from tests.performance.workloads import Waiter, fan_out, opened

CHILDREN: Final = 500


async def measure_waiting_child() -> dict[str, float]:
    """Return the bytes and objects of one of many children that wait."""
    async with opened() as orchestrator:
        await orchestrator.run(fan_out(2), "go")
        answered = trio.Event()
        sleeper = Agent("child", instructions="Say ok.", model=Waiter(answered))
        agent = fan_out(CHILDREN, sleeper)
        gc.collect()
        before = len(gc.get_objects())
        tracemalloc.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await trio.testing.wait_all_tasks_blocked(0.05)
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            objects = len(gc.get_objects()) - before
            answered.set()
    return {"bytes": size / CHILDREN, "objects": objects / CHILDREN}
