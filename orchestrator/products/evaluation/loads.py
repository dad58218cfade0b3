"""The time and cost of versions under other loads, computed from their recorded runs.

Nothing here is measured: the simulator repeats the recorded calls in virtual time.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import trio

from orchestrator.ports.sessions import Orchestrator
from orchestrator.products.evaluation.summary import VersionSummary
from orchestrator.products.history import ports as history

USUAL_LOADS: Final = (1, 10, 100)
"""The runs at once that a sweep computes."""
MOST_RUNS: Final = 50
"""The most recorded runs of a version that the simulator repeats."""
ASSUMPTION: Final = (
    "computed by simulation, not measured: the recorded calls, at a provider that answers"
    " {calls:,} at once, as many as it did here"
)


@attrs.frozen(kw_only=True)
class VersionLoad:
    """The computed seconds and dollars of a version under a load."""

    version: str
    at_once: int
    """The runs at the same time."""
    calls_at_once: int
    """The calls that the provider answers at the same time: the most that were recorded."""
    p50: float
    """The median of the seconds of a run."""
    p95: float
    cost: float | None
    """The dollars of a run; None if a price is not known."""
    cost_per_hour: float | None
    """The dollars of an hour under this load."""


async def compute_loads(
    orchestrator: Orchestrator, versions: Iterable[VersionSummary], loads: Sequence[int]
) -> list[VersionLoad]:
    """Compute the time and cost of versions under loads; no model is asked."""
    await trio.lowlevel.checkpoint()
    recorded: dict[str, list[history.RecordedCalls]] = {}
    costs: dict[str, float | None] = {}
    for version in versions:
        trials = [it for it in version.trials if it.result.succeeded][:MOST_RUNS]
        if trials:
            costs[version.name] = version.mean("cost")
            recorded[version.name] = [
                history.recorded_calls(await orchestrator.read.entries(it.run), it.run)
                for it in trials
            ]
    calls = history.most_calls_at_once(run for runs in recorded.values() for run in runs)

    def simulate() -> list[VersionLoad]:
        return [
            _load(name, costs[name], history.simulate_load(runs, at_once, calls))
            for name, runs in recorded.items()
            for at_once in loads
        ]

    return await trio.to_thread.run_sync(simulate)


def _load(version: str, cost: float | None, load: history.Load) -> VersionLoad:
    return VersionLoad(
        version=version,
        at_once=load.at_once,
        calls_at_once=load.calls_at_once,
        p50=load.seconds.p50,
        p95=load.seconds.p95,
        cost=cost,
        cost_per_hour=None if cost is None else cost * load.runs_per_hour,
    )
