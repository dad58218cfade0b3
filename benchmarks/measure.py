"""Measuring two things in turn, and keeping the best of each."""

import gc
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio


@attrs.frozen
class Cost:
    """Seconds of one measurement."""

    cpu: float
    wall: float


async def cost_of(work: Callable[[], Awaitable[object]]) -> Cost:
    """Measure one piece of work. Whatever garbage others left is not its burden."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def in_turn(*works: Callable[[], Awaitable[Cost]], rounds: int) -> list[Cost]:
    """Measure all again and again, in turn, and return the best of each."""
    costs: list[list[Cost]] = [[] for _ in works]
    for _ in range(rounds):
        for work, measured in zip(works, costs, strict=True):
            measured.append(trio.run(work))
    return [
        Cost(min(cost.cpu for cost in measured), min(cost.wall for cost in measured))
        for measured in costs
    ]


class Report:
    """A table that grows as it is measured, and its figures as JSON."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []
        print(f"{'':<54}{'floor':>13}{'ours':>13}{'ratio':>8}{'target':>8}")

    def add(
        self,
        name: str,
        floor: float,
        ours: float,
        *,
        unit: str = "us",
        target: float | None = None,
    ) -> None:
        """Add a line: what it costs without us, and with us."""
        figure = {"name": name, "floor": floor, "ours": ours, "unit": unit}
        self.figures.append({**figure, "ratio": ours / floor, "target": target})
        bar = "" if target is None else f"{target:g}"
        print(
            f"{name:<54}{floor:>9.1f} {unit:<3}{ours:>9.1f} {unit:<3}"
            f"{ours / floor:>8.2f}{bar:>8}",
            flush=True,
        )

    def to_json(self) -> str:
        return json.dumps(self.figures, indent=1)
