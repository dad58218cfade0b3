"""`orchestrator tree`: print the tree of a run from the journal."""

import time
from collections.abc import Sequence

from rich.text import Text

from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_run
from orchestrator.cli.options import JournalOption, RunArgument, journals_of
from orchestrator.cli.terminal.console import Terminal, print_hint, resume_hint
from orchestrator.cli.terminal.tree_table import print_collapsed, print_reasons, print_tree
from orchestrator.delegation import SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.delegation.tree.tally import FAILURES
from orchestrator.ports.journals import Journals


def tree(
    run: RunArgument = None,
    /,
    *,
    failed: bool = False,
    depth: int | None = None,
    rows: int | None = None,
    json: bool = False,
    journal: JournalOption = None,
) -> None:
    """Show the tree of a run, from the journal. `export` has other formats.

    Args:
        failed: Only the tasks that failed, and those above them.
        depth: The levels to show below the root; deeper tasks are counted.
        rows: Collapse the tree into this many lines.
        json: The whole graph as node-link JSON, like `export --format json`.
    """
    if depth is not None and depth < 0:
        raise CommandError(f"--depth is {depth}; it must be 0 or more")
    if rows is not None and rows < 1:
        raise CommandError(f"--rows is {rows}; it must be 1 or more")
    if rows is not None and (failed or depth is not None):
        raise CommandError(
            "--rows folds as it sees fit, and goes with neither --failed nor --depth"
        )
    journals = journals_of(journal)
    if json:
        if failed or depth is not None or rows is not None:
            raise CommandError(
                "--failed, --depth and --rows are for people, and do not go with --json"
            )
        # Imported late: the other formats are not needed to print a tree.
        from orchestrator.cli.commands.export import export_run

        _, text, _ = export_run(journals, run, "json")
        print(text)
        return
    _print_run(journals, run, failed=failed, depth=depth, rows=rows, journal=journal)


def _print_run(
    journals: Journals,
    prefix: str | None,
    *,
    failed: bool,
    depth: int | None,
    rows: int | None,
    journal: str | None,
) -> None:
    session, _, now = read_session(journals, prefix)
    tree, console = session.tree, Terminal()
    console.print(Text(f"run {session.id}", style="bold"))
    if session.forked_from:
        print_hint(console, f"forked from {session.forked_from}")
    if rows is not None:
        print_collapsed(tree, console, rows=rows, now=now)
        return
    only = tree.find(status=FAILURES) if failed else None
    if only is not None and not only:
        console.print(f"none of its {len(tree):,} tasks has failed")
        return
    print_tree(tree, console, now=now, depth=depth, only=only)
    if not failed and depth is None:
        print_reasons(tree, console)
    if session.awaits_resume:
        print_hint(Terminal(stderr=True), resume_hint(session.id, journal))


def read_session(
    journals: Journals, prefix: str | None
) -> tuple[SessionRecord, Sequence[Entry], float | None]:
    """Return a run, its entries, and the time now if another process is running it."""
    found = read_run(journals, prefix)
    session = found.fold().sessions[found.id]
    return session, found.entries, time.time() if session.tree.is_at_work else None
