"""The report of an evaluation: versions, comparisons and checks, as JSON, Markdown and JUnit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import attrs
import msgspec

from orchestrator.delegation import printable
from orchestrator.products.evaluation.checks import Check
from orchestrator.products.evaluation.recorded import Trial
from orchestrator.products.evaluation.statistics import Interval
from orchestrator.products.evaluation.summary import (
    MEASURES,
    CaseSummary,
    Comparison,
    VersionSummary,
)

if TYPE_CHECKING:
    from orchestrator.products.evaluation.loads import VersionLoad

LOAD_HEADS: Final = ("runs at once", "p50", "p95", "cost of a run", "cost of an hour")


@attrs.frozen(kw_only=True)
class CheckResult:
    """The result of a check for one version."""

    version: str
    check: str
    passes: bool
    sentence: str


@attrs.frozen(kw_only=True)
class EvaluationReport:
    """Everything that an evaluation found."""

    name: str
    """The name of the dataset."""
    score: str
    """The name of the score that it is about."""
    versions: Sequence[VersionSummary]
    baseline: VersionSummary | None = None
    """The version that the others are compared with."""
    comparisons: Sequence[Comparison] = ()
    """Each version compared with the baseline."""
    checks: Sequence[CheckResult] = ()
    paid: float = 0.0
    """The dollars for all runs and judges."""
    usd: float | None = None
    missing: int = 0
    """The number of trials that did not run because the budget was spent."""
    note: str = ""
    loads: "Sequence[VersionLoad]" = ()
    """The time and cost of versions under other loads, which are computed and not measured."""

    @property
    def passes(self) -> bool:
        return all(it.passes for it in self.checks)

    def to_json(self) -> str:
        """Return the report as JSON."""
        document: dict[str, Any] = {
            "dataset": self.name,
            "score": self.score,
            "paid_usd": round(self.paid, 6),
            "budget_usd": self.usd,
            "missing_trials": self.missing,
            "baseline": None if self.baseline is None else self.baseline.name,
            "versions": [_version_json(it) for it in self.all_versions],
            "comparisons": [comparison_json(it) for it in self.comparisons],
            "checks": [attrs.asdict(it) for it in self.checks],
            "computed_loads": [attrs.asdict(it) for it in self.loads],
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()

    def to_markdown(self) -> str:
        """Return a summary for a pull request."""
        lines = [f"## {_cell(self.name)}", ""]
        lines += [f"**{_cell(it.sentence)}**\n" for it in self.comparisons]
        lines += ["| version | " + " | ".join(_heads(self.score)) + " | errors |"]
        lines += ["|---|" + "---:|" * (len(MEASURES) + 1)]
        for it in self.all_versions:
            means = (format_measure(measure, it.mean(measure)) for measure in MEASURES)
            lines.append(f"| {_cell(it.name)} | {' | '.join(means)} | {it.errors} |")
        for compared in self.comparisons:
            changed = [it for it in compared.changes if it.change or it.case.errors]
            if not changed:
                continue
            title = f"Changed cases of {compared.second.name}"
            lines += ["", f"### {_cell(title)}", "", "| case | before | now | change |"]
            lines += ["|---|---:|---:|---:|"]
            for one in changed[:50]:
                before = None if one.before is None else one.before.mean("score", self.score)
                now = "✗" if one.case.errors else _number(one.case.mean("score", self.score))
                change = "" if one.change is None else f"{one.change:+.2f}"
                lines.append(f"| {_cell(one.case.name)} | {_number(before)} | {now} | {change} |")
        if self.loads:
            lines += ["", f"Under load, {self.load_assumption}:", ""]
            lines += ["| version | " + " | ".join(LOAD_HEADS) + " |", "|---|" + "---:|" * 5]
            lines += [
                f"| {_cell(it.version)} | {' | '.join(load_cells(it))} |" for it in self.loads
            ]
        if self.checks:
            lines += [
                "",
                *(f"- {'✓' if it.passes else '✗'} {_cell(it.sentence)}" for it in self.checks),
            ]
        if self.note:
            lines += ["", _cell(self.note)]
        return "\n".join([*lines, ""])

    def to_junit(self) -> str:
        """Return a test case for each case of each version, and for each check."""
        root = ET.Element("testsuites")
        for version in self.versions:
            failed = [it for it in self.checks if it.version == version.name and not it.passes]
            suite = ET.SubElement(
                root,
                "testsuite",
                name=_xml(f"{self.name} {version.name}"),
                tests=str(len(version.cases) + len(self.checks)),
                failures=str(len(failed)),
                errors=str(sum(bool(it.errors) for it in version.cases.values())),
            )
            for case in version.cases.values():
                seconds = case.mean("seconds", self.score) or 0.0
                one = _test(suite, version.name, case.name, f"{seconds:.3f}")
                for trial in case.trials:
                    if trial.error:
                        ET.SubElement(one, "error", message=_xml(trial.error))
            for it in self.checks:
                if it.version == version.name:
                    one = _test(suite, version.name, it.check, "0")
                    if not it.passes:
                        ET.SubElement(one, "failure", message=_xml(it.sentence))
        return ET.tostring(root, encoding="unicode", xml_declaration=True)

    @property
    def load_assumption(self) -> str:
        """A sentence about the computed loads."""
        from orchestrator.products.evaluation.loads import ASSUMPTION

        return ASSUMPTION.format(calls=self.loads[0].calls_at_once)

    @property
    def all_versions(self) -> list[VersionSummary]:
        """All versions, the baseline first."""
        base = self.baseline
        is_apart = base is not None and all(it is not base for it in self.versions)
        return [base, *self.versions] if is_apart and base is not None else [*self.versions]


def ordered_cases(report: EvaluationReport) -> dict[str, str]:
    """Return the names of all cases by their keys, the largest change first."""
    cases = {
        key: case.name for version in report.all_versions for key, case in version.cases.items()
    }
    changes = dict.fromkeys(cases, 0.0)
    for compared in report.comparisons:
        for it in compared.changes:
            size = 2.0 if it.case.errors else abs(it.change or 0.0)
            changes[it.case.key] = max(changes[it.case.key], size)
    return {key: cases[key] for key in sorted(cases, key=lambda key: -changes[key])}


def check_versions(
    checks: Sequence[Check], versions: Sequence[VersionSummary], baseline: VersionSummary | None
) -> list[CheckResult]:
    """Return the results of all checks; a baseline among the versions is not checked itself."""
    found: list[CheckResult] = []
    for version in versions:
        if version is baseline and len(versions) > 1:
            continue
        for check in checks:
            passes, sentence = check.result(version, baseline)
            found.append(
                CheckResult(
                    version=version.name, check=check.text, passes=passes, sentence=sentence
                )
            )
    return found


def format_measure(measure: str, value: float | None) -> str:
    """Return a mean with its unit, for people."""
    match measure:
        case "cost":
            return "no price" if value is None else f"${value:.{4 if value >= 0.001 else 6}f}"
        case "seconds":
            return "" if value is None else f"{value:.1f} s"
        case "tokens" | "calls":
            return "" if value is None else f"{value:,.0f}"
        case _:
            return _number(value)


def load_cells(load: "VersionLoad") -> list[str]:
    """Return the cells of a computed load, in the order of `LOAD_HEADS`."""
    return [
        f"{load.at_once:,}",
        f"{load.p50:.1f} s",
        f"{load.p95:.1f} s",
        format_measure("cost", load.cost),
        "no price" if load.cost_per_hour is None else f"${load.cost_per_hour:,.2f}",
    ]


def _number(value: float | None) -> str:
    return "✗" if value is None else f"{value:.2f}"


def _heads(score: str) -> list[str]:
    return [_cell(score), *MEASURES[1:]]


def _cell(text: str) -> str:
    return " ".join(printable(text).split()).replace("|", "\\|")


def _xml(text: str) -> str:
    """Return a text without the characters that XML cannot carry."""
    return " ".join(printable(text).split())


def _test(suite: ET.Element, version: str, name: str, seconds: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_xml(version), name=_xml(name), time=seconds)


def _version_json(version: VersionSummary) -> dict[str, Any]:
    return {
        "version": version.name,
        **{measure: version.mean(measure) for measure in MEASURES},
        "errors": version.errors,
        "cases": [_case_json(it, version.score) for it in version.cases.values()],
    }


def _case_json(case: CaseSummary, score: str) -> dict[str, Any]:
    return {
        "case": case.name,
        **{measure: case.mean(measure, score) for measure in MEASURES},
        "trials": [_trial_json(it) for it in case.trials],
    }


def _trial_json(trial: Trial) -> dict[str, Any]:
    return {
        "run": trial.run,
        "repeat": trial.repeat,
        "scores": {name: msgspec.to_builtins(it) for name, it in trial.scores.items()},
        "cost": trial.result.cost,
        "seconds": round(trial.result.seconds, 3),
        "tokens": trial.result.tokens,
        "calls": trial.result.calls,
        "error": trial.error,
    }


def comparison_json(compared: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON has it."""

    def interval(found: Interval | None) -> dict[str, Any] | None:
        return None if found is None else msgspec.to_builtins(found)

    return {
        "first": compared.first.name,
        "second": compared.second.name,
        "verdict": compared.verdict,
        "sentence": compared.sentence,
        "score": interval(compared.score),
        "cost": interval(compared.cost),
        "seconds": interval(compared.seconds),
        "mcnemar_p": compared.p_value,
        "pairs_needed_for_5_points": compared.needed,
    }
