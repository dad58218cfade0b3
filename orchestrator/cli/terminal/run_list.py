"""The list of runs in a terminal: one line per run, with columns that fit the width."""

import datetime as dt
from collections.abc import Callable
from typing import Final

import attrs
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from orchestrator.cli.journal_queries import Runs
from orchestrator.cli.terminal.style import format_money, format_tokens, is_ascii
from orchestrator.delegation import Mode
from orchestrator.delegation.tree.glyphs import glyph
from orchestrator.ports.journals import SessionSummary

WIDE: Final = 110
"""From this width on, ids and statuses are whole words."""
SHORT_ID: Final = 10
"""The number of characters of an id that a narrow terminal shows: commands accept them."""
GAP: Final = "  "


@attrs.frozen
class _Column:
    head: str
    value: Callable[[SessionSummary], str]
    from_width: int = 0
    """The width of a terminal that has room for it."""
    is_number: bool = False


def print_runs(runs: Runs, console: Console) -> None:
    """Print runs, oldest first, and then the runs that cannot be read."""
    width = console.width if console.is_terminal else None
    is_wide = width is None or width >= WIDE
    columns = [it for it in _columns(is_wide=is_wide) if _fits(it, width)]
    rows = [[column.value(it) for column in columns] for it in runs.shown]
    damaged = [
        [id_ if it.head == "run" else _of_damaged(it.head) for it in columns]
        for id_ in runs.damaged
    ]
    table = [[it.head for it in columns], *rows, *damaged]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        line = GAP.join(map(_padded, row, widths, columns)).rstrip()
        style = "dim" if number == 0 else "red" if number > len(rows) else ""
        _print_line(console, Text(line, style=style), width)


def _print_line(console: Console, line: Text, width: int | None) -> None:
    if width is None:
        console.print(line, soft_wrap=True)
        return
    # In ASCII the sign that it goes on is three characters.
    line.truncate(width, overflow="crop" if is_ascii(console) else "ellipsis")
    console.print(line, no_wrap=True)


def _padded(cell: str, width: int, column: _Column) -> str:
    if column.is_number:
        return " " * (width - cell_len(cell)) + cell
    return set_cell_size(cell, width)


def _fits(column: _Column, width: int | None) -> bool:
    return width is None or column.from_width <= width


def _columns(*, is_wide: bool) -> list[_Column]:
    state = [_Column("status", _status)] if is_wide else []
    mark = [] if is_wide else [_Column("", _glyph)]
    return [
        *mark,
        _Column("run", lambda it: it.id if is_wide else it.id[:SHORT_ID]),
        _Column("began", _began),
        _Column("agent", lambda it: it.agent),
        *state,
        _Column("tasks", lambda it: f"{sum(it.tasks.values()):,}", 70, is_number=True),
        _Column("tokens", lambda it: format_tokens(it.usage), 70, is_number=True),
        _Column("cost", lambda it: format_money(it.usage), 50, is_number=True),
        _Column("goal", _goal, 70),
    ]


def _of_damaged(head: str) -> str:
    return {"": "✗", "agent": "damaged"}.get(head, "")


def _began(run: SessionSummary) -> str:
    return f"{dt.datetime.fromtimestamp(run.created).astimezone():%Y-%m-%d %H:%M}"


def _status(run: SessionSummary) -> str:
    # No agent works in a record, so it is in no state.
    return run.status if run.kind.is_run else ""


def _glyph(run: SessionSummary) -> str:
    status = _status(run)
    return glyph(status, Mode.ROOT) if status else ""


def _goal(run: SessionSummary) -> str:
    about = f"[fork of {run.forked_from}] {run.about}" if run.forked_from else run.about
    return f"{about} [{run.note}]" if run.note else about
