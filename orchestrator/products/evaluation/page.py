"""The page of an evaluation: one HTML file with its sentences, cases, plots and trees.

The page has no script and fetches nothing. Every text of a model is escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import islice, pairwise
from typing import Final

import msgspec

from orchestrator.delegation import Tree, printable
from orchestrator.products.evaluation.plots import cost_plot, difference_plot, distribution
from orchestrator.products.evaluation.recorded import Trial
from orchestrator.products.evaluation.report import (
    LOAD_HEADS,
    EvaluationReport,
    format_measure,
    load_cells,
    ordered_cases,
)
from orchestrator.products.evaluation.summary import CaseSummary, VersionSummary
from orchestrator.products.viewer import html_page

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_ROWS: Final = 60
"""The most tasks of a tree on the page."""
_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--soft:#f6f8fa;--ink:#1b2430;--quiet:#57616e;
--line:#cfd6de;--hair:#e9edf1;--track:#e2e7ec;--bar:#9aa5b1;--accent:#0a5fd1;--good:#18743a;
--bad:#c0271e;--tint:#eef5fe}
@media(prefers-color-scheme:dark){:root{--paper:#0d1219;--soft:#141b24;--ink:#e3e9f0;
--quiet:#98a4b1;--line:#323d4a;--hair:#1d2631;--track:#27313d;--bar:#697581;--accent:#74b4ff;
--good:#55c383;--bad:#ff8077;--tint:#121e2e}}
body{margin:0;padding:24px;background:var(--paper);color:var(--ink);
font:13px/1.45 system-ui,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:20px;margin:0}h2{font-size:15px;margin:24px 0 8px}p{margin:4px 0}
.quiet{color:var(--quiet)}.good{color:var(--good)}.bad{color:var(--bad)}
.card{border:1px solid var(--line);border-radius:8px;background:var(--soft);padding:12px 16px;
margin:12px 0}.card p:first-child{font-size:15px;font-weight:650}
.scroll{overflow-x:auto}table{border-collapse:collapse}
th{color:var(--quiet);font-weight:400;text-align:right;padding:2px 12px 2px 0}
td{border-top:1px solid var(--hair);padding:4px 12px 4px 0;text-align:right;white-space:nowrap}
th.name,td.name{text-align:left}tr.mean td{font-weight:650;border-top:1px solid var(--line)}
.plots{display:flex;flex-wrap:wrap;gap:24px}svg text{fill:var(--quiet);font-size:11.5px}
svg .ink{fill:var(--ink);font-weight:650}summary{cursor:pointer;padding:4px 0}
.trees{display:flex;flex-wrap:wrap;gap:12px}.tree{border:1px solid var(--line);border-radius:8px;
padding:8px 12px;flex:1 1 320px;min-width:0}.tree td{border:0;padding:1px 10px 1px 0}
.tree td.name{white-space:pre}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0 0;font:12px/1.5 monospace}
"""


def page_of(report: EvaluationReport) -> str:
    """Return the page of an evaluation."""
    title = printable(f"{report.name} · evaluation")
    return html_page(title, "\n".join(_body(report)), style=_STYLE)


def _body(report: EvaluationReport) -> Iterator[str]:
    versions = report.all_versions
    cases = ordered_cases(report)
    budget = "" if report.usd is None else f" of ${report.usd:.2f}"
    yield f"<h1>{_text(report.name)}</h1>"
    yield (
        f'<p class="quiet">{len(cases):,} cases · score: {_text(report.score)} · paid'
        f" ${report.paid:.4f}{budget}</p>"
    )
    names = {id(it): f"{letter} {it.name}" for letter, it in zip(_LETTERS, versions, strict=False)}
    for compared in report.comparisons:
        letter = names.get(id(compared.second), "")[:1]
        yield f'<div class="card"><p>{letter} {_text(compared.sentence)}</p>'
        if compared.score is not None:
            yield difference_plot(compared.score, compared.verdict)
        yield "</div>"
    for check in report.checks:
        glyph, kind = ("✓", "good") if check.passes else ("✗", "bad")
        yield f'<p class="{kind}">{glyph} {_text(check.sentence)}</p>'
    if report.note:
        yield f'<p class="bad">Not all runs were made: {_text(report.note)}</p>'
    yield '<div class="plots"><div><h2>Score against cost</h2>'
    yield cost_plot(versions, [names.get(id(it), it.name)[:1] for it in versions])
    yield "</div><div><h2>Distribution of scores</h2>"
    for version in versions:
        yield f"<p>{_text(names.get(id(version), version.name))}</p>{distribution(version)}"
    yield "</div></div>"
    if report.loads:
        yield f'<h2>Under load</h2><p class="quiet">{_text(report.load_assumption)}</p>'
        yield '<div class="scroll"><table><tr><th class="name">version</th>'
        yield "".join(f"<th>{it}</th>" for it in LOAD_HEADS) + "</tr>"
        for it in report.loads:
            cells = "".join(f"<td>{cell}</td>" for cell in load_cells(it))
            yield f'<tr><td class="name">{_text(it.version)}</td>{cells}</tr>'
        yield "</table></div>"
    yield "<h2>Cases</h2>"
    yield from _matrix(report, versions, list(names.values()))
    yield "<h2>Runs</h2>"
    for key, name in cases.items():
        yield from _case(key, name, versions, report.score)


def _matrix(
    report: EvaluationReport, versions: Sequence[VersionSummary], names: Sequence[str]
) -> Iterator[str]:
    cases = ordered_cases(report)
    yield '<div class="scroll"><table><tr><th class="name">case</th>'
    yield from (f'<th colspan="4">{_text(name)}</th>' for name in names)
    yield '</tr><tr><th class="name"></th>'
    yield "<th></th><th>score</th><th>cost</th><th>seconds</th>" * len(names) + "</tr>"
    same = 0
    for key, name in cases.items():
        scores = [_score(it, key) for it in versions]
        if len(versions) > 1 and None not in scores and all(a == b for a, b in pairwise(scores)):
            same += 1
        cells = "".join(_cells(it.cases.get(key), report.score, scores[0]) for it in versions)
        yield f'<tr><td class="name">{_text(name)}</td>{cells}</tr>'
    means = "".join(_mean_cells(it) for it in versions)
    yield f'<tr class="mean"><td class="name">mean of {len(cases):,}</td>{means}</tr></table></div>'
    if same:
        yield f'<p class="quiet">{same:,} cases have the same score in all versions.</p>'


def _score(version: VersionSummary, key: str) -> float | None:
    case = version.cases.get(key)
    return None if case is None or case.errors else case.mean("score", version.score)


def _cells(case: CaseSummary | None, score: str, first: float | None) -> str:
    if case is None:
        return "<td></td>" * 4
    value = case.mean("score", score)
    bar, change = "", ""
    if case.errors:
        change = '<span class="bad">✗ error</span> '
    elif value is not None:
        width = 40 * min(max(value, 0.0), 1.0)
        bar = (
            '<svg width="40" height="8"><rect width="40" height="8" rx="4" fill="var(--track)"/>'
            f'<rect width="{width:.1f}" height="8" rx="4" fill="var(--bar)"/></svg>'
        )
        if first is not None and value != first:
            glyph, kind = ("▲", "good") if value > first else ("▼", "bad")
            change = f'<span class="{kind}">{glyph} {abs(value - first):.2f}</span> '
    cells = (format_measure(it, case.mean(it, score)) for it in ("score", "cost", "seconds"))
    shown, cost, seconds = cells
    return f"<td>{bar}</td><td>{change}{shown}</td><td>{cost}</td><td>{seconds}</td>"


def _mean_cells(version: VersionSummary) -> str:
    cells = (format_measure(it, version.mean(it)) for it in ("score", "cost", "seconds"))
    return "<td></td>" + "".join(f"<td>{it}</td>" for it in cells)


def _case(key: str, name: str, versions: Sequence[VersionSummary], score: str) -> Iterator[str]:
    yield f'<details><summary>{_text(name)}</summary><div class="trees">'
    for version in versions:
        case = version.cases.get(key)
        if case is not None:
            yield from _tree(version.name, case.trials[0], score)
    yield "</div></details>"


class TreeRow(msgspec.Struct, frozen=True):
    """A task of a tree on a page."""

    name: str
    """Its lines to the tasks above it, its status and its name."""
    seconds: float | None
    cost: float | None
    """The dollars of the task and all below it; None if a price is not known."""
    kept: bool
    """Whether a fork has it from another run."""


def tree_rows(tree: Tree) -> list[TreeRow]:
    """Return the first tasks of a tree, each parent before its children."""
    found: list[TreeRow] = []
    for row in islice(tree.rows(), MOST_ROWS):
        node = tree[row.task]
        cost = None if node.total.unpriced else node.total.usd
        name = f"{row.branch}{row.glyph} {row.name}"
        found.append(TreeRow(name, node.seconds(), cost, node.kept))
    return found


def _tree(version: str, trial: Trial, score: str) -> Iterator[str]:
    found = trial.scores.get(score)
    shown = "✗" if found is None or trial.error else f"{found.value:.2f}"
    run = f'<span class="quiet">{trial.run}</span>'
    yield f'<div class="tree"><b>{_text(version)}</b> {shown} {run}'
    yield '<div class="scroll"><table>'
    for row in tree_rows(trial.result.tree):
        seconds = format_measure("seconds", row.seconds)
        cost = "kept" if row.kept else format_measure("cost", row.cost)
        kind = "name quiet" if row.kept else "name"
        yield f'<tr><td class="{kind}">{_text(row.name)}</td><td>{seconds}</td><td>{cost}</td></tr>'
    if (more := len(trial.result.tree) - MOST_ROWS) > 0:
        yield f'<tr><td class="name quiet">… {more:,} more</td></tr>'
    yield f"</table></div><pre>{_text(trial.error or trial.result.answer)}</pre>"
    for name, it in trial.scores.items():
        if it.reason:
            yield f'<p class="quiet">{_text(name)}: {_text(it.reason)}</p>'
    yield "</div>"


def _text(text: object) -> str:
    return escape(printable(str(text)))
