"""Trees as SVG: a collapsed, indented tree, in light and in dark.

Arrows behind the names lead from a task to those that needed it. Each has a lane of its own while
it passes others.
"""

import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from orchestrator.delegation.tree.exports.boxes import MAX_BOXES, Box, Chart, chart_of
from orchestrator.delegation.tree.exports.xml import escaped
from orchestrator.delegation.tree.safe_text import printable

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

LETTER: Final = 7.9
"""How wide a letter is at most, in the usual fonts of one width at 13 pixels."""
LINE: Final = 22
STEP: Final = 20
MARGIN: Final = 18
GAP: Final = 22
LANE: Final = 9
"""How far two arrows are apart that pass each other."""
HEAD: Final = 4
"""How large the head of an arrow is."""
STYLE: Final = """\
svg{--ground:#fff;--ink:#1f2328;--dim:#59636e;--line:#afb8c1;--ok:#1a7f37;--bad:#cf222e;\
--busy:#0969da;--wait:#9a6700}
@media (prefers-color-scheme:dark){svg{--ground:#0d1117;--ink:#e6edf3;--dim:#9198a1;\
--line:#4a525c;--ok:#3fb950;--bad:#f85149;--busy:#58a6ff;--wait:#d29922}}
.ground{fill:var(--ground)}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
fill:var(--ink);white-space:pre}
path{fill:none;stroke:var(--line);stroke-width:1.3}
.detached{stroke-dasharray:3 3}
.needs{stroke:var(--dim)}
.r{text-anchor:end}
.dim{fill:var(--dim)}.ok{fill:var(--ok)}.bad{fill:var(--bad)}.busy{fill:var(--busy)}\
.wait{fill:var(--wait)}"""


def svg(tree: "Tree", *, rows: int = MAX_BOXES, now: float | None = None) -> str:
    """Return a picture of a tree.

    Dashed lines lead to detached tasks, arrows from a task to those that needed it.
    """
    return "\n".join(_Picture(chart_of(tree, rows=rows, now=now)).lines())


class _Picture:
    """The layout of a chart."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.cells = [_cells(box) for box in chart.boxes]
        self.name_ends = [_name_end(box) for box in chart.boxes]
        self.arrows = _lanes(chart)
        lanes = max((lane for *_, lane in self.arrows), default=-1) + 1
        self.lanes_at = max(self.name_ends) + LANE
        self.places = [max(self.name_ends) + LANE * lanes + GAP]
        for column in range(1, 5):
            widest = max(_width(cells[column]) for cells in self.cells)
            self.places.append(self.places[-1] + widest + GAP * bool(widest))
        widest = max(_width(cells[5]) for cells in self.cells)
        footer = MARGIN + _width(chart.footer)
        self.width = round(max(self.places[-1] + widest, footer) + MARGIN)
        self.height = 2 * MARGIN + LINE * (len(chart.boxes) + bool(chart.footer))

    def lines(self) -> Iterator[str]:
        label = escaped(f"{self.chart.boxes[0].title}: the tree of a run")
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}"'
            f' height="{self.height}" viewBox="0 0 {self.width} {self.height}" role="img"'
            f' aria-label="{label}">'
        )
        yield f"<title>{label}</title>"
        yield f"<style>{STYLE}</style>"
        yield f'<rect class="ground" width="{self.width}" height="{self.height}"/>'
        # Each line continues at the end of the one before it, so that no line is drawn twice.
        last: dict[str | None, float] = {}
        for number, box in enumerate(self.chart.boxes):
            last[box.name] = _middle(number) + 9
            if box.above is not None:
                yield _branch(box, last[box.above], number)
                last[box.above] = _middle(number)
        for need, dependent, lane in self.arrows:
            yield self.arrow(need, dependent, lane)
        for number, box in enumerate(self.chart.boxes):
            yield from self.row(box, number)
        if self.chart.footer:
            yield _text(MARGIN, len(self.chart.boxes), self.chart.footer, "dim")
        yield "</svg>"

    def arrow(self, need: int, dependent: int, lane: int) -> str:
        """Return the arrow from the end of one name, along its lane, to the end of another."""
        x = self.lanes_at + lane * LANE
        begin, end = self.name_ends[need] + 3, self.name_ends[dependent] + 3
        y = _middle(dependent)
        head = f"m{HEAD:g} {-HEAD:g}l{-HEAD:g} {HEAD:g}l{HEAD:g} {HEAD:g}"
        return f'<path class="needs" d="M{begin:g} {_middle(need):g}H{x:g}V{y:g}H{end:g}{head}"/>'

    def row(self, box: Box, number: int) -> Iterator[str]:
        left = MARGIN + box.row.depth * STEP
        if box.glyph:
            yield _text(left, number, box.glyph, box.style_class or "dim")
        yield _text(left + _width("x ") * bool(box.glyph), number, box.title, "")
        status, *figures, about = self.cells[number][1:]
        yield _text(self.places[0], number, status, box.style_class or "dim")
        for place, figure in zip(self.places[2:], figures, strict=True):
            yield _text(place - GAP, number, figure, "r")
        yield _text(self.places[4], number, about, "dim")


def _name_end(box: Box) -> float:
    return MARGIN + box.row.depth * STEP + _width(f"{box.glyph} {box.title}")


def _lanes(chart: Chart) -> list[tuple[int, int, int]]:
    """Return the arrows as two rows and a lane each, without overlaps."""
    numbers = {box.name: number for number, box in enumerate(chart.boxes)}
    arrows = [(numbers[need], numbers[name]) for need, name in chart.needs]
    lanes: list[int] = []
    """The last row of each lane that is taken."""
    placed: list[tuple[int, int, int]] = []
    for need, dependent in sorted(arrows, key=lambda it: (min(it), max(it))):
        first, last = sorted((need, dependent))
        free = (at for at, taken in enumerate(lanes) if taken < first)
        lane = next(free, len(lanes))
        lanes[lane : lane + 1] = [last]
        placed.append((need, dependent, lane))
    return placed


def _cells(box: Box) -> list[str]:
    about = " · ".join(filter(None, (box.collapsed, box.about if box.status else "")))
    return [
        box.title,
        box.status or box.about,
        "" if box.seconds is None else f"{box.seconds:,.1f} s",
        f"{box.tokens} tok",
        box.money,
        about,
    ]


def _middle(number: int) -> float:
    return MARGIN + LINE * number + LINE / 2


def _branch(box: Box, top: float, number: int) -> str:
    x = MARGIN + (box.row.depth - 1) * STEP + LETTER / 2
    y = _middle(number)
    kind = ' class="detached"' if box.is_detached else ""
    return f'<path{kind} d="M{x:g} {top:g}V{y:g}h{STEP - LETTER:g}"/>'


def _text(x: float, number: int, words: str, kind: str) -> str:
    if not words:
        return ""
    named = f' class="{kind}"' if kind else ""
    words = escaped(printable(words))
    return f'<text x="{x:g}" y="{_middle(number) + 4.5:g}"{named}>{words}</text>'


def _width(words: str) -> float:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in words)
    return LETTER * (len(words) + wide)
