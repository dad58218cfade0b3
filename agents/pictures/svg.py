"""Diagrams as SVG, in light and in dark.

The same picture has the limits of each agent before a run, and its tasks by status during a run.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

import attrs

from orchestrator.agents.agent import Agent
from orchestrator.agents.pictures.diagram import Diagram, boxes_of, diagram_of
from orchestrator.agents.pictures.layout import (
    BAR,
    BOLD,
    LINE,
    MONO,
    PAD,
    SANS,
    STACK,
    Arrow,
    PlacedBox,
    PlacedFrame,
    layout,
    text_width,
)

MARGIN: Final = 18
TITLE: Final = 34
LEGEND: Final = 36
TIP: Final = 7
"""How large the head of an arrow is."""
STYLE: Final = """\
svg{--paper:#fff;--soft:#f6f8fa;--card:#fff;--ink:#1b2430;--quiet:#57616e;--line:#cfd6de;\
--arrow:#6b7683;--type:#7438ab;--wait:#855600;--done:#18743a;--failed:#c0271e;--busy:#0a5fd1;\
--track:#e2e7ec}
@media (prefers-color-scheme:dark){svg{--paper:#0d1219;--soft:#141b24;--card:#17202b;--ink:#e3e9f0;\
--quiet:#98a4b1;--line:#323d4a;--arrow:#7b8794;--type:#c9a0f2;--wait:#e5b544;--done:#55c383;\
--failed:#ff8077;--busy:#74b4ff;--track:#27313d}}
text{font:12.5px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;\
fill:var(--ink);white-space:pre}
.paper{fill:var(--paper)}.frame{fill:var(--soft);stroke:var(--line)}
.card{fill:var(--card);stroke:var(--line)}.other{stroke-dasharray:4 3}
.name{font-size:15px;font-weight:650}.quiet{fill:var(--quiet)}.end{text-anchor:end}
.middle{text-anchor:middle}.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,\
'DejaVu Sans Mono',monospace}.strong{font-weight:650}
.type{fill:var(--type)}.wait{fill:var(--wait)}.done{fill:var(--done)}.failed{fill:var(--failed)}
.busy{fill:var(--busy)}.track{fill:var(--track)}
path{fill:none;stroke:var(--arrow);stroke-width:1.4}.dashed{stroke-dasharray:6 5}
.tip,.dot{fill:var(--arrow);stroke:none}.rule{stroke:var(--line);stroke-width:1}"""


@attrs.frozen(kw_only=True)
class Counts:
    """The tasks of one agent in a run, by status."""

    total: int = 0
    done: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0


def svg(agent: Agent[Any, Any], counts: Mapping[str, Counts] | None = None) -> str:
    """Return the picture of an agent.

    Args:
        agent: the agent, or a pipeline.
        counts: the tasks of a run, by the names of their agents; None is before a run.
    """
    diagram = diagram_of(agent)
    return "\n".join(_lines(diagram, counts))


def _lines(diagram: Diagram, counts: Mapping[str, Counts] | None) -> Iterator[str]:
    piece = layout(diagram)
    legend = _legend(diagram)
    head = text_width(f"{diagram.name} = {diagram.program}", MONO) + text_width(
        diagram.limits, SANS
    )
    width = round(max(piece.width + 12, head + 40, _legend_width(legend)) + 2 * MARGIN)
    height = round(piece.height + 2 * MARGIN + TITLE + LEGEND + 8)
    label = _text_of(_description(diagram))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    )
    yield f"<title>{label}</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="paper" width="{width}" height="{height}" rx="12"/>'
    program = f" = {diagram.program}" if diagram.program else ""
    yield (
        f'<text class="code" x="{MARGIN}" y="{MARGIN + 12}"><tspan class="strong">'
        f"{_text_of(diagram.name)}</tspan>{_text_of(program)}</text>"
    )
    yield _text(width - MARGIN, MARGIN + 12, diagram.limits, "quiet end")
    x, y = MARGIN, MARGIN + TITLE
    placed = piece.moved(x + 6, y)
    yield from (_frame(it) for it in placed if isinstance(it, PlacedFrame))
    yield from (_arrow(it) for it in placed if isinstance(it, Arrow))
    yield f'<circle class="dot" cx="{x + 6}" cy="{y + piece.port:g}" r="4.5"/>'
    for it in placed:
        if isinstance(it, PlacedBox):
            yield from _box(it, None if counts is None else counts.get(it.box.agent, Counts()))
    yield from _drawn_legend(legend, MARGIN, height - MARGIN)
    yield "</svg>"


def _box(placed: PlacedBox, counts: Counts | None) -> Iterator[str]:
    box = placed.box
    x, y, width, height = placed.x, placed.y, placed.width, placed.height
    # The name is an attribute: the console finds the box by it.
    yield f'<g data-agent="{_text_of(box.agent)}">'
    if box.is_stacked:
        for step in (2 * STACK, STACK):
            yield _card(x + step, y + step, width, height, "card")
    yield _card(x, y, width, height, "card other" if box.is_reference else "card")
    left, line = x + PAD, y + PAD + 15
    label = text_width(box.label, SANS)
    yield _text(left, line, _cut(box.agent, width - 2 * PAD - label, BOLD), "name")
    yield _text(x + width - PAD, line, box.label, "quiet end")
    line += 3
    if box.model:
        line += LINE
        yield _text(left, line, _cut(box.model, width - 2 * PAD, SANS), "quiet")
    if box.tools:
        line += LINE
        yield _tools(left, line, _cut(box.tools, width - 2 * PAD, MONO))
    if counts is not None and not box.is_reference:
        yield from _counts(placed, counts)
    elif box.limits:
        line += 8
        yield f'<path class="rule" d="M{left:g} {line + 0.5:g}h{width - 2 * PAD:g}"/>'
        for limit in box.limits:
            line += LINE
            yield _text(left, line - 2, _cut(limit, width - 2 * PAD, SANS), "quiet")
    yield "</g>"


def _counts(placed: PlacedBox, counts: Counts) -> Iterator[str]:
    """Yield the counts of an agent and their bar, at the bottom of its box."""
    left, width = placed.x + PAD, placed.width - 2 * PAD
    bottom = placed.y + placed.height - PAD / 2
    if not counts.total:
        yield _text(left, bottom - BAR - 4, "not started", "quiet")
    else:
        parts = [f'<tspan class="strong">{counts.done}/{counts.total}</tspan>']
        for number, glyph, kind in (
            (counts.failed, "✗", "failed"),
            (counts.waiting, "!", "wait"),
            (counts.running, "◐", "busy"),
        ):
            if number:
                parts.append(f' <tspan class="{kind} strong">{glyph}{number}</tspan>')
        yield f'<text x="{left:g}" y="{bottom - BAR - 4:g}">{"".join(parts)}</text>'
    yield _bar(left, bottom, width, "track")
    x = left
    for number, kind in (
        (counts.done, "done"),
        (counts.failed, "failed"),
        (counts.waiting, "wait"),
        (counts.running, "busy"),
    ):
        if number:
            part = width * number / counts.total
            yield _bar(x, bottom, part, kind)
            x += part


def _bar(x: float, bottom: float, width: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{bottom - BAR:g}" width="{width:.4g}" height="{BAR}"/>'
    )


def _frame(frame: PlacedFrame) -> str:
    top = frame.y + 21
    return (
        _card(frame.x, frame.y, frame.width, frame.height, "frame")
        + _text(frame.x + PAD, top, frame.title, "code strong")
        + _text(frame.x + frame.width - PAD, top, frame.note, "quiet end")
    )


def _arrow(arrow: Arrow) -> str:
    (x, y), *others = arrow.points
    line = f"M{x:g} {y:g}" + "".join(f"L{px:g} {py:g}" for px, py in others)
    (from_x, from_y), (to_x, to_y) = arrow.points[-2:]
    dx = (to_x > from_x) - (to_x < from_x)
    dy = (to_y > from_y) - (to_y < from_y)
    back_x, back_y = to_x - dx * TIP, to_y - dy * TIP
    tip = (
        f"M{to_x:g} {to_y:g}L{back_x + dy * TIP / 2:g} {back_y + dx * TIP / 2:g}"
        f"L{back_x - dy * TIP / 2:g} {back_y - dx * TIP / 2:g}Z"
    )
    anchor = "" if arrow.anchor == "start" else f" {arrow.anchor}"
    kind = ("code type" if arrow.is_type else "quiet") + anchor
    return (
        f'<path{" class=" + chr(34) + "dashed" + chr(34) if arrow.is_dashed else ""} d="{line}"/>'
        f'<path class="tip" d="{tip}"/>' + _text(*arrow.label_at, arrow.label, kind)
    )


def _legend(diagram: Diagram) -> list[str]:
    boxes = list(boxes_of(diagram.body))
    entries = ["passes its output to"]
    if any(box.delegates for box in boxes):
        entries.append("delegates")
    if any(box.is_stacked for box in boxes):
        entries.append("many at once")
    if any(box.asks for box in boxes):
        entries.append("asks a person")
    if any(box.is_reference for box in boxes):
        entries.append("drawn elsewhere")
    return entries


def _legend_width(entries: list[str]) -> float:
    return sum(text_width(entry, SANS) + 62 for entry in entries)


def _drawn_legend(entries: list[str], x: float, y: float) -> Iterator[str]:
    middle = y - 4
    for entry in entries:
        match entry:
            case "many at once":
                yield _card(x + 8, middle - 4, 18, 10, "card") + _card(
                    x + 4, middle - 7, 18, 10, "card"
                )
            case "asks a person":
                yield _text(x + 14, y, "!", "wait strong")
            case "drawn elsewhere":
                yield _card(x + 4, middle - 6, 20, 12, "card other")
            case _:
                points = ((x, middle), (x + 26, middle))
                yield _arrow(Arrow(points, is_dashed=entry == "delegates"))
        yield _text(x + 36, y, entry, "quiet")
        x += text_width(entry, SANS) + 62


def _tools(x: float, y: float, words: str) -> str:
    # The mark of a tool whose calls a person approves.
    marked = _text_of(words).replace(" !", ' <tspan class="wait strong">!</tspan>')
    return f'<text class="quiet code" x="{x:g}" y="{y:g}">{marked}</text>'


def _card(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>'
    )


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{_text_of(words)}</text>' if words else ""


def _text_of(words: str) -> str:
    """Return words that a browser only shows, also in an attribute."""
    return escape("".join(it if it.isprintable() else "\ufffd" for it in words))


def _cut(words: str, width: float, letter: float) -> str:
    if text_width(words, letter) <= width + 1:
        return words
    return words[: max(1, int(width / letter) - 1)] + "…"


def _description(diagram: Diagram) -> str:
    names = dict.fromkeys(box.agent for box in boxes_of(diagram.body) if not box.is_reference)
    written = f" = {diagram.program}" if diagram.program else ""
    return f"{diagram.name}{written}. Agents: {', '.join(names)}."
