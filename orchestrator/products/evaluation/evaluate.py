"""`evaluate`: run versions of a team on cases, score them, and report the difference."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from orchestrator.agents import Agent, DefinitionError, Model
from orchestrator.ports.sessions import Orchestrator
from orchestrator.products.evaluation.cases import Case, Dataset
from orchestrator.products.evaluation.checks import parse_check
from orchestrator.products.evaluation.recorded import Trial
from orchestrator.products.evaluation.report import EvaluationReport, check_versions
from orchestrator.products.evaluation.scorers import Scorer, as_scorer, default_scorers
from orchestrator.products.evaluation.summary import (
    Comparison,
    VersionSummary,
    compare_versions,
    summarize,
)
from orchestrator.products.evaluation.sweep import run_rounds, score_name
from orchestrator.products.evaluation.trials import Evaluation, Tell, version_of


async def evaluate(
    orchestrator: Orchestrator,
    agents: Agent[Any] | Mapping[str, Agent[Any]],
    cases: Dataset | Sequence[Case],
    *,
    scorers: Sequence[Any] = (),
    score: str | None = None,
    repeat: int = 1,
    limit: int = 20,
    usd: float | None = None,
    baseline: Sequence[Trial] = (),
    checks: Sequence[str] = (),
    judge_model: str | Model | None = None,
    deps: object = None,
    loads: Sequence[int] = (),
    tell: Tell | None = None,
) -> EvaluationReport:
    """Run agents on cases, score the runs, and compare the versions in pairs.

    The runs are in the journal of the orchestrator. A second call, also in another process, uses
    the runs that have ended and continues the interrupted ones.

    Args:
        orchestrator: an open orchestrator; its journal is the set.
        agents: an agent, or several versions by their names; the first is the baseline.
        cases: the cases, such as `read_cases(Path("cases.yaml"))`.
        scorers: functions of a `TaskResult`, judges, or evaluators of pydantic-evals; by default
            the output is compared with the expected one.
        score: the name of the score to compare; by default the first.
        repeat: how often each case runs. With several versions it is the most: a version that
            clearly differs runs no more.
        limit: how many cases run at once.
        usd: the most dollars for all runs and judges.
        baseline: the trials of an earlier set, to compare with.
        checks: bounds such as `score>=0.8` or `cost<=1.1x`.
        judge_model: the model of judges that name none.
        deps: the values that the tools and instructions of the agents need from the program.
        loads: numbers of runs at once; the simulator computes the time and cost under each.
        tell: receives each trial when it has ended.
    """
    bounds = [parse_check(it) for it in checks]
    versions = dict(agents) if isinstance(agents, Mapping) else {version_of(agents): agents}
    if not versions:
        raise DefinitionError("there is no agent to evaluate")
    dataset = cases if isinstance(cases, Dataset) else Dataset(name="cases", cases=tuple(cases))
    chosen = choose_scorers(dataset, scorers, judge_model)
    evaluation = Evaluation(
        orchestrator=orchestrator,
        versions=versions,
        scorers=chosen,
        usd=usd,
        deps=deps,
        dataset=dataset.name,
        evaluators=lambda case: [as_scorer(it, judge_model=judge_model) for it in case.evaluators],
    )
    trials = await run_rounds(
        evaluation,
        dataset.cases,
        rounds=repeat,
        limit=limit,
        score=score,
        tell=_ignore if tell is None else tell,
    )
    if not trials:
        raise DefinitionError(f"no trial has ended: {evaluation.spent}")
    earlier = await evaluation.rescore(baseline, dataset.cases)
    report = make_report(dataset.name, trials, earlier, bounds, score)
    if loads:
        # Imported late: few evaluations simulate.
        from orchestrator.products.evaluation.loads import compute_loads

        computed = await compute_loads(orchestrator, report.versions, loads)
        report = attrs.evolve(report, loads=computed)
    return report_with_costs(report, evaluation, len(dataset.cases) * len(versions))


def _ignore(trial: Trial) -> None:
    pass


def choose_scorers(
    dataset: Dataset, scorers: Sequence[Any], judge_model: str | Model | None
) -> list[Scorer]:
    """Return the given scorers and the evaluators of the dataset, or the default scorer."""
    found = [as_scorer(it, judge_model=judge_model) for it in (*scorers, *dataset.evaluators)]
    if found or any(it.evaluators for it in dataset.cases):
        return found
    return list(default_scorers(any(it.expected_output is not None for it in dataset.cases)))


def make_report(
    name: str,
    trials: Sequence[Trial],
    baseline: Sequence[Trial] = (),
    checks: Sequence[Any] = (),
    score: str | None = None,
) -> EvaluationReport:
    """Return the report of trials; without an earlier set, the first version is the baseline."""
    chosen = score or score_name(trials)
    versions = list(summarize(trials, chosen).values())
    first = versions[0] if len(versions) > 1 else None
    for found in summarize(baseline, chosen).values():
        first = found
    return EvaluationReport(
        name=name,
        score=chosen,
        versions=versions,
        baseline=first,
        comparisons=[] if first is None else _compare(first, versions),
        checks=check_versions(checks, versions, first),
        paid=sum(it.result.usage.usd for it in trials),
    )


def _compare(first: VersionSummary, versions: Sequence[VersionSummary]) -> list[Comparison]:
    return [compare_versions(first, it) for it in versions if it is not first]


def report_with_costs(
    report: EvaluationReport, evaluation: Evaluation, least: int
) -> EvaluationReport:
    """Return a report with the dollars of the budget, and the trials that it left out."""
    if evaluation.usd is None:
        return report
    done = sum(len(it.trials) for it in report.versions)
    return attrs.evolve(
        report,
        paid=evaluation.paid,
        usd=evaluation.usd,
        missing=max(1, least - done) if evaluation.is_spent else 0,
        note=evaluation.spent if evaluation.is_spent else "",
    )
