"""The report of an evaluation in a terminal: sentences first, then the changed cases."""

from typing import Final

from rich.console import Console
from rich.text import Text

from orchestrator.cli.terminal.console import print_table, print_text
from orchestrator.delegation import one_line
from orchestrator.products.evaluation.report import (
    LOAD_HEADS,
    EvaluationReport,
    format_measure,
    load_cells,
)
from orchestrator.products.evaluation.summary import (
    MEASURES,
    CaseChange,
    CaseSummary,
    VersionSummary,
)

SHOWN: Final = 40
"""The most cases of a table: --json has all."""


def print_report(report: EvaluationReport, console: Console) -> None:
    """Print the differences, the cases and the checks of an evaluation."""
    for compared in report.comparisons:
        print_text(console, Text(compared.sentence, style="bold"))
        if (p := compared.p_value) is not None and compared.passed is not None:
            lost, won = compared.passed
            words = f"{won} cases pass that failed before, {lost} fail that passed"
            print_text(console, Text(f"{words} (McNemar's exact test: p = {p:.3f})."))
        _print_cases(report, compared.second, list(compared.changes), console)
    if not report.comparisons:
        for version in report.versions:
            changes = [
                CaseChange(case=case, before=None, change=None)
                for case in sorted(version.cases.values(), key=lambda it: _order(it, report.score))
            ]
            _print_cases(report, version, changes, console)
    if report.loads:
        print_text(console, Text(f"Under load, {report.load_assumption}:", style="bold"))
        rows = [[one_line(it.version), *load_cells(it)] for it in report.loads]
        print_table(console, ["version", *LOAD_HEADS], rows)
        console.print()
    for result in report.checks:
        glyph, style = ("✓", "green") if result.passes else ("✗", "red")
        print_text(console, Text(f"{glyph} {result.sentence}", style=style))
    budget = "" if report.usd is None else f" of ${report.usd:.2f}"
    print_text(console, Text(f"paid ${report.paid:.4f}{budget}", style="dim"))
    if report.note:
        print_text(
            console, Text(f"Not all runs were made: {one_line(report.note)}", style="yellow")
        )


def _print_cases(
    report: EvaluationReport, version: VersionSummary, changes: list[CaseChange], console: Console
) -> None:
    base = report.baseline
    headings = ["case", report.score, *MEASURES[1:], *(() if base is None else ("baseline", "±"))]
    rows = [_row(report.score, it, has_base=base is not None) for it in changes[:SHOWN]]
    mean = [f"mean of {len(version.cases):,}"]
    mean += [format_measure(it, version.mean(it)) for it in MEASURES]
    if base is not None:
        mean += [format_measure("score", base.mean("score")), ""]
    console.print()
    print_table(console, headings, [*rows, mean])
    if len(changes) > SHOWN:
        print_text(console, Text(f"… {len(changes) - SHOWN:,} more cases: --json", style="dim"))
    for case in version.cases.values():
        for trial in case.trials:
            if trial.error:
                line = f"✗ {one_line(case.name)}: {one_line(trial.error)} ({trial.run})"
                print_text(console, Text(line, style="red"))
    console.print()


def _row(score: str, change: CaseChange, *, has_base: bool) -> list[str | Text]:
    case = change.case
    means = [format_measure(it, case.mean(it, score)) for it in MEASURES]
    row: list[str | Text] = [one_line(case.name), *means]
    if has_base:
        before = None if change.before is None else change.before.mean("score", score)
        row.append("new" if change.before is None else format_measure("score", before))
        row.append(_change_text(change.change))
    return row


def _change_text(change: float | None) -> Text:
    if change is None:
        return Text("")
    if not change:
        return Text("=", style="dim")
    glyph, style = ("▲", "green") if change > 0 else ("▼", "red")
    return Text(f"{glyph} {abs(change):.2f}", style=style)


def _order(case: CaseSummary, score: str) -> float:
    value = case.mean("score", score)
    return -1.0 if case.errors or value is None else value
