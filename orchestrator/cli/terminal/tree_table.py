"""A printed tree: the lines of the live view, without its progress."""

from collections.abc import Collection
from typing import Final

from rich.console import Console
from rich.text import Text

from orchestrator.cli.terminal.style import is_ascii
from orchestrator.cli.terminal.task_line import Canvas, TaskLine, head_line, mark_of, name_of
from orchestrator.cli.terminal.transcript import wrapped
from orchestrator.cli.terminal.tree_frame import RunSnapshot, render_frame
from orchestrator.delegation import Mode, Reason, TaskId, Tree
from orchestrator.delegation.tree.glyphs import shown_mode
from orchestrator.delegation.tree.rows import Row

UNCOLLAPSED_TASKS: Final = 40
"""The number of tasks that are printed one by one at the end of a run."""


def print_tree(
    tree: Tree,
    console: Console,
    *,
    now: float | None = None,
    depth: int | None = None,
    only: Collection[TaskId] | None = None,
) -> None:
    """Print a tree, or `only` some tasks and their ancestors; running ones end `now`."""
    if not console.is_terminal:
        text = tree.to_text(now=now, depth=depth, only=only)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    canvas = _canvas(console, len(tree))
    console.print(canvas.fit(head_line(canvas)))
    for row in tree.rows(now=now, depth=depth, only=only):
        console.print(canvas.fit(_task_line(tree, row).render(canvas)))


def print_collapsed(tree: Tree, console: Console, *, rows: int, now: float | None = None) -> None:
    """Print a tree in a limited number of rows, besides its counts."""
    if not console.is_terminal:
        text = tree.to_text(rows=rows, now=now)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    until: float = now or tree[tree.root].ended or 0.0
    snapshot = RunSnapshot(tree=tree, questions=(), calls=lambda _: [], now=until, active_at=until)
    for line in render_frame(snapshot, _canvas(console, rows + 3)).lines:
        console.print(line)


def print_ended(tree: Tree, console: Console, *, now: float | None = None) -> None:
    """Print a tree that has just ended, or was stopped: whole, or collapsed if it is long."""
    if len(tree) <= UNCOLLAPSED_TASKS:
        print_tree(tree, console, now=now)
    else:
        print_collapsed(tree, console, rows=UNCOLLAPSED_TASKS, now=now)


def _canvas(console: Console, height: int) -> Canvas:
    return Canvas(width=console.width, height=height, ascii=is_ascii(console))


def _task_line(tree: Tree, row: Row) -> TaskLine:
    node = tree[row.task]
    mark, colour = mark_of(row.status, row.mode)
    return TaskLine(
        branch=row.branch,
        mark=mark,
        colour=colour,
        name=name_of(node.path, row.mode),
        about=" · ".join(filter(None, (row.collapsed, row.about))),
        about_style=colour if node.error else "",
        usage=node.total,
        seconds=row.seconds,
    )


def print_reasons(tree: Tree, console: Console) -> None:
    """Print which tasks were joined, which were detached, and why."""
    groups: dict[tuple[str, str], list[str]] = {}
    for task in tree:
        node = tree[task]
        if node.mode != Mode.ROOT:
            shown = shown_mode(node.mode, node.reason)
            groups.setdefault((shown, node.reason), []).append(node.path)
    for (mode, reason), paths in groups.items():
        line = Text(f"{mode:<10}", style="bold")
        line.append(_listed(paths), style="not bold")
        _print_indented(console, line)
        why = f"because {Reason(reason).sentence}"
        _print_indented(console, Text(f"{'':<10}{why}", style="dim"))


def _print_indented(console: Console, line: Text) -> None:
    """Print a line whose continuation lines start below its text; a pipe gets one long line."""
    if not console.is_terminal:
        console.print(line, soft_wrap=True)
        return
    for part in wrapped([line], console.width):
        console.print(part)


def _listed(paths: list[str], most: int = 4) -> str:
    shown = ", ".join(paths[:most])
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown
