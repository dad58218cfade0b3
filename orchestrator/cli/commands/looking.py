"""The commands that look at what was done, or is being done."""

import time
from pathlib import Path
from typing import Annotated, Literal

import trio
from cyclopts import Parameter

from orchestrator.cli.commands.doctor import show_health
from orchestrator.cli.commands.export import export_run
from orchestrator.cli.commands.runs import prune_runs, show_runs
from orchestrator.cli.commands.show import TreeFilter, show_task, show_tree
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import (
    JournalOption,
    journal_of,
)
from orchestrator.cli.terminal.console import Terminal
from orchestrator.exports import Format


def runs(
    *,
    all: bool = False,  # noqa: A002 (the option's name)
    prune: str | None = None,
    dry_run: bool = False,
    journal: JournalOption = None,
) -> None:
    """List the newest runs, the newest last; or take old ones out of the journal.

    Args:
        all: List all of them.
        prune: Delete the runs that have ended, and of which nothing was heard for so long: 12h,
            30d, 2w.
        dry_run: Only say what would be deleted.
    """
    path = journal_of(journal)
    if prune is not None:
        prune_runs(path, prune, dry_run=dry_run, now=time.time())
    elif dry_run:
        raise CommandError("--dry-run goes with --prune")
    else:
        show_runs(path, every=all, journal=journal)


def watch(run: str | None = None, /, *, journal: JournalOption = None) -> int:
    """Look at a run from another terminal while it grows, and act on it; or at one that ended.

    Keys: arrows move and fold, Enter shows what a task says and does, x cancels it with all below
    it, m tells it something, a and d answer what waits for approval, f goes to the next that
    failed, w to the next that waits, / searches and n searches on, q leaves.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
    """
    # Imported late: nobody else needs a terminal of their own.
    from orchestrator.cli.watch.watcher import watch_run

    return trio.run(watch_run, journal_of(journal), run)


def doctor(*, journal: JournalOption = None) -> int:
    """Look whether a journal is whole, without changing it. 0 is healthy, 1 is not."""
    return show_health(journal_of(journal), Terminal())


def tree(
    run: str | None = None,
    /,
    *,
    failed: bool = False,
    depth: int | None = None,
    rows: int | None = None,
    json: bool = False,
    format: Literal["text", "mermaid"] = "text",  # noqa: A002 (the option's name)
    journal: JournalOption = None,
) -> None:
    """Show the tree of a run, from the journal.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        failed: Only the tasks that failed, and those above them.
        depth: How many levels below the root; what is deeper is counted.
        rows: Fold it into so many lines.
        json: The whole graph as node-link JSON.
        format: Text for people, or a Mermaid flowchart; see also: export.
    """
    shape = TreeFilter(failed=failed, depth=depth, rows=rows)
    path = journal_of(journal)
    if json or format == "mermaid":
        shape.require_whole()
        export_run(path, run, output_format="json" if json else "mermaid", output=None)
    else:
        show_tree(path, run, shape)


def show(
    task: str,
    /,
    *,
    run: str | None = None,
    json: bool = False,
    journal: JournalOption = None,
) -> None:
    """Show a task: its goal, how it stands, what it used, what it said and did, who it asked.

    Args:
        task: Its id, or how that begins; or its path, such as '/editor/researcher[2]'.
        run: The run in which to look; by default the one that has the task, for a path the
            newest.
        json: All of it as JSON.
    """
    show_task(journal_of(journal), task, run, as_json=json)


def export(
    run: str | None = None,
    /,
    *,
    format: Format,  # noqa: A002 (the option's name)
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    journal: JournalOption = None,
) -> None:
    """Write the tree of a run for another program.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        format: text: a line a task. mermaid, dot, svg: a chart of the folded tree, at most 120
            boxes. graphml, json: the whole graph, as networkx reads it. trace: for Perfetto and
            speedscope. html: the report, without transcripts.
        output: The file; by default stdout. One that is there is replaced.
    """
    export_run(journal_of(journal), run, output_format=format, output=output)


def report(
    run: str | None = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    transcripts: Literal["none", "failed", "all"] = "none",
    journal: JournalOption = None,
) -> None:
    """Write a run as one HTML file that needs no network, to look at and to send around.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        output: The file; by default run-ID.html in this directory. One that is there is
            replaced.
        transcripts: Whose go with it: what agents read and wrote may not be for everybody.
    """
    # Imported late: nobody else needs it.
    from orchestrator.cli.commands.report import write_report

    write_report(journal_of(journal), run, output=output, transcripts=transcripts)
