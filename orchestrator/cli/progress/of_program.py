"""The progress of a program that runs agents: the tree in a terminal, lines elsewhere."""

import os
import sys
from contextlib import suppress

from rich.text import Text

from orchestrator.cli.progress.display import display_failure_text
from orchestrator.cli.progress.live_tree import show_live, shown_tree
from orchestrator.cli.progress.log_lines import new_log, write_log
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.style import choose_progress
from orchestrator.cli.terminal.tree_table import print_ended
from orchestrator.ports.sessions import Orchestrator


async def show_progress(orchestrator: Orchestrator) -> None:  # noqa: ASYNC910 (it is cancelled)
    """Show the newest run of an orchestrator on stderr until cancelled; no error is raised."""
    console = Terminal(stderr=True)
    try:
        if choose_progress("auto", sys.stderr, os.environ) == "live":
            await _show_tree(orchestrator, console)
        else:
            await _write_lines(orchestrator, console)
    except Exception as exc:  # noqa: BLE001 (a bulkhead: a display never ends the work)
        # A stream that is closed or full shows no message either.
        with suppress(OSError, ValueError):
            console.print(Text(display_failure_text(exc), style="yellow"), soft_wrap=True)


async def _show_tree(orchestrator: Orchestrator, console: Terminal) -> None:
    try:
        await show_live(orchestrator, console, attended=False)
    finally:
        # The live frame is gone: the ended tree stays.
        if (tree := shown_tree(orchestrator)) is not None:
            print_ended(tree, console, now=orchestrator.now())


async def _write_lines(orchestrator: Orchestrator, console: Terminal) -> None:
    with orchestrator.subscribe() as facts:
        tree = shown_tree(orchestrator)
        root = None if tree is None else tree[tree.root]
        log = new_log(orchestrator, console, began=None if root is None else root.requested)
        if tree is not None and root is not None and len(tree) > 1:
            tasks = len(tree) - 1
            console.print(Text(f"{root.path}: {tasks:,} task{'s' * (tasks != 1)} so far"))
        try:
            await write_log(orchestrator, facts, log)
        finally:
            log.write([entry for entry, _ in facts.take()])
            log.write_failures()
