"""`orchestrator eval`: run a team on cases, score the runs, and compare versions."""

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, Self

import attrs
from cyclopts import Parameter

from orchestrator.cli import options
from orchestrator.cli.agent_file import file_name, load_agent, loaded_functions
from orchestrator.cli.errors import CommandError
from orchestrator.cli.evaluation_files import load_cases, load_scorers, read_set, set_file
from orchestrator.cli.exit_codes import ENDING_CODES, FAILED, SUCCEEDED, USAGE
from orchestrator.cli.journal_queries import require_journal
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, print_hint
from orchestrator.cli.terminal.evaluation_table import print_report
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Ending
from orchestrator.delegation.tree.safe_text import printable_json
from orchestrator.ports.settings import Machine
from orchestrator.products.evaluation.cases import Case, Dataset
from orchestrator.products.evaluation.checks import parse_check
from orchestrator.products.evaluation.evaluate import choose_scorers, evaluate, make_report
from orchestrator.products.evaluation.loads import USUAL_LOADS
from orchestrator.products.evaluation.page import page_of
from orchestrator.products.evaluation.recorded import Trial, read_results
from orchestrator.products.evaluation.report import EvaluationReport
from orchestrator.products.evaluation.settings import make_versions, parse_vary
from orchestrator.products.evaluation.task_result import TaskResult
from orchestrator.products.evaluation.trials import Evaluation, version_of
from orchestrator.products.evaluation.where import parse_where


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Scoring:
    """How an evaluation scores runs."""

    scorer: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """A function of a TaskResult, a judge or an evaluator: FILE:NAME, or FILE with a list
    `scorers`; repeat it for several."""
    score: str | None = None
    """The score to compare; by default the first."""
    judge: str | None = None
    """The model of judges that name none."""
    check: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """A bound of a mean, such as 'score>=0.8', or 'cost<=1.1x' for 1.1 times the baseline; repeat
    it for several."""
    baseline: str | None = None
    """The set to compare with: its name, or its file."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Outputs:
    """The files that an evaluation writes."""

    json: options.JsonOption = False
    markdown: Path | None = None
    """A file for the summary in Markdown."""
    junit: Path | None = None
    """A file for the results in JUnit's XML."""
    html: Path | None = None
    """A file for the page with plots and trees."""

    def write(self, report: EvaluationReport) -> None:
        """Write the files that were asked for."""
        if self.markdown is not None:
            options.write_file(self.markdown, report.to_markdown())
        if self.junit is not None:
            options.write_file(self.junit, report.to_junit())
        if self.html is not None:
            options.write_file(self.html, page_of(report))


_NO_CASES: Final = Dataset(name="recorded", cases=(Case(name="recorded", inputs=""),))
"""Recorded runs have no expected answers."""


def eval(  # noqa: A001 (the name of the command)
    file: Annotated[str | None, Parameter(help="The file that defines the team.")] = None,
    cases: Annotated[Path | None, Parameter(help="YAML, JSON, JSONL or Python.")] = None,
    /,
    *,
    repeat: int = 1,
    usd: float | None = None,
    limit: int = 20,
    vary: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    set_: Annotated[str | None, Parameter(name="--set")] = None,
    model: options.ModelOption = None,
    journal: str | None = None,
    where: str | None = None,
    scoring: Scoring = Scoring(),  # noqa: B008 (frozen)
    outputs: Outputs = Outputs(),  # noqa: B008 (frozen)
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Run a team on cases, score the runs, and compare them with a baseline.

    The same command continues an evaluation that was killed: finished runs are not paid for again.
    Exits with 0 if all checks hold, with 1 if one fails, and with 3 if the budget was spent first.

    Args:
        repeat: How often each case runs; with --vary, how often at most.
        usd: The most dollars for all runs and judges of the set.
        limit: The most cases that run at once.
        vary: Settings to compare, such as model=a,b or make_team.limit=5,20; repeat it for all
            combinations. The first version is the baseline.
        set_: The name of the set, or its file; by default evaluations/TEAM-VERSION.db.
        journal: Score the recorded runs of this journal instead; only judges ask a model.
        where: The recorded tasks to score, such as 'agent == "researcher" and failed'; by default
            all whole runs.
    """
    if repeat < 1 or limit < 1:
        raise CommandError("--repeat and --limit must be at least 1")
    if usd is not None and not usd > 0:
        raise CommandError(f"--usd is {usd}; it must be above 0")
    if where is not None and journal is None:
        raise CommandError("--where selects recorded runs: name their journal with --journal")
    scorers, variables = load_scorers(scoring.scorer)
    earlier = read_set(scoring.baseline) if scoring.baseline is not None else []
    if journal is not None:
        results = _recorded_results(journal, where, file, trust=trust)
        chosen = choose_scorers(_NO_CASES, scorers, scoring.judge)
        path = None if set_ is None else set_file(set_)

        async def score_recorded(_: Stop) -> EvaluationReport:
            async with open_orchestrator(path or ":memory:") as orchestrator:
                evaluation = Evaluation(
                    orchestrator=orchestrator, versions={}, scorers=chosen, usd=usd
                )
                with _Progress(len(results), usd) as progress:
                    trials = await evaluation.score_recorded(
                        results, "recorded", tell=progress.tell
                    )
                checks = [parse_check(it) for it in scoring.check]
                report = make_report(journal, trials, earlier, checks, scoring.score)
                return attrs.evolve(report, paid=evaluation.paid, usd=usd, note=evaluation.spent)

        return run_stoppable(lambda stop: _finish(score_recorded, stop, outputs))
    if file is None or cases is None:
        raise CommandError("say what to evaluate: orchestrator eval team.py cases.yaml")
    # The file may run any code, so it is loaded before the event loop starts.
    agent = options.with_model(load_agent(file, model=model, trust=trust), model)
    path = set_file(set_ or f"{Path(file_name(file)).stem}-{version_of(agent)}")
    versions = {path.stem: agent}
    if vary:
        versions = make_versions(agent, [parse_vary(it) for it in vary], loaded_functions())
    dataset = load_cases(cases, variables)
    choose_scorers(dataset, scorers, scoring.judge)  # a wrong scorer is refused before any run
    path.parent.mkdir(parents=True, exist_ok=True)

    async def run(stop: Stop) -> EvaluationReport:
        choice = await choose_sandbox(sandbox, list(versions.values()), quiet=True)
        async with open_orchestrator(path, machine=Machine(sandbox=choice)) as orchestrator:
            stop.set_orchestrator(orchestrator)
            with _Progress(len(dataset.cases) * len(versions) * repeat, usd) as progress:
                return await evaluate(
                    orchestrator,
                    versions,
                    dataset,
                    scorers=scorers,
                    score=scoring.score,
                    repeat=repeat,
                    limit=limit,
                    usd=usd,
                    baseline=earlier,
                    checks=scoring.check,
                    judge_model=scoring.judge,
                    loads=USUAL_LOADS if vary else (),
                    tell=progress.tell,
                )

    return run_stoppable(lambda stop: _finish(run, stop, outputs, path))


async def _finish(
    work: Callable[[Stop], Awaitable[EvaluationReport]],
    stop: Stop,
    outputs: Outputs,
    path: Path | None = None,
) -> int | None:
    """Print and write the report of an evaluation, and return its exit code."""
    report: EvaluationReport | None = None
    with stop.work_scope, stop.ignore_closed():
        report = await work(stop)
    if report is None:
        print("orchestrator: stopped; the same command continues it", file=sys.stderr)
        return None
    if outputs.json:
        print(printable_json(report.to_json()))
    else:
        print_report(report, Terminal())
        if path is not None:
            hint = f"The runs are in {path}: --baseline {path.stem} compares with them."
            print_hint(Terminal(stderr=True), hint)
    outputs.write(report)
    if not report.passes:
        return FAILED
    trials = [trial for version in report.versions for trial in version.trials]
    if trials and all(it.broken for it in trials):
        return USAGE  # no run could be scored: a scorer is wrong
    return ENDING_CODES[Ending.OVER_BUDGET] if report.missing else SUCCEEDED


def _recorded_results(
    journal: str, where: str | None, file: str | None, *, trust: bool
) -> list[TaskResult]:
    """Return the recorded tasks that fit a condition, or all whole runs."""
    agent = None if file is None else load_agent(file, trust=trust)
    journals = options.journals_of(journal)
    require_journal(journals)
    runs = read_results(journals, agent=agent)
    if where is None:
        found = list(runs)
    else:
        fits = parse_where(where)
        found = [it for run in runs for it in (run, *run.tasks()) if fits(it)]
    if not found:
        raise CommandError(f"{journal} has no run to score" + (f" where {where}" if where else ""))
    return found


class _Progress:
    """One line of a terminal: how many trials have ended, their cost, and the time left."""

    def __init__(self, count: int, usd: float | None) -> None:
        self._count = count
        self._usd = usd
        self._done = 0
        self._cost = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._show("")

    def tell(self, trial: Trial) -> None:
        self._done += 1
        self._cost += trial.result.usage.usd
        spent = time.monotonic() - self._started
        left = spent / self._done * (self._count - self._done)
        budget = "" if self._usd is None else f" of ${self._usd:.2f}"
        self._show(
            f"{self._done:,} of {self._count:,} runs · ${self._cost:.4f}{budget}"
            f" · about {left:,.0f} s left"
        )

    def _show(self, words: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{words}")
            sys.stderr.flush()
