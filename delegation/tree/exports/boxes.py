"""What all charts draw: the folded tree as boxes and arrows."""

from typing import TYPE_CHECKING, Final

import attrs

from delegation.notices import usd
from delegation.task import Mode, TaskId
from delegation.tree.collapse import CollapsedRow, RowKind, fold
from delegation.tree.glyphs import glyph
from delegation.tree.rows import one_line, seconds_of

if TYPE_CHECKING:
    from delegation.tree.tree import Tree

MAX_BOXES: Final = 120
"""More than this nobody can read, and the usual viewers refuse at 500 arrows."""


@attrs.frozen(kw_only=True)
class Box:
    """A task, or several of a kind."""

    name: str
    """What arrows call it."""
    above: str | None
    row: CollapsedRow
    title: str
    status: str
    """Empty if it is no single task."""
    mode: str
    seconds: float | None
    money: str
    about: str
    """What went wrong, else what it is about; of several, how they stand."""
    collapsed: str
    """What is below it and not drawn, in short."""

    @property
    def glyph(self) -> str:
        return glyph(self.status, self.mode) if self.status else ""

    @property
    def is_detached(self) -> bool:
        return self.mode == Mode.DETACHED


@attrs.frozen
class Chart:
    """A tree to be drawn."""

    boxes: list[Box]
    needs: list[tuple[str, str]]
    """From what has to succeed to what then starts."""
    footer: str
    """What is folded, in words; empty if nothing is."""


def chart_of(tree: "Tree", *, rows: int = MAX_BOXES, now: float | None = None) -> Chart:
    """Return a tree as boxes, no more than there may be."""
    folded = fold(tree, rows=rows)
    boxes: list[Box] = []
    line: list[str] = []
    drawn: dict[TaskId, str] = {}
    for number, row in enumerate(folded.rows):
        del line[row.depth :]
        box = _box(tree, row, f"n{number}", line[-1] if line else None, now)
        line.append(box.name)
        boxes.append(box)
        if row.kind is RowKind.TASK:
            drawn[row.task] = box.name
    needs = [
        (drawn[need], name)
        for task, name in drawn.items()
        for need in tree.needs(task)
        if need in drawn
    ]
    return Chart(boxes, needs, folded.footer)


def _box(
    tree: "Tree", row: CollapsedRow, name: str, above: str | None, now: float | None
) -> Box:
    if row.kind is not RowKind.TASK:
        return Box(
            name=name,
            above=above,
            row=row,
            title=row.title,
            status="",
            mode="",
            seconds=row.tally.seconds(now),
            money=usd(row.tally.usage),
            about=row.summary,
            collapsed="",
        )
    node = tree[row.task]
    return Box(
        name=name,
        above=above,
        row=row,
        title=node["path"].rpartition("/")[2],
        status=node["status"],
        mode=node["mode"],
        seconds=seconds_of(node, now),
        money=usd(node["total"]),
        about=one_line(node["error"] or node["label"] or node["goal"]),
        collapsed=row.summary,
    )
