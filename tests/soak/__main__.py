"""`python -m tests.soak --seconds 600`: let a server and a library live, and fit slopes."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from tests.soak.library import soaking_library
from tests.soak.server import soaking_server
from tests.soak.slopes import Bounds, Sample, problems


async def soak(
    folder: Path,
    *,
    seconds: float,
    samples: int,
    bounds: Bounds | None = None,
    resting_tasks: str = "",
) -> dict[str, list[str]]:
    """Soak a server and a library side by side, and return the problems of each.

    Args:
        folder: where their journals are.
        seconds: how long.
        samples: how many measurements there are.
        bounds: what they may use.
        resting_tasks: how many tasks of resting sessions stay in memory, if not as many as always.
    """
    pause = seconds / samples
    of_server: list[Sample] = []
    of_library: list[Sample] = []
    async with (
        soaking_library(folder, resting_tasks=resting_tasks, pause=pause, samples=of_library),
        soaking_server(folder, resting_tasks=resting_tasks) as server,
    ):
        for _ in range(samples):
            await trio.sleep(pause)
            of_server.append(await server.sample())
            print("server ", of_server[-1], flush=True)
            for sample in of_library[-1:]:
                print("library", sample, flush=True)
    bounds = Bounds() if bounds is None else bounds
    found: dict[str, Sequence[Sample]] = {"server": of_server, "library": of_library}
    return {name: problems(taken, bounds) for name, taken in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--samples", type=int, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = trio.run(partial(soak, Path(folder), seconds=asked.seconds, samples=asked.samples))
    for name, broken in found.items():
        for problem in broken:
            print(f"{name}: {problem}")
        if not broken:
            print(f"{name}: every slope is within its bound")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
