"""Trees in the terminal: live while they grow, and as they ended."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from delegation import Ending, Mode, Reason, Row, Status, Tree
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator

FRAMES_PER_SECOND: Final = 8
MARGIN: Final = 3
"""Lines that a frame leaves free: a frame as high as the screen would scroll it."""
COLOURS: Final[dict[str, str]] = {
    Status.QUEUED: "dim",
    Status.RUNNING: "cyan",
    Status.QUIET: "yellow",
    Status.WAITING: "dim cyan",
    Status.INTERRUPTED: "yellow",
    Ending.SUCCEEDED: "green",
    Ending.FAILED: "red",
    Ending.CANCELLED: "yellow",
    Ending.TIMED_OUT: "red",
    Ending.OVER_BUDGET: "red",
    Ending.REFUSED: "yellow",
    Ending.LOST: "red",
}


async def watch_newest(orchestrator: Orchestrator, console: Console) -> None:
    """Show the newest tree while it grows, until cancelled."""
    if console.is_terminal:
        await _watch_live(orchestrator, console)
    else:
        await _watch_lines(orchestrator, console)


async def _watch_live(orchestrator: Orchestrator, console: Console) -> None:
    seen = 0
    # Rich refreshes from a thread of its own unless told not to.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            if (tree := _newest(orchestrator)) is not None:
                live.update(_frame(tree, console, now=orchestrator.now()), refresh=True)
            with trio.move_on_after(1):
                seen = await orchestrator.wait_changed(after=seen)
            await trio.sleep(1 / FRAMES_PER_SECOND)


async def _watch_lines(orchestrator: Orchestrator, console: Console) -> None:
    """Print a line for each change of a status: what a log file can use."""
    seen = 0
    statuses: dict[tuple[str, str], str] = {}
    while True:
        seen = await orchestrator.wait_changed(after=seen)
        if (tree := _newest(orchestrator)) is not None:
            for task in tree.graph:
                node = tree[task]
                status = node["status"]
                if statuses.get((tree.root, task)) != status:
                    statuses[tree.root, task] = status
                    console.print(
                        f"{node['path']} {status}",
                        markup=False,
                        highlight=False,
                        soft_wrap=True,
                    )
        await trio.sleep(1 / FRAMES_PER_SECOND)


def _newest(orchestrator: Orchestrator) -> Tree | None:
    """Return the newest tree, unless it ended before we came."""
    try:
        return orchestrator.tree(orchestrator.runs[-1]) if orchestrator.runs else None
    except UnknownIdError:
        return None


def print_tree(tree: Tree, console: Console, *, now: float | None = None) -> None:
    """Print a whole tree: in colour for people, as plain lines for files and pipes."""
    if console.is_terminal:
        console.print(_table(tree.rows(now=now)))
    else:
        console.print(tree.to_text(), markup=False, highlight=False, soft_wrap=True)


def print_reasons(tree: Tree, console: Console) -> None:
    """Print what was joined and what was detached, and why."""
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


def _frame(tree: Tree, console: Console, *, now: float) -> Group:
    height = max(console.height - MARGIN, 1)
    table = _table(islice(tree.rows(now=now), height))
    hidden = len(tree) - height
    footer = f"… {hidden} more tasks" if hidden > 0 else ""
    return Group(table, Text(footer, style="dim"))


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
    yield Text(f"{row.glyph} {row.status}", style=COLOURS[row.status])
    yield Text(row.mode if row.mode != Mode.ROOT else "", style="dim")
    yield Text("" if row.seconds is None else f"{row.seconds:.1f} s")
    yield Text(f"{row.tokens:,} tok")
    yield Text(row.money)
    yield Text(row.about)
