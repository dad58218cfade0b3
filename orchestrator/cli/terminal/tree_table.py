"""A tree that has ended, as a table in the terminal."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegation import Mode, Reason, Row, TaskId, Tree
from orchestrator.cli.terminal.style import STATUS_COLOURS, is_ascii
from orchestrator.cli.terminal.tree_frame import Canvas, RunSnapshot, render_frame

UNCOLLAPSED_TASKS: Final = 40
"""How many tasks are printed one by one at the end of a run."""


def print_tree(
    tree: Tree,
    console: Console,
    *,
    now: float | None = None,
    depth: int | None = None,
    only: Collection[TaskId] | None = None,
) -> None:
    """Print a tree: in colour on a terminal, as plain lines to a file or a pipe.

    Args:
        tree: the tree.
        console: the terminal.
        now: the end of the time of tasks that still run.
        depth: how many levels below the root; by default all.
        only: the tasks to print, with their ancestors; by default all.
    """
    if console.is_terminal:
        console.print(_table(tree.rows(now=now, depth=depth, only=only)))
    else:
        text = tree.to_text(now=now, depth=depth, only=only)
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_ended(tree: Tree, console: Console) -> None:
    """Print a tree that has just ended: whole, or collapsed if it is long."""
    if len(tree) <= UNCOLLAPSED_TASKS:
        print_tree(tree, console)
        return
    now: float = tree[tree.root]["ended"] or 0.0
    snapshot = RunSnapshot(
        tree=tree, questions=(), calls=lambda _: [], now=now, active_at=now
    )
    canvas = Canvas(
        width=console.width, height=UNCOLLAPSED_TASKS, ascii=is_ascii(console)
    )
    for line in render_frame(snapshot, canvas).lines:
        console.print(line, soft_wrap=True)


def print_reasons(tree: Tree, console: Console) -> None:
    """Print which tasks were joined, which were detached, and why."""
    groups: dict[tuple[str, str], list[str]] = {}
    for task in tree.graph:
        node = tree[task]
        if node["mode"] != Mode.ROOT:
            groups.setdefault((node["mode"], node["reason"]), []).append(node["path"])
    for (mode, reason), paths in groups.items():
        line = Text(f"{mode:<10}", style="bold")
        line.append(_listed(paths), style="not bold")
        console.print(line, soft_wrap=True)
        why = f"          because {Reason(reason).sentence}"
        console.print(Text(why, style="dim"), soft_wrap=True)


def _listed(paths: list[str], most: int = 4) -> str:
    shown = ", ".join(paths[:most])
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def _table(rows: Iterable[Row]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(no_wrap=True, min_width=11)
    table.add_column(no_wrap=True)
    for _ in ("seconds", "tokens", "money"):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> Iterator[Text]:
    yield Text.assemble((row.branch, "dim"), row.name)
    yield Text(f"{row.glyph} {row.status}", style=STATUS_COLOURS[row.status])
    yield Text(row.mode if row.mode != Mode.ROOT else "", style="dim")
    yield Text("" if row.seconds is None else f"{row.seconds:.1f} s")
    yield Text(f"{row.tokens_text} tok")
    yield Text(row.money)
    yield Text(" · ".join(filter(None, (row.collapsed, row.about))))
