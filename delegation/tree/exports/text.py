"""Collapsed trees as lines of text."""

from typing import TYPE_CHECKING

from orchestrator.delegation.task import Mode
from orchestrator.delegation.tree.exports.boxes import chart_of
from orchestrator.delegation.tree.rows import aligned

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


def collapsed_text(tree: "Tree", *, rows: int, now: float | None = None) -> str:
    """Return a tree in `rows` lines, and one more about the hidden tasks."""
    chart = chart_of(tree, rows=rows, now=now)
    lines = aligned(
        (
            box.row.branch + box.title,
            f"{box.glyph} {box.status}" if box.status else "",
            "" if box.mode == Mode.ROOT else box.mode,
            "" if box.seconds is None else f"{box.seconds:.1f} s",
            f"{box.tokens} tok",
            box.money,
            " · ".join(filter(None, (box.collapsed, box.about))),
        )
        for box in chart.boxes
    )
    return f"{lines}\n{chart.footer}" if chart.footer else lines
