"""The rows of a tree as text: one line a task, the same for the same facts."""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from orchestrator.delegation.notices import usd
from orchestrator.delegation.task import Mode, TaskId
from orchestrator.delegation.tree.glyphs import glyph, shown_mode
from orchestrator.delegation.tree.safe_text import one_line, printable

if TYPE_CHECKING:
    from orchestrator.delegation.tree.node import TaskNode
    from orchestrator.delegation.tree.tree import Tree


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One task as one line, in parts that a view can align and colour."""

    task: TaskId
    branch: str
    """The lines that connect it to its parent."""
    name: str
    status: str
    mode: str
    seconds: float | None
    tokens: int
    """Its own and those of all below it."""
    tokens_text: str
    """The same for people: an estimate is marked."""
    money: str
    about: str
    """Its error, else its label or goal, with its dependencies."""
    collapsed: str = ""
    """The counts of the tasks below it that are not shown."""

    @property
    def glyph(self) -> str:
        return glyph(self.status, self.mode)


def rows(
    tree: "Tree",
    *,
    now: float | None = None,
    depth: int | None = None,
    only: Collection[TaskId] | None = None,
) -> Iterator[Row]:
    """Yield the tasks of a tree, each parent before its children.

    `Row.collapsed` counts the tasks that are left out below a task.

    Args:
        tree: the tree to show.
        now: the end of tasks that still run; without it their time is not shown.
        depth: the number of levels below the root; by default all.
        only: the tasks to show, with their ancestors; by default all.
    """
    included = None if only is None else _with_ancestors(tree, only)
    pending = [(tree.root, 0, "", "")]
    while pending:
        task, level, branch, indent = pending.pop()
        below = tree.children(task) if depth is None or level < depth else []
        children = [it for it in below if included is None or it in included]
        yield _row(tree, task, branch, now, _collapsed_summary(tree, task, below, children))
        for child in reversed(children):
            last = child == children[-1]
            pending.append(
                (
                    child,
                    level + 1,
                    indent + ("└─ " if last else "├─ "),
                    indent + ("   " if last else "│  "),
                )
            )


def _with_ancestors(tree: "Tree", tasks: Collection[TaskId]) -> set[TaskId]:
    found: set[TaskId] = set()
    for task in tasks:
        above: TaskId | None = task
        while above is not None and above not in found:
            found.add(above)
            above = tree[above].parent
    return found


def _collapsed_summary(tree: "Tree", task: TaskId, below: list[TaskId], shown: list[TaskId]) -> str:
    """Return the counts of the tasks below one that are not shown."""
    if len(shown) == len(below) and (below or not tree.children(task)):
        return ""
    left = tree.subtree(task).below
    for child in shown:
        left -= tree.subtree(child).tally
    return f"{left.tasks:,}↓ {left.alarms()}".strip()


def _row(tree: "Tree", task: TaskId, branch: str, now: float | None, collapsed: str) -> Row:
    node = tree[task]
    _, _, name = node.path.rpartition("/")
    return Row(
        task=task,
        branch=branch,
        name=printable(name),
        status=node.status,
        mode=shown_mode(node.mode, node.reason),
        seconds=node.seconds(now),
        tokens=node.total.tokens,
        tokens_text=node.total.tokens_text,
        money=usd(node.total),
        about=_about(tree, task, node),
        collapsed=collapsed,
    )


def _about(tree: "Tree", task: TaskId, node: "TaskNode") -> str:
    about = one_line(node.error or node.label or node.goal)
    if node.chosen and not node.error:
        about = one_line(f"{node.chosen} · {about}")
    if node.kept:
        about = one_line(f"kept · {about}")
    if node.error or not (needs := tree.needs(task)):
        return about
    names = [tree[it].label or tree[it].path.rpartition("/")[2] for it in needs]
    return one_line(f"{about} (after {', '.join(names)})".strip())


def text(shown: Iterable[Row]) -> str:
    """Return one line a task: status, mode, time, tokens and cost with all below, and its text."""
    return aligned(
        (
            row.branch + row.name,
            f"{row.glyph} {row.status}",
            "" if row.mode == Mode.ROOT else row.mode,
            "" if row.seconds is None else f"{row.seconds:.1f} s",
            f"{row.tokens_text} tok",
            row.money,
            " · ".join(filter(None, (row.collapsed, row.about))),
        )
        for row in shown
    )


def aligned(lines: Iterable[tuple[str, ...]]) -> str:
    """Return the seven cells of each line in columns."""
    table = [*lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(_aligned, cells, widths, "<<<>>><")).rstrip() for cells in table)


def _aligned(cell: str, width: int, direction: str) -> str:
    return f"{cell:{direction}{width}}"
