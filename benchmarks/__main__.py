"""`make bench`: print the table, and write its figures to benchmarks/results.json."""

import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from benchmarks import floors, workloads
from benchmarks.asyncio_bridge import measure_asyncio
from benchmarks.cluster import measure_cluster
from benchmarks.conversation import measure_conversation
from benchmarks.footprint import (
    OURS,
    footprint_of,
    installed_megabytes,
    kilobytes_each,
    packages,
    process_cpu,
)
from benchmarks.http_server import measure_http_server
from benchmarks.journal import measure_journal
from benchmarks.measure import Cost, Report, cost_of, in_turn
from benchmarks.planted_faults import measure_planted_faults
from benchmarks.postgres import measure_postgres
from benchmarks.sandbox import measure_sandbox
from benchmarks.shared_prefix import measure_shared_prefix
from benchmarks.stalls import measure_stalls
from benchmarks.streams import measure_streams
from orchestrator import Orchestrator

RESULTS = Path(__file__).parent / "results.json"
OFTEN = 300
MODEL_SECONDS = 0.05
EMPTY_RUN = """
from orchestrator import Agent, ScriptedModel, run_sync

def run(journal):
    run_sync(Agent("a", model=ScriptedModel.always("done")), "go", journal=journal)
"""
PROGRAM = "from orchestrator import Agent, ScriptedModel, map_each, run_sync"
"""The import of the README's first program."""


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
    report.compare("one delegation, joined", raw, joined, times=OFTEN, target=12)
    name = "one delegation, detached, until its notice is read"
    report.compare(name, raw, detached, times=OFTEN)
    for children, rounds in ((100, 15), (1_000, 9), (10_000, 3)):
        raw, joined, detached = in_turn(
            floor(partial(floors.delegate, children)),
            ours(partial(workloads.delegate, children=children)),
            ours(partial(workloads.detach, children=children)),
            rounds=rounds,
        )
        name = f"fan-out of {children:,}"
        report.compare(f"{name}, joined, a child", raw, joined, times=children, target=10)
        name = f"{name}, detached, a child, until its notice is read"
        report.compare(name, raw, detached, times=children)


def measure_makespan(report: Report) -> None:
    for children, target in ((100, None), (1_000, 1.3), (10_000, 3)):
        raw, joined = in_turn(
            floor(partial(floors.delegate, children, MODEL_SECONDS)),
            ours(partial(workloads.delegate, children=children, seconds=MODEL_SECONDS)),
            rounds=3,
        )
        ideal = 3 * MODEL_SECONDS * 1_000
        name = f"makespan of {children:,} at 50 ms, against the ideal"
        report.add(name, ideal, joined.wall * 1_000, unit="ms", target=target)
        report.add("  of raw trio", ideal, raw.wall * 1_000, unit="ms")
        # The CPU time that an idle machine would need besides waiting.
        report.add("  ours in CPU time alone", ideal, joined.cpu * 1_000, unit="ms")


def measure_chains(report: Report) -> None:
    for depth in (20, 200):
        raw, chained = in_turn(
            floor(partial(floors.chain, depth)),
            ours(partial(workloads.chain, depth=depth)),
            rounds=9,
        )
        report.compare(f"chain of {depth}, a level", raw, chained, times=depth)


def measure_durable(report: Report) -> None:
    often = 30
    memory, disk = in_turn(
        ours(partial(workloads.delegate_often, times=often)),
        ours(partial(workloads.delegate_often, times=often), durable=True),
        rounds=5,
    )
    name = "one delegation on disk, against memory"
    report.compare(name, memory, disk, times=often)
    for children, rounds, target in ((100, 7, None), (1_000, 5, 3), (10_000, 2, None)):
        memory, disk = in_turn(
            ours(partial(workloads.delegate, children=children)),
            ours(partial(workloads.delegate, children=children), durable=True),
            rounds=rounds,
        )
        name = f"fan-out of {children:,} on disk, against memory, a child"
        report.compare(name, memory, disk, times=children, target=target)
    memory, disk = in_turn(
        ours(partial(workloads.detach, children=1_000)),
        ours(partial(workloads.detach, children=1_000), durable=True),
        rounds=3,
    )
    name = "fan-out of 1,000 detached on disk, against memory"
    report.compare(name, memory, disk, times=1_000)


def measure_growth(report: Report) -> None:
    """Compare the cost of a delegation in journals of more and more tasks."""
    sizes = (100, 1_000, 10_000, 100_000)

    async def at(size: int) -> Cost:
        async with workloads.opened() as orchestrator:
            for _ in range(max(1, size // 10_000)):
                await workloads.delegate(orchestrator, min(size, 10_000))
            work = partial(workloads.delegate_often, orchestrator, OFTEN)
            best = await cost_of(work)
            for _ in range(4):
                best = best.best(await cost_of(work))
            return best

    costs = in_turn(*(partial(at, size) for size in sizes), rounds=2)
    for size, cost in zip(sizes[1:], costs[1:], strict=True):
        name = f"one delegation with {size:,} tasks in the journal, against 100"
        report.compare(name, costs[0], cost, times=OFTEN, target=1.3)


def measure_commands(report: Report) -> None:
    """Compare whole processes: what a user waits for before anything happens."""
    rich = process_cpu("-c", "import rich") * 1_000
    for option in ("--version", "--help"):
        cost = process_cpu("-m", "orchestrator", option) * 1_000
        name = f"CPU of `orchestrator {option}`, against `import rich`"
        report.add(name, rich, cost, unit="ms", target=2)
    with tempfile.TemporaryDirectory() as folder:
        journal = f"{folder}/journal.db"
        process_cpu("-c", f"{EMPTY_RUN}\nrun({journal!r})", rounds=1)
        reading = process_cpu("-c", "import rich.console, cyclopts, delegation") * 1_000
        cost = process_cpu("-m", "orchestrator", "runs", "--journal", journal) * 1_000
    name = "CPU of `orchestrator runs`, against importing rich, cyclopts and delegation"
    report.add(name, reading, cost, unit="ms", target=2)


def measure_footprint(report: Report) -> None:
    for children in (1_000, 10_000):
        each = kilobytes_each("children", children)
        name = f"memory of one of {children:,} that wait"
        report.add(name, kilobytes_each("tasks", children), each, unit="kB")
        report.add("  against 12 kB", 12, each, unit="kB", target=1)
    bare, ours_alone = footprint_of("import trio"), footprint_of("import orchestrator")
    name = "import orchestrator, against import trio"
    report.add(name, bare.cpu * 1_000, ours_alone.cpu * 1_000, unit="ms", target=1.5)
    report.add("  modules loaded", bare.modules, ours_alone.modules, unit="")
    report.add("  memory", bare.megabytes, ours_alone.megabytes, unit="MB")
    used = footprint_of(PROGRAM)
    name = "import of what a program names, against trio"
    report.add(name, bare.cpu * 1_000, used.cpu * 1_000, unit="ms", target=1.6)
    opened = footprint_of(f"{PROGRAM}; import orchestrator.composition")
    name = "  and of what it opens then"
    report.add(name, bare.cpu * 1_000, opened.cpu * 1_000, unit="ms")
    brought = packages()
    name = "packages of the plain install, ours included"
    report.add(name, 16, len(brought), unit="", target=1)
    theirs = installed_megabytes(brought - {OURS})
    name = "installed, ours against what it needs"
    report.add(name, theirs, installed_megabytes({OURS}), unit="MB")


def main() -> None:
    report = Report()
    measure_delegations(report)
    measure_makespan(report)
    measure_chains(report)
    measure_durable(report)
    measure_journal(report)
    measure_postgres(report)
    measure_cluster(report)
    measure_conversation(report)
    measure_growth(report)
    measure_footprint(report)
    measure_commands(report)
    measure_sandbox(report)
    measure_http_server(report)
    measure_streams(report)
    measure_shared_prefix(report)
    measure_asyncio(report)
    measure_stalls(report)
    measure_planted_faults()
    RESULTS.write_text(report.to_json())


if __name__ == "__main__":
    main()
