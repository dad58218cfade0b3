"""The boxes and arrows of a collapsed tree, which all charts draw."""

from typing import TYPE_CHECKING, Final

import attrs

from orchestrator.delegation.notices import usd
from orchestrator.delegation.task import Ending, Mode, Status, TaskId
from orchestrator.delegation.tree.collapse import CollapsedRow, RowKind, collapse_tree
from orchestrator.delegation.tree.glyphs import glyph, shown_mode
from orchestrator.delegation.tree.safe_text import one_line, printable
from orchestrator.delegation.tree.tally import ACTIVE, FAILURES

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

MAX_BOXES: Final = 120
"""More are not readable, and the usual viewers refuse at 500 arrows."""
CLASSES: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (FAILURES, "bad"),
    (ACTIVE, "busy"),
    (frozenset({Status.WAITING}), "wait"),
    (frozenset({Ending.SUCCEEDED}), "ok"),
)
"""The statuses that are drawn alike."""


@attrs.frozen(kw_only=True)
class Box:
    """A task, or a group of siblings."""

    name: str
    """Its name in arrows."""
    above: str | None
    row: CollapsedRow
    title: str
    status: str
    """Empty if it is no single task."""
    mode: str
    seconds: float | None
    money: str
    about: str
    """Its error, else its label or goal; of a group, its counts."""
    collapsed: str
    """The counts of the tasks below it that are not drawn."""

    @property
    def tokens(self) -> str:
        """Its own and those of all below it: an estimate is marked."""
        return self.row.tally.usage.tokens_text

    @property
    def glyph(self) -> str:
        return glyph(self.status, self.mode) if self.status else ""

    @property
    def style_class(self) -> str:
        """The class of its status; empty if it has none."""
        return next((name for statuses, name in CLASSES if self.status in statuses), "")

    @property
    def is_detached(self) -> bool:
        return self.mode == Mode.DETACHED


@attrs.frozen
class Chart:
    """A tree to be drawn."""

    boxes: list[Box]
    needs: list[tuple[str, str]]
    """From a dependency to the task that depends on it."""
    footer: str
    """A sentence about the hidden tasks; empty if there are none."""


def chart_of(tree: "Tree", *, rows: int = MAX_BOXES, now: float | None = None) -> Chart:
    """Return a tree as at most `rows` boxes."""
    collapsed = collapse_tree(tree, rows=rows)
    boxes: list[Box] = []
    above: list[str] = []
    drawn: dict[TaskId, str] = {}
    for number, row in enumerate(collapsed.rows):
        del above[row.depth :]
        box = _box(tree, row, f"n{number}", above[-1] if above else None, now)
        above.append(box.name)
        boxes.append(box)
        if row.kind is RowKind.TASK:
            drawn[row.task] = box.name
    needs = [
        (drawn[need], name)
        for task, name in drawn.items()
        for need in tree.needs(task)
        if need in drawn
    ]
    return Chart(boxes, needs, collapsed.footer)


def _box(tree: "Tree", row: CollapsedRow, name: str, above: str | None, now: float | None) -> Box:
    if row.kind is not RowKind.TASK:
        return Box(
            name=name,
            above=above,
            row=row,
            title=printable(row.title),
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
        title=printable(node.path.rpartition("/")[2]),
        status=node.status,
        mode=shown_mode(node.mode, node.reason),
        seconds=node.seconds(now),
        money=usd(node.total),
        about=one_line(node.error or node.label or node.goal),
        collapsed=row.summary,
    )
