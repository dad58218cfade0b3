"""The dry run of a script: simulated runs of it, and the figures that a model or a person reads."""

import time
from collections.abc import Mapping
from typing import Any, Final

import trio

from orchestrator.agents import Agent
from orchestrator.ports.execution import DryRun
from orchestrator.ports.journals import Journals
from orchestrator.products.history.simulation.in_thread import simulate_in_thread
from orchestrator.products.history.simulation.one_run import SimulatedRun
from orchestrator.products.history.simulation.past_answers import read_past_answers
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.statistics import Quantiles, SimulationReport

SEEDS: Final = 20
SECONDS: Final = 2.6
"""All runs have ended, or were stopped, after this time; with fewer runs figures are less exact."""
ERROR_CHARACTERS: Final = 500


async def dry_run(agent: Agent[Any], goal: str, journals: Journals | None) -> DryRun:
    """Simulate the agent of a script, with answers of earlier tasks where there are some."""
    begun = time.monotonic()
    past = await trio.to_thread.run_sync(read_past_answers, journals, agent)
    errors: list[str] = []

    def note(run: SimulatedRun) -> None:
        if not run.outcome.succeeded:
            errors.append(run.outcome.error)

    settings = SimulationSettings(seeds=SEEDS, past=past)
    left = max(0.2, SECONDS - (time.monotonic() - begun))
    # The last run may take as long as all before it.
    report = await simulate_in_thread(agent, goal, settings, seconds=left / 2, tell=note)
    if report is None:
        return DryRun("no simulated run of the script ended in time: its price is unknown", False)
    runs = len(report.seeds)
    if len(errors) == runs and len(set(errors)) == 1:
        return DryRun(f"every simulated run failed: {errors[0]}", False)
    in_time = f" (of {SEEDS}, in the time that it may take)" if runs < SEEDS else ""
    lines = [
        f"{runs} simulated run{'s' * (runs != 1)} of the script{in_time}; no model was called",
        _sources(past),
        f"{'':<8}{'p50':>12}{'p95':>12}",
        *_figures(report),
    ]
    if report.unpriced:
        lines.append(f"price unknown: {', '.join(report.unpriced)}")
    if errors:
        lines.append(
            f"{len(errors)} of {runs} runs failed, such as: {errors[0][:ERROR_CHARACTERS]}"
        )
    if errors or report.tasks.min != report.tasks.max:
        lines.append(_bounds(report))
    return DryRun("\n".join(lines), True)


def _sources(past: Mapping[str, Any]) -> str:
    if not past:
        return "all answers are made up: there are no earlier ones"
    known = ", ".join(f"{name} ({len(it)})" for name, it in sorted(past.items()))
    return f"answers of earlier tasks: {known}; all others are made up"


def _figures(report: SimulationReport) -> list[str]:
    rows = [
        ("cost", report.cost, "${:,.4f}"),
        ("seconds", report.makespan, "{:,.0f}"),
        ("tasks", _children(report.tasks), "{:,.0f}"),
    ]
    return [
        f"{name:<8}{'unknown':>12}{'unknown':>12}"
        if it is None
        else f"{name:<8}{form.format(it.p50):>12}{form.format(it.p95):>12}"
        for name, it, form in rows
    ]


def _bounds(report: SimulationReport) -> str:
    tasks, cost = _children(report.tasks), report.cost
    dollars = "" if cost is None else f", ${cost.min:,.4f} to ${cost.max:,.4f}"
    return (
        "the script depends on the answers, so the figures are bounds of these runs:"
        f" {tasks.min:,.0f} to {tasks.max:,.0f} tasks{dollars}; real answers may need more"
    )


def _children(tasks: Quantiles) -> Quantiles:
    """Return the number of tasks without the script itself."""
    return Quantiles(
        min=tasks.min - 1,
        p50=tasks.p50 - 1,
        p95=tasks.p95 - 1,
        max=tasks.max - 1,
        mean=tasks.mean - 1,
    )
