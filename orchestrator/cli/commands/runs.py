"""The list of runs, and taking old ones out of it: `orchestrator runs`."""

import datetime as dt
from pathlib import Path
from typing import Final

import trio
from rich.table import Table
from rich.text import Text

from delegation import SessionRecord, one_line, usd
from orchestrator.cli.journal_queries import parse_age, read_runs, require_journal
from orchestrator.cli.terminal.console import Terminal, command
from orchestrator.journal.sqlite.prune import (
    Pruned,
    preview_prune,
    prune_sqlite_journal,
)

NEWEST: Final = 20
"""How many runs are listed unless all are asked for."""


def show_runs(path: Path, *, every: bool, journal: Path | None) -> None:
    """List the newest runs, or all, the newest last.

    Args:
        path: the journal.
        every: list all.
        journal: the journal as the user named it.
    """
    runs = read_runs(path, newest=None if every else NEWEST)
    console = Terminal()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", no_wrap=True, min_width=12)
    table.add_column("began", no_wrap=True)
    table.add_column("agent", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=9)
    for heading in ("tasks", "tokens", "cost"):
        table.add_column(heading, no_wrap=True)
    table.add_column("goal", no_wrap=True, overflow="ellipsis")
    for session in runs.shown:
        table.add_row(*map(Text, _summary(session)))
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)
    if len(runs.shown) < runs.count:
        again = command("runs", "--all", journal=journal)
        hint = f"the newest {len(runs.shown)} of {runs.count:,}; all: {again}"
        Terminal(stderr=True).print(Text(hint, style="dim"), soft_wrap=True)


def _summary(session: SessionRecord) -> tuple[str, ...]:
    node = session.tree[session.root.id]
    began = dt.datetime.fromtimestamp(node["requested"]).astimezone()
    return (
        session.id,
        f"{began:%Y-%m-%d %H:%M}",
        node["agent"],
        node["status"],
        str(len(session.tree)),
        f"{session.tree.total.tokens:,}",
        usd(session.tree.total),
        _about(session, node["goal"]),
    )


def _about(session: SessionRecord, goal: str) -> str:
    link = session.forked_from
    return f"[fork of {link}] {one_line(goal)}" if link else one_line(goal)


def prune_runs(path: Path, age: str, *, dry_run: bool, now: float) -> None:
    """Take the runs at rest that are older out of the journal, or say which that would be."""
    before = now - parse_age(age)
    require_journal(path)
    if dry_run:
        print(f"would prune {_described(preview_prune(path, before=before))}")
        return

    async def prune() -> Pruned:
        return await prune_sqlite_journal(path, before=before)

    pruned = trio.run(prune)
    megabytes = f"{pruned.freed / 1_000_000:,.1f} MB"
    print(f"pruned {_described(pruned)}; {megabytes} are free again")


def _described(pruned: Pruned) -> str:
    described = f"{pruned.runs:,} runs ({pruned.entries:,} entries)"
    if pruned.active:
        return f"{described}, and none of the {pruned.active:,} that are not at rest"
    return described
