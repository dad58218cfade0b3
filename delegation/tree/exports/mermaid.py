"""Trees as Mermaid flowcharts, as many Markdown viewers draw them."""

import re
from typing import TYPE_CHECKING, Final

from orchestrator.agents.pictures.mermaid import escaped
from orchestrator.delegation.tree.exports.boxes import MAX_BOXES, Box, chart_of

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


PLAIN_NAME: Final = re.compile(r"[\w.,: ×-]+(\[[0-9]+\])?")


def mermaid(tree: "Tree", *, rows: int = MAX_BOXES) -> str:
    """Return a flowchart: solid arrows to joined tasks, dotted ones to detached tasks, thick
    ones from a task to those that need it.
    """
    chart = chart_of(tree, rows=rows)
    lines = ["flowchart TD"]
    for box in chart.boxes:
        lines.append(f'  {box.name}["{_label(box)}"]')
        if box.above is not None:
            arrow = "-.->" if box.is_detached else "-->"
            lines.append(f"  {box.above} {arrow} {box.name}")
    lines += (f"  {need} ==> {name}" for need, name in chart.needs)
    if chart.footer:
        lines.append(f'  folded["{escaped(chart.footer)}"]')
    return "\n".join(lines)


def _label(box: Box) -> str:
    # A name of ours holds letters, digits, and a number in brackets. Others may hold anything.
    is_plain = PLAIN_NAME.fullmatch(box.title)
    name = box.title if is_plain else escaped(box.title)
    title = f"{box.glyph} {name}".strip()
    return "<br/>".join([title, *map(escaped, filter(None, (box.about, box.collapsed)))])
