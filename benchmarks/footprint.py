"""What it costs to have us: imports, packages, and memory for each child that waits.

Each figure is read from a fresh process: `python -m benchmarks.footprint children 1000`.
"""

import json
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import trio
import trio.testing
from packaging.requirements import Requirement

from benchmarks import workloads

IMPORTING = """
import sys, time
before = time.process_time()
{statement}
print(time.process_time() - before, len(sys.modules))
"""


def cpu_of(statement: str, *, rounds: int = 7) -> float:
    """Return the seconds that an import takes in a fresh process."""
    code = [sys.executable, "-c", IMPORTING.format(statement=statement)]
    runs = [
        subprocess.run(code, capture_output=True, text=True, check=True)
        for _ in range(rounds)
    ]
    return min(float(run.stdout.split()[0]) for run in runs)


def packages(name: str = "delegation-orchestrator") -> set[str]:
    """Return what a plain install brings, itself included."""
    found: set[str] = set()
    pending = [name]
    while pending:
        package = pending.pop()
        if package in found:
            continue
        try:
            needed = requires(package) or []
        except PackageNotFoundError:
            continue  # for another Python or another system
        found.add(package)
        pending += [
            need.name
            for need in map(Requirement, needed)
            if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
    return found


def kilobytes_each(who: str, children: int) -> float:
    """Return the memory of one of many that wait for their model, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.footprint", who, str(children)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figure: Any = json.loads(done.stdout)
    return float(figure) / children


def resident() -> float:
    """Return the kilobytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


async def _grown_by(who: str, children: int) -> float:
    """Return by how many kilobytes this process grows while all of them wait."""
    async with workloads.opened() as orchestrator, trio.open_nursery() as nursery:
        # The first run imports what the others need.
        await workloads.delegate(orchestrator, 1)
        before = resident()
        if who == "children":
            sleepers = workloads.parent_of_sleepers(children)
            nursery.start_soon(orchestrator.run, sleepers, "go")
        else:
            for _ in range(children):
                nursery.start_soon(trio.sleep, 1_000_000)
        await trio.testing.wait_all_tasks_blocked()
        grown = resident() - before
        nursery.cancel_scope.cancel()
    return grown


if __name__ == "__main__":
    print(json.dumps(trio.run(_grown_by, sys.argv[1], int(sys.argv[2]))))
