"""Trees as Mermaid flowcharts, as many Markdown viewers draw them."""

import re
from typing import TYPE_CHECKING, Final

from orchestrator.agents.pictures.mermaid import escaped
from orchestrator.delegation.tree.exports.boxes import Box, chart_of

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


READABLE_BOXES: Final = 40
"""A Markdown viewer shrinks a chart to its page."""
STYLES: Final = {
    "ok": "stroke:#1a7f37,stroke-width:2px",
    "bad": "stroke:#cf222e,stroke-width:2px",
    "busy": "stroke:#0969da,stroke-width:2px",
    "wait": "stroke:#9a6700,stroke-width:2px",
}
PLAIN_NAME: Final = re.compile(r"[\w.,: ×-]+(\[[0-9]+\])?")


def mermaid(tree: "Tree", *, rows: int = READABLE_BOXES) -> str:
    """Return a flowchart: solid arrows to joined tasks, dotted ones to detached tasks, thick
    ones from a task to those that need it. The class of a box is its status.
    """
    chart = chart_of(tree, rows=rows)
    lines = ["flowchart LR"]
    for box in chart.boxes:
        style = f":::{box.style_class}" if box.style_class else ""
        lines.append(f'  {box.name}["{_label(box)}"]{style}')
        if box.above is not None:
            arrow = "-.->" if box.is_detached else "-->"
            lines.append(f"  {box.above} {arrow} {box.name}")
    lines += (f"  {need} ==> {name}" for need, name in chart.needs)
    if chart.footer:
        lines.append(f'  folded["{escaped(chart.footer)}"]')
    used = {box.style_class for box in chart.boxes}
    lines += (f"  classDef {name} {style}" for name, style in STYLES.items() if name in used)
    return "\n".join(lines)


def _label(box: Box) -> str:
    # A name of ours holds letters, digits, and a number in brackets. Others may hold anything.
    is_plain = PLAIN_NAME.fullmatch(box.title)
    name = box.title if is_plain else escaped(box.title)
    title = f"{box.glyph} {name}".strip()
    return "<br/>".join([title, *map(escaped, filter(None, (box.about, box.collapsed)))])
