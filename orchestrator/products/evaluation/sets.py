"""The evaluations in files of journals, as the console's page shows them.

All sets with the same dataset are one evaluation, and each of their versions is a column. A
server asks in a process of its own, because it reads every run of a set.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from orchestrator.backends import journals_at
from orchestrator.delegation import SessionId
from orchestrator.ports.errors import JournalError
from orchestrator.products.evaluation.evaluate import make_report
from orchestrator.products.evaluation.page import tree_rows
from orchestrator.products.evaluation.plots import bars_of, pareto_front, point_of
from orchestrator.products.evaluation.recorded import Trial, read_trials
from orchestrator.products.evaluation.report import EvaluationReport, comparison_json, ordered_cases
from orchestrator.products.evaluation.statistics import Interval
from orchestrator.products.evaluation.summary import VersionSummary, summarize
from orchestrator.products.evaluation.sweep import score_name

ANSWER_CHARACTERS: Final = 20_000


class SetsQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question about the evaluations in files."""

    files: tuple[str, ...]
    owner: str | None = None
    """The owner of the runs to show; None shows the runs of all owners."""
    dataset: str = ""
    """The evaluation to show; empty lists all."""
    baseline: str = ""
    """The version to compare with; by default the oldest."""
    score: str = ""
    run: str = ""
    """The run of the evaluation to show, with its tree."""


def answer_question(request: bytes) -> bytes:
    """Return the answer as JSON; it is `null` if there is no such evaluation or run."""
    question = msgspec.json.decode(request, type=SetsQuestion)
    found = _Sets(question)
    if not question.dataset:
        answer: Any = {"data": found.listed(), "unreadable": found.unreadable}
    elif question.run:
        answer = found.run()
    else:
        answer = found.evaluation()
    return msgspec.json.encode(answer)


class _Sets:
    """The sets in files, as one question needs them."""

    def __init__(self, question: SetsQuestion) -> None:
        self._question = question
        self.unreadable: list[str] = []
        """The names of files that are no journals."""

    def listed(self) -> list[dict[str, Any]]:
        """Return all evaluations, the newest first."""
        found = [_summary(name, trials) for name, trials in self._trials().items()]
        return sorted(found, key=lambda it: -it["changed"])

    def evaluation(self) -> dict[str, Any] | None:
        question = self._question
        trials = self._trials(question.dataset).get(question.dataset)
        if trials is None:
            return None
        names = dict.fromkeys(it.version for it in trials)
        first = question.baseline if question.baseline in names else next(iter(names))
        scores = dict.fromkeys(name for it in trials for name in it.scores)
        score = question.score if question.score in scores else None
        trials.sort(key=lambda it: it.version != first)
        report = make_report(question.dataset, trials, score=score)
        return {"scores": list(scores), **_document(report)}

    def run(self) -> dict[str, Any] | None:
        run = SessionId(self._question.run)
        for file in self._question.files:
            journals = journals_at(file)
            try:
                name = journals.find(run)
                trials = [] if name is None else read_trials(journals, run=run)
            except JournalError:
                continue
            for it in filter(self._sees, trials):
                if it.run == run:
                    return _run_document(it)
        return None

    def _trials(self, dataset: str = "") -> dict[str, list[Trial]]:
        """Return the trials of all evaluations, or of one, the oldest set first."""
        found: dict[str, list[Trial]] = {}
        taken: set[tuple[str, str]] = set()
        for file, trials in self._by_file():
            for name, them in _by_dataset(trials, file.stem).items():
                if dataset in ("", name):
                    found.setdefault(name, []).extend(_distinct(them, file.stem, taken, name))
        for them in found.values():
            them.sort(key=_began)
        return found

    def _by_file(self) -> Iterator[tuple[Path, list[Trial]]]:
        for text in self._question.files:
            file = Path(text)
            try:
                yield file, list(filter(self._sees, read_trials(journals_at(text))))
            except JournalError:
                self.unreadable.append(file.name)

    def _sees(self, trial: Trial) -> bool:
        owner = self._question.owner
        return owner is None or trial.result.session.owner == owner


def _began(trial: Trial) -> float:
    result = trial.result
    return result.tree[result.id].requested


def _by_dataset(trials: Sequence[Trial], stem: str) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for it in trials:
        found.setdefault(it.dataset or stem, []).append(it)
    return found


def _distinct(
    trials: Sequence[Trial], stem: str, taken: set[tuple[str, str]], dataset: str
) -> Iterator[Trial]:
    """Yield trials whose version another set does not have, or has another name for."""
    versions = {it.version for it in trials}
    shared = {it for it in versions if (dataset, it) in taken}
    taken.update((dataset, it) for it in versions)
    for it in trials:
        yield attrs.evolve(it, version=f"{it.version} ({stem})") if it.version in shared else it


def _summary(name: str, trials: Sequence[Trial]) -> dict[str, Any]:
    score = score_name(trials)
    versions = summarize(trials, score)
    latest = [*versions.values()][-1]
    return {
        "name": name,
        "score": score,
        "versions": list(versions),
        "cases": len({it.case.key for it in trials}),
        "runs": len(trials),
        "errors": sum(it.errors for it in versions.values()),
        "latest": latest.name,
        "mean": latest.mean("score"),
        "paid": sum(it.result.usage.usd for it in trials),
        "changed": max(map(_began, trials)),
    }


def _document(report: EvaluationReport) -> dict[str, Any]:
    versions = report.all_versions
    points = [point_of(it) for it in versions]
    known = [(cost, score.value) for cost, score in filter(None, points)]
    return {
        "name": report.name,
        "score": report.score,
        "paid": report.paid,
        "versions": [_version(it, point) for it, point in zip(versions, points, strict=True)],
        "front": pareto_front(known),
        "comparisons": [comparison_json(it) for it in report.comparisons],
        "cases": [
            {"key": key, "name": name, "values": [_case(it, key) for it in versions]}
            for key, name in ordered_cases(report).items()
        ],
    }


def _version(version: VersionSummary, point: tuple[float, Interval] | None) -> dict[str, Any]:
    return {
        "name": version.name,
        "score": version.mean("score"),
        "cost": version.mean("cost"),
        "seconds": version.mean("seconds"),
        "errors": version.errors,
        "runs": len(version.trials),
        "interval": None if point is None else point[1],
        "bars": bars_of(version),
    }


def _case(version: VersionSummary, key: str) -> dict[str, Any] | None:
    case = version.cases.get(key)
    if case is None:
        return None
    return {
        "score": case.mean("score", version.score),
        "cost": case.mean("cost", version.score),
        "seconds": case.mean("seconds", version.score),
        "errors": case.errors,
        "runs": [it.run for it in case.trials],
    }


def _run_document(trial: Trial) -> dict[str, Any]:
    result = trial.result
    rows = tree_rows(result.tree)
    return {
        "run": trial.run,
        "error": trial.error,
        "answer": result.answer[:ANSWER_CHARACTERS],
        "expected": trial.case.expected_output,
        "scores": trial.scores,
        "rows": rows,
        "more": len(result.tree) - len(rows),
        "seconds": result.seconds,
        "cost": result.cost,
    }
