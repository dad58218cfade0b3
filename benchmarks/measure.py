"""Measure workloads in turn, and keep the best of each."""

import gc
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

MICRO: Final = 1_000_000
NAME_WIDTH: Final = 62


@attrs.frozen
class Cost:
    """Seconds of one measurement."""

    cpu: float
    wall: float

    def best(self, other: "Cost") -> "Cost":
        return Cost(min(self.cpu, other.cpu), min(self.wall, other.wall))


async def cost_of(work: Callable[[], Awaitable[object]]) -> Cost:
    """Measure one workload, without the garbage of the ones before it."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def in_turn(*works: Callable[[], Awaitable[Cost]], rounds: int) -> list[Cost]:
    """Measure all workloads several times, in turn, and return the best of each."""
    best = [trio.run(work) for work in works]
    for _ in range(rounds - 1):
        best = [cost.best(trio.run(work)) for work, cost in zip(works, best, strict=True)]
    return best


class Report:
    """The table of results, printed as it grows, and its figures as JSON."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []
        print(f"{'':<{NAME_WIDTH}}{'floor':>13}{'ours':>13}{'ratio':>8}{'bar':>6}{'wall':>8}")

    def compare(
        self, name: str, floor: Cost, ours: Cost, *, times: int, target: float | None = None
    ) -> None:
        """Add the CPU time of one of so many operations, and the ratio of wall times.

        Args:
            name: what was done.
            floor: what it costs without us.
            ours: what it costs with us.
            times: how often it was done.
            target: what the ratio of CPU times should not exceed.
        """
        scale = MICRO / times
        self.add(
            name,
            floor.cpu * scale,
            ours.cpu * scale,
            target=target,
            wall=(floor.wall * scale, ours.wall * scale),
        )

    def add(
        self,
        name: str,
        floor: float,
        ours: float,
        *,
        unit: str = "us",
        target: float | None = None,
        wall: tuple[float, float] | None = None,
    ) -> None:
        """Add a line: the cost without us, and with us."""
        figure = {"name": name, "floor": floor, "ours": ours, "unit": unit}
        figure |= {"ratio": ours / floor, "target": target}
        if wall is not None:
            figure |= {"wall_floor": wall[0], "wall": wall[1]}
            figure |= {"wall_ratio": wall[1] / wall[0]}
        self.figures.append(figure)
        bar = "" if target is None else f"{target:g}"
        on_the_wall = "" if wall is None else f"{wall[1] / wall[0]:.2f}"
        print(
            f"{name:<{NAME_WIDTH}}{floor:>9.1f} {unit:<3}{ours:>9.1f} {unit:<3}"
            f"{ours / floor:>8.2f}{bar:>6}{on_the_wall:>8}",
            flush=True,
        )

    def to_json(self) -> str:
        return json.dumps(self.figures, indent=1)
