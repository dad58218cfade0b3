"""The footprint: imports, packages, and the memory of each waiting child.

Each figure is read from a fresh process: `python -m benchmarks.footprint children 1000`.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any, Final

import attrs
import trio
import trio.testing
from packaging.requirements import Requirement

from benchmarks import workloads

OURS: Final = "delegation-orchestrator"
HERE: Final = Path(__file__).parent.parent
IMPORTING: Final = """
import resource, sys, time
before = time.process_time()
{statement}
took = time.process_time() - before
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[1])
print(took, len(sys.modules), pages * resource.getpagesize() / 2**20)
"""


@attrs.frozen
class Footprint:
    """A process after an import."""

    cpu: float
    modules: float
    megabytes: float


def footprint_of(statement: str, *, rounds: int = 7) -> Footprint:
    """Return the cost of an import in a fresh process, best of several."""
    code = [sys.executable, "-c", IMPORTING.format(statement=statement)]
    # The first one compiles what has changed, as an installation does.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    runs = [
        subprocess.run(code, capture_output=True, text=True, check=True, env=environ)
        for _ in range(rounds)
    ]
    figures = [map(float, run.stdout.split()) for run in runs]
    return Footprint(*map(min, zip(*figures, strict=True)))


def process_cpu(*arguments: str, rounds: int = 7) -> float:
    """Return the CPU seconds of a Python process from its start to its end, best of several."""
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    costs: list[float] = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True, env=environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs)


def installed_megabytes(names: Iterable[str]) -> float:
    """Return the disk space of packages, without compiled bytecode."""
    return sum(map(_bytes_of, names)) / 2**20


def _bytes_of(name: str) -> int:
    if name == OURS:
        # An editable install lists none of its files. `rglob` does not follow the two links.
        folders = ("agents", "delegation", "orchestrator")
        files = [file for folder in folders for file in (HERE / folder).rglob("*")]
        files = [it for it in files if "viewer" not in it.parts]
    else:
        files = [Path(str(it.locate())) for it in distribution(name).files or ()]
    return sum(it.stat().st_size for it in files if it.is_file() and _is_source(it))


def _is_source(file: Path) -> bool:
    return file.suffix != ".pyc"


def packages(name: str = OURS) -> set[str]:
    """Return the packages of a plain install, itself included."""
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
    """Return the memory of one of many children that wait for a model, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.footprint", who, str(children)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figure: Any = json.loads(done.stdout)
    return float(figure) / children


def resident() -> float:
    """Return the kilobytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


async def _grown_by(who: str, children: int) -> float:
    """Return by how many kilobytes this process grows while all children wait."""
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
