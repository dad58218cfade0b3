"""`orchestrator runs`: list the runs of a journal, or prune old ones."""

import datetime as dt
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio
from rich.table import Table
from rich.text import Text

from delegation import SessionId, SessionRecord, one_line, usd
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import (
    parse_age,
    read_runs,
    require_deletable,
    require_journal,
)
from orchestrator.cli.options import JournalOption, journal_path
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.control.client import connect_control
from orchestrator.control.server import DeleteRun, Prune
from orchestrator.journal.backends import store_at
from orchestrator.journal.journal import Pruned

NEWEST: Final = 20
"""How many runs are listed without `--all`."""


def runs(
    *,
    all: bool = False,  # noqa: A002 (the option's name)
    prune: str | None = None,
    delete: str | None = None,
    dry_run: bool = False,
    journal: JournalOption = None,
) -> None:
    """List the newest runs, the newest last; or take old ones out of the journal.

    Args:
        all: List all of them.
        prune: Delete the runs that have ended, and have no fact that is newer than this: 12h,
            30d, 2w.
        delete: Delete this run, whatever its age, if it is idle or its facts are damaged.
        dry_run: Only say what would be deleted.
    """
    path = journal_path(journal)
    if prune is not None:
        _prune_runs(path, before=time.time() - parse_age(prune), dry_run=dry_run)
    elif delete is not None:
        _delete_run(path, SessionId(delete))
    elif dry_run:
        raise CommandError("--dry-run goes with --prune")
    else:
        _list_runs(path, newest=None if all else NEWEST, journal=journal)


def _list_runs(path: Path, *, newest: int | None, journal: Path | None) -> None:
    runs = read_runs(path, newest=newest)
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
        table.add_row(*map(Text, _cells(session)))
    for damaged in runs.damaged:
        table.add_row(Text(damaged), "", "", Text("damaged", style="red"))
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)
    shown = len(runs.shown) + len(runs.damaged)
    if shown < runs.count:
        again = command("runs", "--all", journal=journal)
        hint = f"the newest {shown} of {runs.count:,}; all: {again}"
        print_hint(Terminal(stderr=True), hint)
    interrupted = [session.id for session in runs.shown if session.awaits_resume]
    if interrupted:
        again = command("resume", "FILE", interrupted[-1], journal=journal)
        hint = f"{len(interrupted)} were interrupted; to resume one: {again}"
        print_hint(Terminal(stderr=True), hint)
    for error in runs.damaged.values():
        raise error


def _cells(session: SessionRecord) -> tuple[str, ...]:
    node = session.tree[session.root.id]
    began = dt.datetime.fromtimestamp(node["requested"]).astimezone()
    return (
        session.id,
        f"{began:%Y-%m-%d %H:%M}",
        node["agent"],
        node["status"],
        str(len(session.tree)),
        session.tree.total.tokens_text,
        usd(session.tree.total),
        _goal(session, node["goal"]),
    )


def _goal(session: SessionRecord, goal: str) -> str:
    link = session.forked_from
    return f"[fork of {link}] {one_line(goal)}" if link else one_line(goal)


def _prune_runs(path: Path, *, before: float, dry_run: bool) -> None:
    require_journal(path)
    if dry_run:
        print(
            f"would prune {_describe_pruned(store_at(path).preview_prune(before=before))}"
        )
        return

    async def prune() -> Pruned:
        async with connect_control(path) as writer:
            if writer is not None:
                return _received(await writer.request(Prune(before)))
        return await store_at(path).prune(before=before)

    _print_pruned(trio.run(prune))


def _delete_run(path: Path, run: SessionId) -> None:
    require_journal(path)

    async def delete() -> Pruned:
        async with connect_control(path) as writer:
            if writer is not None:
                return _received(await writer.request(DeleteRun(run)))
        require_deletable(path, run)
        return await store_at(path).prune(before=0, only=run)

    _print_pruned(trio.run(delete))


def _received(response: Mapping[str, Any]) -> Pruned:
    return Pruned(
        runs=response["runs"],
        entries=response["entries"],
        active=response["active"],
        freed=response["freed"],
    )


def _print_pruned(pruned: Pruned) -> None:
    megabytes = f"{pruned.freed / 1_000_000:,.1f} MB"
    print(f"pruned {_describe_pruned(pruned)}; {megabytes} are free again")


def _describe_pruned(pruned: Pruned) -> str:
    counts = f"{pruned.runs:,} runs ({pruned.entries:,} entries)"
    if pruned.active:
        return f"{counts}, and none of the {pruned.active:,} that are not idle"
    return counts
