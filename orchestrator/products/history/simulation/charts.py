"""Charts of a simulation: as characters for a terminal, and as SVG."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

import attrs

from orchestrator.products.history.simulation.one_run import SimulatedRun
from orchestrator.products.history.simulation.wait_chain import column_means

if TYPE_CHECKING:
    from orchestrator.products.history.simulation.statistics import Quantiles, SimulationReport

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
COLUMNS: Final = 60
ROWS: Final = 5
BINS: Final = 30
WIDTH: Final = 720
HEIGHT: Final = 180
MARGIN: Final = 50


@attrs.frozen(kw_only=True)
class Timeline:
    """The load over the time of one run."""

    seed: int
    seconds: float
    in_flight: Sequence[float]
    """The number of calls at a provider, in equal parts of the time."""
    queue_length: Sequence[float]
    """The number of tasks that waited for a slot."""

    @classmethod
    def of(cls, run: SimulatedRun) -> "Timeline":
        until = run.makespan
        return cls(
            seed=run.seed,
            seconds=until,
            in_flight=column_means(run.in_flight, until=until, columns=COLUMNS),
            queue_length=column_means(run.in_line, until=until, columns=COLUMNS),
        )


def text(report: "SimulationReport") -> str:
    """Return a report as lines of text, with a plot of its typical run."""
    timeline = report.typical
    seeds = report.settings.seeds
    lines = [
        f"{report.agent}: {seeds} simulated run{'s' * (seeds != 1)}",
        f"{'':<24}{'min':>12}{'p50':>12}{'p95':>12}{'max':>12}",
        _row("makespan", report.makespan, "{:,.1f} s"),
        _cost(report),
        _row("tokens", report.tokens, "{:,.0f}"),
        _row("model calls", report.calls, "{:,.0f}"),
        _row("tasks", report.tasks, "{:,.0f}"),
        _row("calls in flight, peak", report.peak, "{:,.0f}"),
        _row("calls in flight, mean", report.mean, "{:,.1f}"),
        _row("slots held, peak", report.places, "{:,.0f}"),
        "",
        f"runs        {_listed(report.runs)}",
        f"tasks       {_listed(report.endings)}",
        f"failures    {_listed(report.failures) or 'none'}",
        f"limited by  {report.sentence}",
    ]
    if report.unpriced:
        lines.append(f"price       unknown: {', '.join(report.unpriced)}")
    lines += [
        "",
        f"calls in flight, seed {timeline.seed} ({timeline.seconds:,.1f} s)",
        *_bars(timeline.in_flight),
    ]
    if any(timeline.queue_length):
        lines += ["tasks waiting for a slot", *_bars(timeline.queue_length)]
    if seeds > 1:
        bins = _bins(report)
        lines += [
            f"makespan of {seeds} runs ({report.makespan.min:,.1f} s to"
            f" {report.makespan.max:,.1f} s)",
            *_bars([count for count in bins for _ in range(COLUMNS // BINS)]),
        ]
    return "\n".join(line.rstrip() for line in lines)


def _row(name: str, found: "Quantiles", form: str) -> str:
    values = (found.min, found.p50, found.p95, found.max)
    return f"{name:<24}" + "".join(f"{form.format(it):>12}" for it in values)


def _cost(report: "SimulationReport") -> str:
    if report.cost is None:
        return f"{'cost':<24}{'unknown':>12}"
    if not report.cost.max and not report.unpriced:
        why = "scripted and local models cost nothing; --price assumes more"
        return f"{'cost':<24}{'$0':>12}  {why}"
    # Models without a known price are not included.
    return _row("cost", report.cost, "≥ ${:,.4f}" if report.unpriced else "${:,.4f}")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _bars(values: Sequence[float]) -> list[str]:
    """Return columns of blocks, with the number of the highest one."""
    top = max(values) or 1.0
    heights = [round(value / top * ROWS * 8) for value in values]
    # A value above zero is visible.
    heights = [height or int(value > 0) for height, value in zip(heights, values, strict=True)]
    lines: list[str] = []
    for row in reversed(range(ROWS)):
        blocks = (BLOCKS[min(8, max(0, height - row * 8))] for height in heights)
        lines.append(f"{f'{top:,.0f}' if row == ROWS - 1 else '':>8} ┤{''.join(blocks)}")
    return lines


def _bins(report: "SimulationReport") -> list[int]:
    low, high = report.makespan.min, report.makespan.max
    counts = [0] * BINS
    for seed in report.seeds:
        share = (seed.makespan - low) / (high - low) if high > low else 0
        counts[min(BINS - 1, int(share * BINS))] += 1
    return counts


def svg(report: "SimulationReport") -> str:
    """Return the same charts as an SVG file."""
    timeline = report.typical
    most = max([*timeline.in_flight, *timeline.queue_length, 1])
    title = f"{report.agent}: {report.settings.seeds} simulated runs"
    flight = f"calls in flight (filled) and waiting tasks, seed {timeline.seed}"
    parts = [
        _caption(20, title, size=16),
        _caption(40, f"limited by {report.sentence}"),
        _caption(70, flight),
        _area(80, timeline.in_flight, most),
        _line(80, timeline.queue_length, most),
        _axis(80, most, 0, timeline.seconds),
        _caption(330, "makespan of all runs"),
        _columns(340, _bins(report)),
        _axis(340, max(_bins(report)), report.makespan.min, report.makespan.max),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN}" height="580"'
        ' font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _caption(y: int, words: str, *, size: int = 12) -> str:
    return f'<text x="{MARGIN}" y="{y}" font-size="{size}">{escape(words)}</text>'


def _points(top: int, values: Sequence[float], most: float) -> list[str]:
    step = WIDTH / len(values)
    return [
        f"{MARGIN + step * (index + 0.5):.1f},{top + HEIGHT * (1 - value / most):.1f}"
        for index, value in enumerate(values)
    ]


def _area(top: int, values: Sequence[float], most: float) -> str:
    bottom = top + HEIGHT
    points = [f"{MARGIN},{bottom}", *_points(top, values, most), f"{MARGIN + WIDTH},{bottom}"]
    return f'<polygon points="{" ".join(points)}" fill="#9ecae1"/>'


def _line(top: int, values: Sequence[float], most: float) -> str:
    points = " ".join(_points(top, values, most))
    return f'<polyline points="{points}" fill="none" stroke="#d6604d"/>'


def _columns(top: int, counts: Sequence[int]) -> str:
    step, most = WIDTH / len(counts), max(counts)
    return "\n".join(
        f'<rect x="{MARGIN + step * index + 1:.1f}" width="{step - 2:.1f}"'
        f' y="{top + HEIGHT * (1 - count / most):.1f}"'
        f' height="{HEIGHT * count / most:.1f}" fill="#9ecae1"/>'
        for index, count in enumerate(counts)
    )


def _axis(top: int, most: float, begin: float, end: float) -> str:
    bottom, right = top + HEIGHT, MARGIN + WIDTH
    return "\n".join(
        [
            f'<path d="M{MARGIN},{top} V{bottom} H{right}" fill="none" stroke="black"/>',
            f'<text x="{MARGIN - 5}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
            f'<text x="{MARGIN}" y="{bottom + 15}">{begin:,.1f} s</text>',
            f'<text x="{right}" y="{bottom + 15}" text-anchor="end">{end:,.1f} s</text>',
        ]
    )
