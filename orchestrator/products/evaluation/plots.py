"""The plots of an evaluation as SVG: differences, distributions, and scores against costs."""

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from orchestrator.delegation import printable
from orchestrator.products.evaluation.statistics import Interval, paired_interval
from orchestrator.products.evaluation.summary import VersionSummary

_WIDTH: Final = 420
_HEIGHT: Final = 240
_COLOURS: Final = {"better": "var(--good)", "worse": "var(--bad)"}


def difference_plot(interval: Interval, verdict: str) -> str:
    """Return the interval of a difference on a line with zero."""
    widest = max(abs(interval.low), abs(interval.high), 0.05) * 1.1

    def x(value: float) -> float:
        return _WIDTH / 2 + value / widest * (_WIDTH / 2 - 10)

    colour = _COLOURS.get(verdict, "var(--quiet)")
    low, high = x(interval.low), x(interval.high)
    label = f"difference {interval.value:+.2f}, from {interval.low:+.2f} to {interval.high:+.2f}"
    return (
        f'<svg width="{_WIDTH}" height="34" role="img" aria-label="{label}">'
        f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="22" stroke="var(--quiet)"'
        ' stroke-dasharray="2 2"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="11" y2="11" stroke="{colour}" stroke-width="3"/>'
        f'<circle cx="{x(interval.value):.1f}" cy="11" r="5" fill="{colour}"/>'
        f'<text x="{x(0):.1f}" y="33" text-anchor="middle">0</text></svg>'
    )


class Bars(msgspec.Struct, frozen=True):
    """How many cases have each score, in ten bars from the lowest to the highest."""

    low: float
    high: float
    counts: list[int]


def bars_of(version: VersionSummary) -> Bars | None:
    """Return the distribution of scores; None without scores."""
    values = _values(version, "score")
    if not values:
        return None
    low, high = min(0.0, *values), max(1.0, *values)
    counts = [0] * 10
    for value in values:
        counts[min(9, int((value - low) / (high - low) * 10))] += 1
    return Bars(low, high, counts)


def distribution(version: VersionSummary) -> str:
    """Return the distribution of scores as a drawing."""
    bars = bars_of(version)
    if bars is None:
        return "<p>No scores.</p>"
    most, low, high = max(bars.counts), bars.low, bars.high
    drawn = "".join(
        f'<rect x="{number * 30}" y="{50 - 46 * count / most:.1f}" width="26"'
        f' height="{46 * count / most:.1f}" fill="var(--bar)"><title>{count} cases</title></rect>'
        for number, count in enumerate(bars.counts)
    )
    return (
        f'<svg width="300" height="68" role="img" aria-label="{sum(bars.counts)} scores">{drawn}'
        f'<text x="0" y="64">{low:.1f}</text><text x="298" y="64" text-anchor="end">{high:.1f}'
        "</text></svg>"
    )


def point_of(version: VersionSummary) -> tuple[float, Interval] | None:
    """Return the mean cost of a case, and the mean score with 95 %; None without both."""
    cost, scores = version.mean("cost"), _values(version, "score")
    if cost is None or not scores:
        return None
    return cost, paired_interval([(0.0, it) for it in scores])


def cost_plot(versions: Sequence[VersionSummary], names: Sequence[str]) -> str:
    """Return the versions as points, with 95 % of the mean score, and the Pareto front."""
    points = [
        (*found, escape(printable(name), quote=True))
        for version, name in zip(versions, names, strict=True)
        if (found := point_of(version)) is not None
    ]
    if not points:
        return "<p>No version has a price.</p>"
    widest = max(cost for cost, _, _ in points) * 1.25 or 1.0
    low = min(0.0, *(it.low for _, it, _ in points))
    high = max(1.0, *(it.high for _, it, _ in points))

    def x(cost: float) -> float:
        return 40 + cost / widest * (_WIDTH - 50)

    def y(score: float) -> float:
        return 24 + (high - score) / (high - low) * (_HEIGHT - 50)

    parts: list[str] = []
    for step in range(5):
        score = low + (high - low) * step / 4
        parts.append(
            f'<line x1="40" x2="{_WIDTH}" y1="{y(score):.1f}" y2="{y(score):.1f}"'
            f' stroke="var(--hair)"/><text x="34" y="{y(score) + 4:.1f}" text-anchor="end">'
            f"{score:.2f}</text>"
        )
    front = pareto_front([(cost, mean.value) for cost, mean, _ in points])
    path = f"M {x(front[0][0]):.1f} {y(low):.1f}" + "".join(
        f" V {y(score):.1f} H {x(after):.1f}"
        for (_, score), after in zip(front, [*(it[0] for it in front[1:]), widest], strict=True)
    )
    parts.append(
        f'<path d="{path}" fill="none" stroke="var(--accent)" stroke-dasharray="5 4"/>'
        f'<text x="{_WIDTH}" y="{y(front[-1][1]) - 6:.1f}" text-anchor="end">Pareto front</text>'
    )
    for cost, mean, name in points:
        parts.append(
            f'<line x1="{x(cost):.1f}" x2="{x(cost):.1f}" y1="{y(mean.low):.1f}"'
            f' y2="{y(mean.high):.1f}" stroke="var(--ink)"/>'
            f'<circle cx="{x(cost):.1f}" cy="{y(mean.value):.1f}" r="5" fill="var(--accent)"/>'
            f'<text class="ink" x="{x(cost) - 9:.1f}" y="{y(mean.value) + 4:.1f}"'
            f' text-anchor="end">{name}</text>'
        )
    parts.append(
        f'<text x="40" y="{_HEIGHT - 6}">$0</text><text x="{_WIDTH}" y="{_HEIGHT - 6}"'
        f' text-anchor="end">${widest:.{4 if widest >= 0.001 else 6}f} a case</text>'
    )
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    return f'<svg {size} role="img" aria-label="score against cost">{"".join(parts)}</svg>'


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one beats in cost and score, the cheapest first."""
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda it: (it[0], -it[1])):
        if not front or score > front[-1][1]:
            front.append((cost, score))
    return front


def _values(version: VersionSummary, measure: str) -> list[float]:
    means = (it.mean(measure, version.score) for it in version.cases.values())
    return [it for it in means if it is not None]
