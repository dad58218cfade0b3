"""`make bench`: prints the table, and writes its figures to benchmarks/results.json."""

import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from benchmarks import floors, workloads
from benchmarks.footprint import cpu_of, kilobytes_each, packages
from benchmarks.http_server import measure_http_server
from benchmarks.journal import measure_journal
from benchmarks.measure import Cost, Report, cost_of, in_turn
from orchestrator import Orchestrator

RESULTS = Path(__file__).parent / "results.json"
OFTEN = 300
MICRO = 1_000_000
MODEL_SECONDS = 0.05


def floor(work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[Cost]]:
    return partial(cost_of, work)


def ours(
    work: Callable[[Orchestrator], Awaitable[object]], *, durable: bool = False
) -> Callable[[], Awaitable[Cost]]:
    """Measure a workload on an orchestrator of its own; opening it does not count."""

    async def measured() -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.db" if durable else None
            async with workloads.opened(path) as orchestrator:
                return await cost_of(partial(work, orchestrator))

    return measured


def measure_delegations(report: Report) -> None:
    raw, joined, detached = in_turn(
        floor(partial(floors.delegate_often, OFTEN)),
        ours(partial(workloads.delegate_often, times=OFTEN)),
        ours(partial(workloads.detach_often, times=OFTEN)),
        rounds=7,
    )
    scale = MICRO / OFTEN
    report.add("one delegation, joined", raw.cpu * scale, joined.cpu * scale, target=12)
    report.add(
        "one delegation, detached, until told", raw.cpu * scale, detached.cpu * scale
    )
    for children, rounds in ((100, 15), (1_000, 7), (10_000, 3)):
        raw, joined, detached = in_turn(
            floor(partial(floors.delegate, children)),
            ours(partial(workloads.delegate, children=children)),
            ours(partial(workloads.detach, children=children)),
            rounds=rounds,
        )
        scale = MICRO / children
        name = f"fan-out of {children:,}"
        report.add(
            f"{name}, joined, a child", raw.cpu * scale, joined.cpu * scale, target=10
        )
        report.add(f"{name}, detached, a child", raw.cpu * scale, detached.cpu * scale)


def measure_makespan(report: Report) -> None:
    for children, target in ((1_000, 1.3), (10_000, 3)):
        raw, joined = in_turn(
            floor(partial(floors.delegate, children, MODEL_SECONDS)),
            ours(partial(workloads.delegate, children=children, seconds=MODEL_SECONDS)),
            rounds=3,
        )
        ideal = 3 * MODEL_SECONDS * 1_000
        name = f"makespan of {children:,} at 50 ms, against the ideal"
        report.add(name, ideal, joined.wall * 1_000, unit="ms", target=target)
        name = f"makespan of {children:,} at 50 ms, raw trio against the ideal"
        report.add(name, ideal, raw.wall * 1_000, unit="ms")


def measure_chains(report: Report) -> None:
    for depth in (20, 200):
        raw, chained = in_turn(
            floor(partial(floors.chain, depth)),
            ours(partial(workloads.chain, depth=depth)),
            rounds=7,
        )
        scale = MICRO / depth
        report.add(f"chain of {depth}, a level", raw.cpu * scale, chained.cpu * scale)


def measure_durable(report: Report) -> None:
    often = 30
    memory, disk = in_turn(
        ours(partial(workloads.delegate_often, times=often)),
        ours(partial(workloads.delegate_often, times=often), durable=True),
        rounds=5,
    )
    scale = MICRO / often
    name = "one delegation on disk, against memory (wall)"
    report.add(name, memory.wall * scale, disk.wall * scale)
    for children, target in ((100, None), (1_000, 3)):
        memory, disk = in_turn(
            ours(partial(workloads.delegate, children=children)),
            ours(partial(workloads.delegate, children=children), durable=True),
            rounds=5,
        )
        scale = MICRO / children
        report.add(
            f"fan-out of {children:,} on disk, against memory (CPU)",
            memory.cpu * scale,
            disk.cpu * scale,
            target=target,
        )
        report.add(
            f"fan-out of {children:,} on disk, against memory (wall)",
            memory.wall * scale,
            disk.wall * scale,
            target=target,
        )


def measure_growth(report: Report) -> None:
    """Compare the cost of a delegation in a journal that holds ever more tasks."""
    sizes = (100, 1_000, 10_000, 100_000)

    async def at(size: int) -> Cost:
        async with workloads.opened() as orchestrator:
            for _ in range(max(1, size // 10_000)):
                await workloads.delegate(orchestrator, min(size, 10_000))
            costs = [
                await cost_of(partial(workloads.delegate_often, orchestrator, OFTEN))
                for _ in range(5)
            ]
            return Cost(
                min(cost.cpu for cost in costs), min(cost.wall for cost in costs)
            )

    costs = in_turn(*(partial(at, size) for size in sizes), rounds=2)
    scale = MICRO / OFTEN
    for size, cost in zip(sizes[1:], costs[1:], strict=True):
        name = f"one delegation with {size:,} tasks in the journal"
        report.add(name, costs[0].cpu * scale, cost.cpu * scale, target=1.3)


def measure_footprint(report: Report) -> None:
    for children in (1_000, 10_000):
        report.add(
            f"memory of one of {children:,} that wait",
            kilobytes_each("tasks", children),
            kilobytes_each("children", children),
            unit="kB",
        )
    bare, ours_alone = cpu_of("import trio"), cpu_of("import orchestrator")
    name = "import orchestrator, against import trio"
    report.add(name, bare * 1_000, ours_alone * 1_000, unit="ms", target=1.5)
    used = cpu_of(
        "from agents import Agent; from orchestrator import open_orchestrator"
    )
    name = "import of all that a program needs, against trio"
    report.add(name, bare * 1_000, used * 1_000, unit="ms")
    count = len(packages())
    report.add(
        "packages of the plain install, ours included", 16, count, unit="", target=1
    )


def main() -> None:
    report = Report()
    measure_delegations(report)
    measure_makespan(report)
    measure_chains(report)
    measure_durable(report)
    measure_journal(report)
    measure_growth(report)
    measure_footprint(report)
    measure_http_server(report)
    RESULTS.write_text(report.to_json())


if __name__ == "__main__":
    main()
